"""The module `ray`: syncline's names under Ray's name, with the version of Ray's API."""

from __future__ import annotations

from types import ModuleType

import syncline
from syncline.as_ray.names import API_VERSION, RAY, advice, counterpart


class RayModule(ModuleType):
    """The module `ray`. Its names are looked up in syncline at their first use."""

    def __init__(self) -> None:
        super().__init__(RAY, syncline.__doc__)
        self.__version__ = API_VERSION
        self.__file__ = syncline.__file__

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name.endswith("__") and name != "__all__":
            raise AttributeError(f"module {RAY!r} has no attribute {name!r}")
        dotted = f"{RAY}.{name}"
        if counterpart(dotted) is None:
            raise AttributeError(advice(dotted))
        try:
            value: object = getattr(syncline, name)
        except AttributeError as error:
            raise AttributeError(advice(dotted, error)) from error
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        names = {name for name in dir(syncline) if counterpart(f"{RAY}.{name}") is not None}
        return sorted(names | set(self.__dict__))
