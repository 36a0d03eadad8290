"""The finder of modules named `ray…`, which stands before all others in `sys.meta_path`.

`ray.x` is the same object as `syncline.x`, so that types and states exist once. `ray` itself is a
separate module, because its version differs. The classes have no bases of `importlib.abc`,
whose import takes milliseconds.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import syncline
from syncline.as_ray import ray_module
from syncline.as_ray.names import RAY, advice, counterpart, is_ray

if TYPE_CHECKING:
    from importlib.abc import Loader


class RayFinder:
    """Finds `ray` and every `ray.x` for which `syncline.x` exists."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module named `ray…`, and None for others.

        Raises:
            ModuleNotFoundError: syncline has no counterpart; the text says what to use.
        """
        if not is_ray(fullname):
            return None
        if fullname == RAY:
            found = ModuleSpec(RAY, _loader(_RayLoader()), origin=syncline.__file__)
            found.submodule_search_locations = list(syncline.__path__)
            return found
        ours = counterpart(fullname)
        spec = None if ours is None else importlib.util.find_spec(ours)
        if ours is None or spec is None:
            raise ModuleNotFoundError(advice(fullname), name=fullname)
        found = ModuleSpec(fullname, _loader(_SameModuleLoader(ours)), origin=spec.origin)
        found.submodule_search_locations = spec.submodule_search_locations
        return found

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        """Yield the distribution `ray` if a program asks for it by name.

        Lists of everything that is installed do not contain it.
        """
        name = getattr(context, "name", None)
        if name is None or name.lower() != RAY:
            return ()
        # It imports `importlib.metadata`, which takes longer than all of this package.
        module = importlib.import_module("syncline.as_ray.distribution")
        return (module.RayDistribution(),)


class _RayLoader:
    """Creates the module `ray`."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ray_module.make()

    def exec_module(self, module: ModuleType) -> None:
        pass


class _SameModuleLoader:
    """Imports a module of syncline, and gives it a second name."""

    def __init__(self, ours: str) -> None:
        self._ours = ours
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._ours)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has replaced the specification, by which the module knows its name.
        module.__spec__ = self._spec


def _loader(loader: object) -> Loader:
    return cast("Loader", loader)


def installed() -> RayFinder | None:
    """Return the finder of this process; None before `install`."""
    return next((each for each in sys.meta_path if isinstance(each, RayFinder)), None)
