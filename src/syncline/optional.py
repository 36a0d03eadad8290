"""Libraries that only some formats need: loaded when used, with a remedy in the error where they
are missing.

`pyarrow.dataset`, which is always there, belongs here too: it loads pandas.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


def load(module: str, *, purpose: str, install: str) -> Any:
    """The module, imported now.

    Args:
        module: Its dotted name.
        purpose: What needs it, as the subject of a sentence.
        install: What `pip install` takes to get it.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise _missing(module, purpose, install) from error


def require(module: str, *, purpose: str, install: str) -> None:
    """The check of `load` alone: nothing is imported, however long that would take. Arguments and
    error as there.
    """
    spec = find_spec(module.split(".")[0])
    if spec is None or spec.origin is None:  # without origin, it is a folder of that name somewhere
        raise _missing(module, purpose, install)


def _missing(module: str, purpose: str, install: str) -> ImportError:
    message = f"{purpose} needs the library {module.split('.')[0]!r}, which is not installed: pip install '{install}'"
    return ImportError(message, name=module)


def arrow_dataset() -> Any:
    """The module `pyarrow.dataset`, imported now: it takes two tenths of a second, which `import
    syncline.data` should not cost.
    """
    return import_module("pyarrow.dataset")
