"""Imports of modules that exist only in the table, and lookup of their names."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from syncline.ray_paths.retired import NoCounterpartAttributeError, NoCounterpartError, reason_of
from syncline.ray_paths.table import NAMES, PATHS
from syncline.suggestions import did_you_mean

_PACKAGE = "syncline"
_KNOWN = frozenset(
    ".".join(path.split(".")[:count])
    for path in PATHS
    for count in range(1, path.count(".") + 2)
)  # fmt: skip


class _Finder:
    """Finds the modules of the table, after all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(f"{_PACKAGE}."):
            return None
        relative = _relative(fullname)
        if relative in _KNOWN:
            loader: Any = _Loader()  # `importlib.abc`, its base class, takes long to import
            return ModuleSpec(fullname, loader, is_package=True)
        reason = reason_of(relative)
        if reason is not None:
            raise NoCounterpartError(relative, reason)
        return None


class _Loader:
    """Creates modules whose names load on first use."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LazyModule(spec.name, f"Names of `ray.{_relative(spec.name)}`.")

    def exec_module(self, module: ModuleType) -> None:
        pass


class _LazyModule(ModuleType):
    """A module of the table."""

    def __getattr__(self, name: str) -> object:
        return attribute(self.__name__, name)

    def __reduce__(self) -> tuple[object, ...]:
        return (importlib.import_module, (self.__name__,))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names_of(self.__name__)})


def install() -> None:
    """Let imports find the modules of the table."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())


def attribute(module: str, name: str, known: Iterable[str] = ()) -> object:
    """Return a name or submodule of the table of a module of syncline.

    Raises AttributeError, which suggests a similar name of the table or of `known`.
    """
    relative = _relative(module)
    if name == "__all__" and relative in _KNOWN:
        return names_of(module)
    dotted = f"{relative}.{name}" if relative else name
    if not name.startswith("__"):
        if dotted in _KNOWN:
            return importlib.import_module(f"{_PACKAGE}.{dotted}")
        home = _homes(relative).get(name)
        if home is not None:
            value: object = getattr(_loaded(home[0], dotted), home[1])
            setattr(sys.modules[module], name, value)
            return value
        reason = reason_of(dotted)
        if reason is not None:
            raise NoCounterpartAttributeError(dotted, reason)
    hint = "" if name.startswith("__") else did_you_mean(name, [*names_of(module), *known])
    text = f"module {module!r} has no attribute {name!r}"
    raise AttributeError(f"{text}.{hint}" if hint else text)


def _loaded(home: str, dotted: str) -> ModuleType:
    """Return the module that defines a name, which may need an extra."""
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ModuleNotFoundError(
            f"`syncline.{dotted}` works with clusters, which need Ray, but Ray is not installed: "
            f'run `pip install "syncline[cluster]"`',
            name="ray",
        ) from None


def names_of(module: str) -> list[str]:
    """Return the names and submodules that the table adds to a module."""
    relative = _relative(module)
    prefix = f"{relative}." if relative else ""
    below = {
        path.removeprefix(prefix)
        for path in _KNOWN
        if path.startswith(prefix) and "." not in path.removeprefix(prefix)
    }
    return sorted({*_homes(relative), *below})


@functools.cache
def _homes(relative: str) -> dict[str, tuple[str, str]]:
    """Return the module of each name of a path, and its name there."""
    found: dict[str, tuple[str, str]] = {}
    for home, names in (PATHS.get(relative, {}) if relative else NAMES).items():
        listed = names.split()
        if names == "*":
            listed = [name for name in dir(importlib.import_module(home)) if name[:1] != "_"]
        for each in listed:
            name, _, public = each.partition(":")
            found[public or name] = (home, name)
    return found


def _relative(module: str) -> str:
    return module.removeprefix(_PACKAGE).removeprefix(".")
