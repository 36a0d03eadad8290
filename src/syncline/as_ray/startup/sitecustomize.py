"""Prepares a process that a program with `syncline.as_ray` has started: imports of `ray` give
syncline.

Python imports it at the start of each process. It costs next to nothing until `ray` is imported.
It runs the `sitecustomize` that it hides, if there is one.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in `typing`, which takes time to import
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from syncline.as_ray.finder import RayFinder

_HERE = os.path.dirname(os.path.abspath(__file__))


class _FirstImport:
    """A finder that installs the finder of `syncline.as_ray` at the first use of `ray`."""

    def __init__(self) -> None:
        self._is_loading = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        finder = self._finder() if name == "ray" else None
        return finder.find_spec(name, path, target) if finder is not None else None

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        finder = self._finder() if getattr(context, "name", None) == "ray" else None
        return finder.find_distributions(context) if finder is not None else ()

    def _finder(self) -> RayFinder | None:
        if self._is_loading:
            return None
        self._is_loading = True
        try:
            from syncline.as_ray.imports import install_in_child
        except ImportError:  # the interpreter of another environment, without syncline
            return None
        finally:
            self._is_loading = False
        return install_in_child()


sys.meta_path.insert(0, _FirstImport())
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _HERE]
_this = sys.modules.pop("sitecustomize")
try:
    __import__("sitecustomize")  # the one that this file hides
except ModuleNotFoundError as error:
    if error.name != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", _this)
