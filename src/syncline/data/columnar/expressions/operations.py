"""Operators of expressions, and the functions on Arrow arrays and scalars that compute them.

Covered: how each operator is written, Python's operators with Python's meaning (`/` is true
division, `//` and `%` round down, strings concatenate), membership, and functions on lists, maps
and JSON texts that Arrow does not have. Other functions are Arrow's: `run` finds both. Nulls stay
null, and `&` and `|` follow three-valued logic.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from syncline.data.columnar import schemas
from syncline.data.columnar.columns import is_list, is_text
from syncline.records import dataclass

Value: TypeAlias = pa.Array | pa.ChunkedArray | pa.Scalar
Values: TypeAlias = tuple[Value, ...]


class Operation(str, Enum):
    """Operators of `BinaryExpr` and `UnaryExpr`."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    MOD = "mod"
    FLOORDIV = "floordiv"
    GT = "gt"
    LT = "lt"
    GE = "ge"
    LE = "le"
    EQ = "eq"
    NE = "ne"
    AND = "and"
    OR = "or"
    NOT = "not"
    IS_NULL = "is_null"
    IS_NOT_NULL = "is_not_null"
    IN = "in"
    NOT_IN = "not_in"


@dataclass(frozen=True, kw_only=True)
class Operator:
    """Notation and function of one operation."""

    symbol: str
    """Python operator, or name of the method."""
    function: str
    """Function of `run`."""
    strength: int = 0
    """Precedence as in Python, higher binds stronger; weaker operands get parentheses."""
    boolean: bool = False
    """True if the result is boolean."""


# Strength of a name or a call.
ATOM = 8

OPERATORS = {
    Operation.OR: Operator(symbol="|", function="or", strength=2, boolean=True),
    Operation.AND: Operator(symbol="&", function="and", strength=3, boolean=True),
    Operation.GT: Operator(symbol=">", function="greater", strength=1, boolean=True),
    Operation.LT: Operator(symbol="<", function="less", strength=1, boolean=True),
    Operation.GE: Operator(symbol=">=", function="greater_equal", strength=1, boolean=True),
    Operation.LE: Operator(symbol="<=", function="less_equal", strength=1, boolean=True),
    Operation.EQ: Operator(symbol="==", function="equal", strength=1, boolean=True),
    Operation.NE: Operator(symbol="!=", function="not_equal", strength=1, boolean=True),
    Operation.ADD: Operator(symbol="+", function="add", strength=4),
    Operation.SUB: Operator(symbol="-", function="subtract", strength=4),
    Operation.MUL: Operator(symbol="*", function="multiply", strength=5),
    Operation.DIV: Operator(symbol="/", function="divide", strength=5),
    Operation.FLOORDIV: Operator(symbol="//", function="floor_divide", strength=5),
    Operation.MOD: Operator(symbol="%", function="modulo", strength=5),
    Operation.NOT: Operator(symbol="~", function="invert", strength=6, boolean=True),
    Operation.IS_NULL: Operator(symbol="is_null", function="is_null", strength=7, boolean=True),
    Operation.IS_NOT_NULL: Operator(
        symbol="is_not_null", function="is_valid", strength=7, boolean=True
    ),
    Operation.IN: Operator(symbol="is_in", function="is_in", strength=7, boolean=True),
    Operation.NOT_IN: Operator(symbol="not_in", function="not_in", strength=7, boolean=True),
}

# Operators with the same meaning in a file scan, unlike division: scans round integers towards 0.
ARROW_OPERATORS: dict[Operation, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    Operation.ADD: pc.add,
    Operation.SUB: pc.subtract,
    Operation.MUL: pc.multiply,
    Operation.GT: operator.gt,
    Operation.LT: operator.lt,
    Operation.GE: operator.ge,
    Operation.LE: operator.le,
    Operation.EQ: operator.eq,
    Operation.NE: operator.ne,
    Operation.AND: operator.and_,
    Operation.OR: operator.or_,
}


# -- functions


def run(function: str, values: Values, options: Mapping[str, object]) -> Value:
    """Apply a function of this file or of Arrow to columns and scalars.

    Raises:
        TypeError: The function does not accept the types.
        ValueError: The function does not accept the values.
        ZeroDivisionError: An integer is divided by 0.
    """
    values = tuple(_decoded(value) for value in values)
    kernel = OWN.get(function) or getattr(pc, function)
    try:
        return kernel(*values, **options)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise TypeError(
            f"{function} does not take {_types(values)}: cast the columns before; "
            "the schema shows their types"
        ) from error
    except pa.ArrowInvalid as error:
        if "divide by zero" in str(error):
            raise ZeroDivisionError(
                f"{function} divides an integer by 0: make the divisor null or cast it to float "
                "before"
            ) from error
        raise ValueError(f"{function} of {_types(values)}: {error}") from error


def is_known(function: str) -> bool:
    """Return True if `run` finds the function."""
    return function in OWN or function in _arrow_functions()


