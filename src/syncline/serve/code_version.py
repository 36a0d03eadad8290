"""`code_version`: a digest of a deployment's code and arguments that is equal in every process.

Code that is pickled by value (from the program's own file, or a notebook) is in the pickle. Code
that is pickled by reference is in modules: the source files of the modules that the deployment's
module uses are part of the digest, except those of installed libraries. Not covered: modules that
are imported inside functions.
"""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from cloudpickle import cloudpickle

_OWN_PACKAGE = __name__.partition(".")[0]
_TRACKER_ID = re.compile(rb"[0-9a-f]{32}")


def code_version(func_or_class: Callable[..., Any], *pickles: bytes) -> str:
    """Return the digest of a class or function and of pickles.

    The pickles are its own, the one of its arguments, and those of its deployment actors.
    """
    digest = hashlib.blake2b(digest_size=16)
    known: dict[bytes, bytes] = {}
    for data in pickles:
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(_without_tracker_ids(data, known))
    for path in sorted(_source_files(func_or_class)):
        try:
            digest.update(hashlib.blake2b(path.read_bytes()).digest())
        except OSError:  # a file that was deleted or moved since its import
            continue
    return digest.hexdigest()


def _without_tracker_ids(data: bytes, known: dict[bytes, bytes]) -> bytes:
    """Replace the random ids that cloudpickle gives classes by their order of appearance."""
    ids = getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})

    def replaced(match: re.Match[bytes]) -> bytes:
        found = match.group()
        if found.decode() not in ids:
            return found
        return known.setdefault(found, b"class %d" % len(known))

    return _TRACKER_ID.sub(replaced, data)


def _source_files(func_or_class: Callable[..., Any]) -> set[Path]:
    """Return the files of the user's modules that the module of `func_or_class` uses."""
    files = set()
    seen = set()
    pending = [func_or_class.__module__]
    while pending:
        name = pending.pop()
        module = sys.modules.get(name)
        if module is None or name in seen:
            continue
        seen.add(name)
        path = _user_file(module)
        if name != "__main__":
            if path is None:
                continue
            files.add(path)
        pending += _used_modules(module)
    return files


def _used_modules(module: ModuleType) -> Iterator[str]:
    for value in list(vars(module).values()):
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, (type, FunctionType)):
            yield str(value.__module__)


def _user_file(module: ModuleType) -> Path | None:
    """Return the source file of a module, or None for libraries."""
    if module.__name__.partition(".")[0] == _OWN_PACKAGE:
        return None
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    path = Path(file).absolute()
    if any(path.is_relative_to(place) for place in _LIBRARIES):
        return None
    return path


_LIBRARIES = tuple(
    {
        Path(path).absolute()
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)
