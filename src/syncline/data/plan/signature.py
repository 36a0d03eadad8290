"""`signature`: a short text that stands for a plan, the same in every run of the same program on
the same input.

It tells whether a cursor, a cache or a write job belongs to a plan. Covered: kinds of nodes, their
parameters, expressions, the sources' identities, and user functions: their names, their code, their
defaults and arguments, the constants that they close over, and the code of functions of the same
module that they call. Pickles would not do: they differ from run to run in the order of sets and in
the ids of classes. Only `with_state` counts what may change while a program runs or from run to run
without changing the rows: objects that functions close over, and global variables. Not covered:
code of other modules, and where and with how many workers functions run.
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
from syncline.data.columnar.expressions.functions import ClassFunction
from syncline.data.io.sinks.datasink import Datasink
from syncline.data.io.sources.datasource import Datasource
from syncline.data.plan.nodes import Held, HeldBlock, Node, walk

_LENGTH = 24
# What does not change the rows, and what says where they come from in another way.
_NOT_COVERED = frozenset(
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
# A held table is told from others by a few rows at both ends: reading all of it would take as long
# as working with it.
_ROWS_LOOKED_AT = 16
# So much of what an object holds counts: a model of gigabytes is told from another one by its
# beginning.
_MOST_STATE_BYTES = 64 * 1024 * 1024
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...))


def signature(node: Node, *, with_state: bool = False) -> str:
    """A short text that another plan, other data, another order or other functions would change.

    `with_state`: also other objects and globals that functions use, for what must rather be made
    again than be wrong, such as caches.
    """
    order = walk(node)
    numbers = {id(each): number for number, each in enumerate(order)}
    describe = _Description(with_state)
    for each in order:
        describe.text(type(each).__name__, *(numbers[id(part)] for part in each.inputs))
        describe.node(each)
    return describe.hash.hexdigest()[:_LENGTH]


def digest_of(*values: Any) -> str:
    """A short text that stands for values of a program, in the same way: containers by content,
    functions by code, objects by type.
    """
    describe = _Description()
    for value in values:
        describe.value(value)
    return describe.hash.hexdigest()[:_LENGTH]


class _Description:
    """Feeds what it is shown into a hash. Lengths and types go in, too, so that different things
    never look alike.
    """

    def __init__(self, with_state: bool = False) -> None:
        self.hash = hashlib.sha256()
        self._with_state = with_state
        self._seen: dict[int, int] = {}
        # Keeps what was seen alive, so that no other object gets its id.
        self._alive: list[Any] = []

    def text(self, *parts: object) -> None:
        """Texts, each with its length."""
        for part in parts:
            encoded = str(part).encode(errors="surrogatepass")
            self.hash.update(b"%d:" % len(encoded) + encoded)

    def node(self, node: Node) -> None:
        """A node without its inputs."""
        if isinstance(node, Held):
            for block in node.blocks:
                self._held(block)
            return
        self._fields(node)

    def value(self, value: Any, *, may_change: bool = False) -> None:
        """Any value; of those that may change while the program runs only what they are if
        `may_change`.
        """
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
        elif self._known(value):
            return
        elif isinstance(value, list | set | Mapping | np.ndarray) and (
            self._with_state or not may_change
        ):
            self._container(value)
        elif isinstance(value, Expr):
            self._expression(value)
        else:
            self._object(value)

    def _known(self, value: Any) -> bool:
        """Whether a value came before; then only its number is added, so that what refers to itself
        has an end.

        Not for constants: whether equal ones are one object depends on whether Python compiled
        their module or loaded it.
        """
        number = self._seen.setdefault(id(value), len(self._seen))
        if number < len(self._alive):
            self.text("again", number)
            return True
        self._alive.append(value)
        return False

    def _items(self, kind: str, values: Iterable[Any], may_change: bool) -> None:
        listed = list(values)
        self.text(kind, len(listed))
        for each in listed:
            self.value(each, may_change=may_change)

    def _set(self, values: Iterable[Any]) -> None:
        digests = []
        for each in values:
            own = _Description(self._with_state)
            own.value(each)
            digests.append(own.hash.hexdigest())
        self.text("set", *sorted(digests))

    def _container(self, value: Any) -> None:
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

    def _object(self, value: Any) -> None:
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
            # Of objects of the program's and other libraries only what they are.
            self.value(type(value))
            self._state(value)

    def _state(self, value: Any) -> None:
        """What an object holds, as far as it can be pickled, and no more of it than counts."""
        if self._with_state and not isinstance(value, type | types.ModuleType):
            # What cannot be pickled, or is too long, has been fed into the hash as far as it went.
            with suppress(Exception):
                pickle.Pickler(_HashedFile(self.hash), protocol=5).dump(value)

    def _fields(self, value: Any) -> None:
        for each in dataclasses.fields(value):
            if each.name not in _NOT_COVERED:
                self.text(each.name)
                self.value(getattr(value, each.name))

    def _expression(self, expr: Expr) -> None:
        self.text("expression", repr(expr))
        for each in expr.walk():
            if isinstance(each, UDFExpr):
                self.value(each.fn)

    def _function(self, function: types.FunctionType) -> None:
        # A decorator's wrapper is described through what it closes over.
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
        # Without line numbers, so that a comment above changes nothing.
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
            function = (
                inspect.unwrap(getattr(member, "__func__", member))
                if callable(getattr(member, "__func__", member))
                else None
            )
            if isinstance(function, types.FunctionType):
                self.text(name)
                self.value(function)
            elif type(member) in _PLAIN and not name.startswith("__"):
                self.text(name)
                self.value(member)

    def _held(self, block: HeldBlock) -> None:
        self.text(
            "held",
            block.num_rows,
            block.size_bytes,
            block.schema.to_string(show_field_metadata=False),
        )
        self.text(*block.input_files)
        if isinstance(block.value, pa.Table):
            ends = (
                block.value.slice(0, _ROWS_LOOKED_AT),
                block.value.slice(max(0, block.num_rows - _ROWS_LOOKED_AT)),
            )
            for table in ends:
                sink = pa.BufferOutputStream()
                compacted = table.combine_chunks()
                with pa.ipc.new_stream(sink, compacted.schema) as writer:
                    writer.write_table(compacted)
                self.hash.update(sink.getvalue())


class _HashedFile:
    """Where a pickle is written to: it goes into a hash, up to a limit."""

    def __init__(self, hash: hashlib._Hash) -> None:
        self._hash = hash
        self._left = _MOST_STATE_BYTES

    def write(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("that is enough of it")
        self._hash.update(data)


def _names(code: types.CodeType) -> set[str]:
    """The names that a function and those inside it look up."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not assigned yet


def _name(type_: type) -> str:
    # Sources and sinks moved below `data.io`. Their old names stay in signatures, so that cursors,
    # caches and write jobs of earlier versions are still found.
    module = type_.__module__.replace("syncline.data.io.", "syncline.data.")
    return f"{module}.{type_.__qualname__}"