@functools.cache
def _arrow_functions() -> frozenset[str]:
    return frozenset(pc.list_functions())


def is_arrow(function: str) -> bool:
    """Return True for an Arrow function, which a file scan can run too."""
    return function not in OWN


def one_chunk(value: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the column as one array."""
    if not isinstance(value, pa.ChunkedArray):
        return value
    return value.chunk(0) if value.num_chunks == 1 else value.combine_chunks()


def _decoded(value: Value) -> Value:
    if not pa.types.is_dictionary(value.type):
        return value
    return value.cast(value.type.value_type)


def _types(values: Values) -> str:
    return " and ".join(str(value.type) for value in values)


def _add(left: Value, right: Value) -> Value:
    if is_text(left.type) and is_text(right.type):
        return pc.binary_join_element_wise(left, right, "")
    return pc.add(left, right)


def _divide(left: Value, right: Value) -> Value:
    if pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
        left = left.cast(pa.float64(), safe=False)
    return pc.divide(left, right)


def _floor_divide(left: Value, right: Value) -> Value:
    quotient = pc.divide(left, right)
    if not pa.types.is_integer(quotient.type):
        return pc.floor(quotient)
    # Arrow rounds integers towards zero.
    remainder = pc.subtract(left, pc.multiply(quotient, right))
    return pc.subtract(quotient, _wrong_side(remainder, right).cast(quotient.type))


def _modulo(left: Value, right: Value) -> Value:
    quotient = pc.divide(left, right)
    if not pa.types.is_integer(quotient.type):
        return pc.subtract(left, pc.multiply(pc.floor(quotient), right))
    remainder = pc.subtract(left, pc.multiply(quotient, right))
    return pc.if_else(_wrong_side(remainder, right), pc.add(remainder, right), remainder)


def _wrong_side(remainder: Value, divisor: Value) -> Value:
    """Return True where a remainder is not 0 and its sign differs from the divisor's."""
    return pc.and_(
        pc.not_equal(remainder, 0), pc.not_equal(pc.less(remainder, 0), pc.less(divisor, 0))
    )


def _logical(kernel: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    def combine(left: Value, right: Value) -> Value:
        return kernel(*_in_equal_chunks(_as_truth(left), _as_truth(right)))

    return combine


def _in_equal_chunks(left: Value, right: Value) -> tuple[Value, Value]:
    """Return columns of truth values in chunks of equal lengths.

    pyarrow 22 loses nulls of `and_kleene` and `or_kleene` otherwise; 26 does not.
    """
    if len({_chunk_lengths(each) for each in (left, right)} - {None}) < 2:
        return left, right
    return _whole(left), _whole(right)


def _chunk_lengths(value: Value) -> tuple[int, ...] | None:
    if isinstance(value, pa.ChunkedArray):
        return tuple(map(len, value.chunks))
    return (len(value),) if isinstance(value, pa.Array) else None


def _whole(value: Value) -> Value:
    return value.combine_chunks() if isinstance(value, pa.ChunkedArray) else value


def _as_truth(value: Value) -> Value:
    """Cast a column of nulls to booleans."""
    return value.cast(pa.bool_()) if pa.types.is_null(value.type) else value


def _is_in(value: Value, allowed: pa.ListScalar) -> Value:
    found = allowed.values
    common = schemas.joined_type(value.type, found.type)
    if common is None:
        raise TypeError(
            f"{value.type} cannot be compared with values of type {found.type}: "
            "cast the column, or pass values of its type"
        )
    return pc.is_in(value.cast(common), value_set=found.cast(common))


def _not_in(value: Value, allowed: pa.ListScalar) -> Value:
    return pc.invert(_is_in(value, allowed))


@dataclass(frozen=True, kw_only=True)
class _Lists:
    """Parts of a list column: list i is `elements[starts[i]:ends[i]]`; null lists are empty."""

    elements: pa.Array
    starts: np.ndarray
    ends: np.ndarray
    missing: np.ndarray | None

    @property
    def lengths(self) -> np.ndarray:
        """Elements per list, int64 `(n,)`."""
        lengths: np.ndarray = self.ends - self.starts
        return lengths

    def gathered(self) -> pa.Array:
        """Return the elements of all lists in order, without those outside of lists or under null
        lists.
        """
        lengths = self.lengths
        return self.elements.take(
            pa.array(
                np.repeat(self.starts - (np.cumsum(lengths) - lengths), lengths)
                + np.arange(lengths.sum())
            )
        )


def _lists(value: Value) -> _Lists:
    if not is_list(value.type) and not pa.types.is_map(value.type):
        raise TypeError(f"this takes lists, not {value.type}")
    array = one_chunk(value)
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    bounds = array.offsets.to_numpy().astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:]
    missing = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if missing is not None:
        ends = np.where(missing, starts, ends)
    return _Lists(elements=array.values, starts=starts, ends=ends, missing=missing)


def _rebuilt(
    elements: pa.Array, lengths: np.ndarray, missing: np.ndarray | None, *, large: bool = False
) -> pa.Array:
    """Build a list column from the elements of all lists in order, their lengths, and the mask of
    null lists.
    """
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    mask = None if missing is None else pa.array(missing)
    if large:
        return pa.LargeListArray.from_arrays(pa.array(bounds, pa.int64()), elements, mask=mask)
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), elements, mask=mask)


