"""Optional libraries: loaded on first use, with an install hint in the error if they are missing.

Covered as well: modules of this package that import such a library at the top, libraries that are
always installed but slow to import, and imports that garbage collections would delay.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


def load(module: str, *, purpose: str, install: str, library: str | None = None) -> Any:
    """Import a module now.

    Args:
        module: Dotted name of the module.
        purpose: The feature that needs it, as the subject of a sentence.
        install: Argument of `pip install`.
        library: Package that the module needs; None for the module's own top-level package.

    Raises:
        ImportError: The library is not installed.
    """
    needed = library or module.split(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != needed:
            raise
        raise _missing(needed, purpose, install) from error


def require(module: str, *, purpose: str, install: str) -> None:
    """Check like `load` that a library is installed, without the time that its import takes."""
    library = module.split(".")[0]
    spec = find_spec(library)
    if spec is None or spec.origin is None:  # without an origin, it is a directory of that name
        raise _missing(library, purpose, install)


def _missing(library: str, purpose: str, install: str) -> ImportError:
    return ImportError(
        f"{purpose} needs the library {library!r}, which is not installed: pip install '{install}'",
        name=library,
    )


class _Deferred(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def deferred(module: str) -> Any:
    """Return a stand-in for a module that is imported at the first use of an attribute."""
    return _Deferred(module)


@contextmanager
def without_collections() -> Iterator[None]:
    """Context that no garbage collection interrupts, for imports and other work that makes many
    objects and little garbage.

    So many new objects let Python look at all objects of the program, for a tenth of a second after
    an import of torch. At the end of the context all objects count as old, so that this does not
    happen at once then; later collections see them as usual.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():  # else it would unfreeze objects of the program
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def arrow_dataset() -> Any:
    """Import `pyarrow.dataset`, which takes two tenths of a second that `import syncline.data`
    should not cost.
    """
    return import_module("pyarrow.dataset")
