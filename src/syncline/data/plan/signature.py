"""Signatures: short texts that identify a plan, equal in every run of the same program on the same
input.

A signature tells whether a cursor, a cache or a write job belongs to a plan. Covered: node types
and parameters, expressions, identities of sources, and user functions: name, code, defaults,
arguments, constants in their closures, and the code of functions of the same module that they call.
Pickles are not usable: they differ between runs in the order of sets and in the ids of classes.
Only `with_state` covers values that may change during or between runs without a change of the rows:
objects in closures, and global variables. Not covered: code of other modules, and where and with
how many workers functions run.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import pickle
import types
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from syncline.data.columnar.aggregate import AggregateFn
from syncline.data.columnar.expressions import Expr, UDFExpr
from syncline.data.columnar.expressions.udf import ClassFunction
from syncline.data.io.sinks.datasink import Datasink
from syncline.data.io.sources.datasource import Datasource
from syncline.data.plan.nodes import Held, HeldBlock, Node, walk

_SIGNATURE_LENGTH = 24
# Fields that do not change the rows, and inputs, which are covered separately.
_IGNORED_FIELDS = frozenset(
    {
        "input",
        "parts",
        "resources",
        "resources_fn",
        "compute",
        "concurrency",
        "slot",
        "timeout_s",
        "path",
    }
)
# Rows at both ends that identify an in-memory table: hashing all of it would be as slow as
# processing it.
_SAMPLED_ROWS = 16
# Maximum size of the state of an object that is hashed, so that huge models stay cheap.
_MAX_STATE_BYTES = 64 * 1024 * 1024
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))


def signature(node: Node, *, with_state: bool = False) -> str:
    """Return a short text that changes with the plan, its data, its order and its functions.

    `with_state` also covers other objects and globals that functions use, for uses that need to
    detect every change, such as caches.
    """
    order = walk(node)
    numbers = {id(each): number for number, each in enumerate(order)}
    hasher = _Hasher(with_state)
    for each in order:
        hasher.text(type(each).__name__, *(numbers[id(part)] for part in each.inputs))
        hasher.node(each)
    return hasher.hash.hexdigest()[:_SIGNATURE_LENGTH]


def digest_of(*values: object) -> str:
    """Return a short text that identifies values: containers by content, functions by code, objects
    by type.
    """
    hasher = _Hasher()
    for value in values:
        hasher.value(value)
    return hasher.hash.hexdigest()[:_SIGNATURE_LENGTH]


class _Hasher:
    """Hashes values with their lengths and types, so that different values never collide."""

    def __init__(self, with_state: bool = False) -> None:
        self.hash = hashlib.sha256()
        self._with_state = with_state
        self._seen: dict[int, int] = {}
        # Keeps the values alive, so that no other object gets their ids.
        self._alive: list[object] = []

    def text(self, *parts: object) -> None:
        """Hash texts, each with its length."""
        for part in parts:
            encoded = str(part).encode(errors="surrogatepass")
            self.hash.update(b"%d:" % len(encoded) + encoded)

    def node(self, node: Node) -> None:
        """Hash a node without its inputs."""
        if isinstance(node, Held):
            for block in node.blocks:
                self._held_block(block)
            return
        self._fields(node)

    def value(self, value: object, *, may_change: bool = False) -> None:
        """Hash any value; only its type if it is mutable and `may_change` is set."""
        kind = type(value)
        if kind in _PLAIN or isinstance(
            value, enum.Enum | np.generic | np.dtype | pa.DataType | pa.Schema
        ):
            self.text(kind.__name__, repr(value))
        elif isinstance(value, tuple):
            self._items("tuple", value, may_change)
        elif isinstance(value, frozenset):
            self._set(value)
        elif isinstance(value, types.CodeType):
            self._code(value)
        elif self._seen_before(value):
            return
        elif isinstance(value, list | set | Mapping | np.ndarray) and (
            self._with_state or not may_change
        ):
            self._container(value)
        elif isinstance(value, Expr):
            self._expression(value)
        else:
            self._object(value)

    def _seen_before(self, value: object) -> bool:
        """Hash only the number of a value that was seen before, so that cycles end.

        Not for constants: Python may or may not share equal constants of a module.
        """
        number = self._seen.setdefault(id(value), len(self._seen))
        if number < len(self._alive):
            self.text("again", number)
            return True
        self._alive.append(value)
        return False

    def _items(self, kind: str, values: Iterable[object], may_change: bool) -> None:
        listed = list(values)
        self.text(kind, len(listed))
        for each in listed:
            self.value(each, may_change=may_change)

    def _set(self, values: Iterable[object]) -> None:
        digests = []
        for each in values:
            own = _Hasher(self._with_state)
            own.value(each)
            digests.append(own.hash.hexdigest())
        self.text("set", *sorted(digests))

    def _container(
        self, value: list[object] | set[object] | Mapping[Any, Any] | np.ndarray
    ) -> None:
        if isinstance(value, np.ndarray):
            self.text("ndarray", value.dtype, value.shape)
            if value.dtype.hasobject:
                self._items("objects", value.ravel().tolist(), False)
            else:
                self.hash.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, set):
            self._set(value)
        elif isinstance(value, list):
            self._items("list", value, False)
        else:
            self._items(
                type(value).__name__, (part for item in value.items() for part in item), False
            )

    def _object(self, value: object) -> None:
        if isinstance(value, functools.partial):
            self._items("partial", (value.func, value.args, value.keywords), False)
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, types.MethodType):
            self.text("method", _name(type(value.__self__)))
            self.value(value.__func__)
            self._state(value.__self__)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, Datasource):
            self.text(_name(type(value)), value.identity())
        elif isinstance(value, Datasink):
            self.text(_name(type(value)), value.get_name())
        elif isinstance(value, AggregateFn):
            self.value(type(value))
            self._items(
                "state", (part for item in sorted(vars(value).items()) for part in item), False
            )
        elif isinstance(value, ClassFunction):
            self._items("class function", (value.cls, value.args, value.kwargs), False)
        elif dataclasses.is_dataclass(value) and type(value).__module__.startswith(
            "syncline.data."
        ):
            self.text(_name(type(value)))
            self._fields(value)
        else:
            # Of objects of programs and other libraries only the type.
            self.value(type(value))
            self._state(value)

    def _state(self, value: object) -> None:
        """Hash the pickled state of an object, up to a limit."""
        if self._with_state and not isinstance(value, type | types.ModuleType):
            # The part before an unpicklable value, or before the limit, is hashed already.
            with suppress(Exception):
                pickle.Pickler(_HashWriter(self.hash), protocol=5).dump(value)

    def _fields(self, value: Any) -> None:
        for each in dataclasses.fields(value):
            if each.name not in _IGNORED_FIELDS:
                self.text(each.name)
                self.value(getattr(value, each.name))

    def _expression(self, expr: Expr) -> None:
        self.text("expression", repr(expr))
        for each in expr.walk():
            if isinstance(each, UDFExpr):
                self.value(each.fn)

    def _function(self, function: types.FunctionType) -> None:
        # The function that a decorator wraps is part of the wrapper's closure.
        self.text("function", function.__module__, function.__qualname__)
        self.value(function.__code__)
        self.value(function.__defaults__, may_change=True)
        self._items("keyword defaults", sorted((function.__kwdefaults__ or {}).items()), True)
        self._items("closure", (_content(cell) for cell in function.__closure__ or ()), True)
        for name in sorted(_names(function.__code__)):
            used = function.__globals__.get(name)
            if isinstance(used, types.FunctionType | type):
                if used.__module__ == function.__module__:
                    self.value(used)
            elif (
                self._with_state
                and name in function.__globals__
                and not isinstance(used, types.ModuleType)
            ):
                self.text("global", name)
                self.value(used)

    def _code(self, code: types.CodeType) -> None:
        # Without line numbers, so that a comment above has no effect.
        self.text(
            "code",
            code.co_code.hex(),
            code.co_names,
            code.co_varnames,
            code.co_freevars,
            code.co_argcount,
            code.co_flags,
        )
        self._items("constants", code.co_consts, False)

    def _class(self, class_: type) -> None:
        self.text("class", _name(class_))
        if class_.__module__ in ("builtins", "numpy", "torch") or not isinstance(
            class_.__dict__, Mapping
        ):
            return
        for base in class_.__bases__:
            self.text("base", _name(base))
            if base.__module__ == class_.__module__:
                self.value(base)
        for name, member in sorted(class_.__dict__.items()):
            unbound = getattr(member, "__func__", member)
            function = inspect.unwrap(unbound) if callable(unbound) else None
            if isinstance(function, types.FunctionType):
                self.text(name)
                self.value(function)
            elif type(member) in _PLAIN and not name.startswith("__"):
                self.text(name)
                self.value(member)

    def _held_block(self, block: HeldBlock) -> None:
        self.text(
            "held",
            block.num_rows,
            block.size_bytes,
            block.schema.to_string(show_field_metadata=False),
        )
        self.text(*block.input_files)
        if isinstance(block.value, pa.Table):
            ends = (
                block.value.slice(0, _SAMPLED_ROWS),
                block.value.slice(max(0, block.num_rows - _SAMPLED_ROWS)),
            )
            for table in ends:
                sink = pa.BufferOutputStream()
                compacted = table.combine_chunks()
                with pa.ipc.new_stream(sink, compacted.schema) as writer:
                    writer.write_table(compacted)
                self.hash.update(sink.getvalue())


class _HashWriter:
    """File that hashes its content, up to a limit."""

    def __init__(self, hash: hashlib._Hash) -> None:
        self._hash = hash
        self._left = _MAX_STATE_BYTES

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("the state is larger than the limit")
        self._hash.update(data)


def _names(code: types.CodeType) -> set[str]:
    """Return the names that a function and its inner functions look up."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not assigned yet


def _name(type_: type) -> str:
    # Keep the module names of earlier versions, so that their cursors, caches and write jobs are
    # still found.
    module = type_.__module__.replace("syncline.data.io.", "syncline.data.")
    module = module.replace("syncline.data.columnar.", "syncline.data.")
    return f"{module}.{type_.__qualname__}"
