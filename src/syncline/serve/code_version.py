"""`code_version`: a digest of a deployment's code and arguments that is equal in every process.

Code that is pickled by value (from the main program or a notebook) is part of the pickle. For code
that is pickled by reference, the digest includes the source files of all modules that the
deployment's module uses, except installed libraries. Not covered: modules that are imported inside
functions.
"""

from __future__ import annotations

import hashlib
import pickletools
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType

from cloudpickle import cloudpickle

_OWN_PACKAGE = __name__.partition(".")[0]
_NEW_OBJECTS = {"EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET", "REDUCE", "NEWOBJ", "NEWOBJ_EX"}
"""Pickle opcodes that create mutable objects, whose identity matters."""
_UNORDERED = {"ADDITEMS", "FROZENSET"}
_REFERENCES = {"GET", "BINGET", "LONG_BINGET"}
_WITHOUT_EFFECT = {"PROTO", "FRAME", "STOP"}


def code_version(func_or_class: Callable[..., object], *pickles: bytes) -> str:
    """Return the digest of a class or function and of pickles.

    The pickles are those of the class or function, its arguments, and its deployment actors.
    """
    digest = hashlib.blake2b(digest_size=16)
    known: dict[str, str] = {}
    for data in pickles:
        digest.update(_content_digest(data, known))
    for path in sorted(_source_files(func_or_class)):
        try:
            digest.update(hashlib.blake2b(path.read_bytes()).digest())
        except OSError:  # the file was deleted or moved after its import
            continue
    return digest.hexdigest()


def _content_digest(data: bytes, known: dict[str, str]) -> bytes:
    """Return a digest of the pickled value that is equal for equal values.

    The pickles of equal values may differ in three ways: equal strings and tuples may be one object
    or several (for example in a compiled module and one read from the cache), the order of sets
    differs between processes, and cloudpickle gives classes random ids. This function therefore
    executes the opcodes on digests instead of values.
    """
    class_ids = getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})
    stack: list[bytes] = []
    marks: list[int] = []
    memo: list[bytes] = []
    dropped: list[bytes] = []
    objects = 0
    for code, argument, _ in pickletools.genops(data):
        name = code.name
        if name == "MARK":
            marks.append(len(stack))
        elif name == "MEMOIZE":
            memo.append(stack[-1])
        elif name in _REFERENCES:
            stack.append(memo[int(argument or 0)])
        elif name not in _WITHOUT_EFFECT:
            taken = code.stack_before
            count = len(taken)
            if pickletools.markobject in taken:
                count = len(stack) - marks.pop() + taken.index(pickletools.markobject)
            inputs = stack[len(stack) - count :]
            del stack[len(stack) - count :]
            if not code.stack_after:
                dropped += inputs
                continue
            if name in _UNORDERED:
                inputs.sort()
            if isinstance(argument, str) and argument in class_ids:
                argument = known.setdefault(argument, f"class {len(known)}")
            if name in _NEW_OBJECTS:
                objects += 1
                inputs.append(b"%d" % objects)
            stack.append(_digest(name, argument, *inputs))
    return _digest(*dropped, *stack)


def _digest(*parts: object) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = part if isinstance(part, (bytes, bytearray)) else repr(part).encode()
        digest.update(b"%d " % len(content))
        digest.update(content)
    return digest.digest()


def _source_files(func_or_class: Callable[..., object]) -> set[Path]:
    """Return the files of all user modules that the module of `func_or_class` uses."""
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
