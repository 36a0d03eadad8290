"""RLlib's module paths, mapped to the definitions of their names in syncline.

`syncline.rllib.X` and `syncline.rl.X` have the names of `ray.rllib.X`; names without a counterpart
raise an ImportError with advice (`public_retired`). A path in the table is a module without a file
whose names load on first use; any other path under `syncline.rllib` is the module with the same
path under `syncline.rl`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from syncline.rl.public_missing import MISSING
from syncline.rl.public_retired import reason_of
from syncline.rl.public_table import PATHS
from syncline.suggestions import did_you_mean

HOME = "syncline.rl"
PREFIXES = ("syncline.rl", "syncline.rllib")


class NoCounterpartError(ImportError):
    """Raised for a name of RLlib that does not exist in syncline."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of the table, after all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        relative = _relative(fullname)
        if relative is None:
            return None
        if _is_known(relative):
            return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)
        if fullname.startswith("syncline.rllib.") and _exists(f"{HOME}.{relative}"):
            return importlib.machinery.ModuleSpec(fullname, _Loader(), is_package=True)
        return None


class _Loader(importlib.abc.Loader):
    """Creates modules whose names load on first use."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _LazyModule(spec.name, f"The names of `ray.{spec.name.partition('.')[2]}`.")

    def exec_module(self, module: ModuleType) -> None:
        pass


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> object:
        return package_attribute(self.__name__, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_names(_relative(self.__name__) or "")})


def install() -> None:
    """Register the finder for the modules of the table."""
    if not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.append(_Finder())


def package_attribute(module: str, name: str) -> object:
    """Return a name of a module of the table, from the module that defines it."""
    relative = _relative(module) or ""
    if name == "__all__":
        return sorted(_names(relative))
    if not name.startswith("__"):
        home = _names(relative).get(name)
        if home is not None:
            value = getattr(importlib.import_module(f"{HOME}.{home[0]}"), home[1])
            setattr(sys.modules[module], name, value)
            return value
        if relative and module != f"{HOME}.{relative}" and _exists(f"{HOME}.{relative}"):
            found = getattr(importlib.import_module(f"{HOME}.{relative}"), name, None)
            if found is not None:
                return found
        if importlib.util.find_spec(f"{module}.{name}") is not None:
            return importlib.import_module(f"{module}.{name}")
        if name in MISSING.get(relative, "").split():
            raise NoCounterpartError(
                f"RLlib's name {'.'.join(filter(None, ('rllib', relative, name)))} has no "
                f"counterpart in syncline. {reason_of(relative, name)}",
                remedy=reason_of(relative, name),
            )
    hint = "" if name.startswith("__") else did_you_mean(name, _known(relative))
    raise AttributeError(f"module {module!r} has no attribute {name!r}.{hint}")


def _names(relative: str) -> dict[str, tuple[str, str]]:
    """Return the module and name of every public name of a path of the table."""
    found: dict[str, tuple[str, str]] = {}
    for home, names in PATHS.get(relative, {}).items():
        if names == "*":
            module: object = importlib.import_module(f"{HOME}.{home}")
            listed = [name for name in vars(module) if name.isupper() or name[:1].isupper()]
        else:
            listed = names.split()
        for each in listed:
            name, _, public = each.partition(":")
            found[public or name] = (home, name)
    return found


def _known(relative: str) -> set[str]:
    """Return the public names of a module."""
    real = f"{HOME}.{relative}"
    found = dir(sys.modules[real]) if relative and real in sys.modules else []
    return {name for name in [*_names(relative), *found] if not name.startswith("_")}


@functools.cache
def _is_known(relative: str) -> bool:
    """Return True for a module of RLlib or a package of modules."""
    return any(each == relative or each.startswith(f"{relative}.") for each in (*PATHS, *MISSING))


def _relative(module: str) -> str | None:
    for prefix in reversed(PREFIXES):
        if module == prefix:
            return ""
        if module.startswith(f"{prefix}."):
            return module.removeprefix(f"{prefix}.")
    return None


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