def _list_get(value: Value, *, index: int) -> Value:
    lists = _lists(value)
    positions = lists.starts + index if index >= 0 else lists.ends + index
    outside = (positions < lists.starts) | (positions >= lists.ends)
    return lists.elements.take(pa.array(np.where(outside, 0, positions), pa.int64(), mask=outside))


def _list_slice(value: Value, *, start: int | None, stop: int | None, step: int | None) -> Value:
    lists = _lists(value)
    pieces = [
        range(first, last)[start:stop:step]
        for first, last in zip(lists.starts.tolist(), lists.ends.tolist(), strict=True)
    ]
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    positions = np.fromiter(
        (position for piece in pieces for position in piece), np.int64, int(lengths.sum())
    )
    return _rebuilt(
        lists.elements.take(pa.array(positions)),
        lengths,
        lists.missing,
        large=pa.types.is_large_list(value.type),
    )


def _list_sort(value: Value, *, order: str, null_placement: str) -> Value:
    lists = _lists(value)
    elements, lengths = lists.gathered(), lists.lengths
    # The position of nulls is a separate key, since its argument differs between Arrow versions.
    table = pa.table(
        {
            "row": np.repeat(np.arange(len(lengths)), lengths),
            "null": elements.is_null(),
            "element": elements,
        }
    )
    nulls = "ascending" if null_placement == "at_end" else "descending"
    places = pc.sort_indices(
        table, sort_keys=[("row", "ascending"), ("null", nulls), ("element", order)]
    )
    return _rebuilt(
        elements.take(places), lengths, lists.missing, large=pa.types.is_large_list(value.type)
    )


def _list_flatten(value: Value) -> Value:
    outer = _lists(value)
    if not is_list(outer.elements.type):
        raise TypeError(f"this takes lists of lists, not {value.type}")
    inner = _lists(outer.gathered())
    rows = np.repeat(np.arange(len(outer.starts)), outer.lengths)
    lengths = np.bincount(rows, weights=inner.lengths, minlength=len(outer.starts)).astype(np.int64)
    return _rebuilt(
        inner.gathered(), lengths, outer.missing, large=pa.types.is_large_list(value.type)
    )


def _json_part(value: Value, *, path: Sequence[str | int]) -> Value:
    if not is_text(value.type) and not pa.types.is_null(value.type):
        raise TypeError(f"this takes text, not {value.type}")
    if isinstance(value, pa.Scalar):
        return pa.scalar(_part_of_json(value.as_py(), path), pa.string())
    return pa.array([_part_of_json(text, path) for text in value.to_pylist()], pa.string())


def _part_of_json(text: str | None, path: Sequence[str | int]) -> str | None:
    """Return the part of a JSON document at a path; None if there is none."""
    try:
        part: Any = None if text is None else json.loads(text)
        for step in path:
            if not isinstance(part, dict if isinstance(step, str) else list):
                return None
            part = part[step]  # type: ignore[index]  # the type fits the step
    except (ValueError, LookupError):
        return None
    return part if part is None or isinstance(part, str) else json.dumps(part)


def _list_to_variable(value: Value) -> Value:
    if not is_list(value.type):
        raise TypeError(f"this takes lists, not {value.type}")
    return (
        value.cast(pa.list_(value.type.value_type))
        if pa.types.is_fixed_size_list(value.type)
        else value
    )


def _map_keys(value: Value) -> Value:
    return _map_part(value, lambda array: array.keys)


def _map_values(value: Value) -> Value:
    return _map_part(value, lambda array: array.items)


def _map_part(value: Value, part: Callable[[pa.MapArray], pa.Array]) -> Value:
    if not pa.types.is_map(value.type):
        raise TypeError(f"this takes maps, not {value.type}")
    entries = replace(_lists(value), elements=part(one_chunk(value)))
    return _rebuilt(entries.gathered(), entries.lengths, entries.missing)


# Functions of this library; some names are those of Arrow functions.
OWN: dict[str, Callable[..., Value]] = {
    "add": _add,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "modulo": _modulo,
    "and": _logical(pc.and_kleene),
    "or": _logical(pc.or_kleene),
    "is_in": _is_in,
    "not_in": _not_in,
    "list_get": _list_get,
    "list_slice": _list_slice,
    "list_sort": _list_sort,
    "list_flatten": _list_flatten,
    "list_to_variable": _list_to_variable,
    "json_part": _json_part,
    "map_keys": _map_keys,
    "map_values": _map_values,
}
