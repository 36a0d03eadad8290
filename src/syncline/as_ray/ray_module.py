"""The module `ray`: syncline's names under Ray's name, with the version of Ray's API.

It is an ordinary module object, so that functions that refer to it are pickled with its name.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import syncline
from syncline.as_ray.names import API_VERSION, RAY, advice, counterpart


def make() -> ModuleType:
    """Return the module. Its names are looked up in syncline at their first use."""
    module = ModuleType(RAY, syncline.__doc__)

    def get_name(name: str) -> object:
        if name.startswith("__") and name.endswith("__") and name != "__all__":
            raise AttributeError(f"module {RAY!r} has no attribute {name!r}")
        dotted = f"{RAY}.{name}"
        ours = counterpart(dotted)
        if ours is None:
            raise AttributeError(advice(dotted))
        try:
            place = importlib.import_module(ours.rpartition(".")[0])
            value: object = getattr(place, ours.rpartition(".")[2])
        except AttributeError as error:
            raise AttributeError(advice(dotted, error)) from error
        setattr(module, name, value)
        return value

    def list_names() -> list[str]:
        names = {name for name in dir(syncline) if counterpart(f"{RAY}.{name}") is not None}
        return sorted(names | set(vars(module)))

    vars(module).update(
        __version__=API_VERSION,
        __file__=syncline.__file__,
        __getattr__=get_name,
        __dir__=list_names,
    )
    return module
