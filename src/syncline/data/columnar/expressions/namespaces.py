"""Methods of expressions on one kind of type: the namespaces `.str`, `.list`, `.arr`, `.struct`,
`.map` and `.dt`, and functions on numbers.

Most methods are a row of a table: the name, the function (Arrow's, or one of `operations`), the
docstring, and a lambda from the method's arguments to the function's options.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, cast, overload

# The list namespace has a method named `slice`.
_Slice: TypeAlias = slice

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Computable(Protocol[E_co]):
    """The part of `Expr` that functions need."""

    def compute(self, function: str, *arguments: object, **options: object) -> E_co:
        """Apply a function with options to this value and `arguments`."""


class _Method(Protocol):
    """A method of a namespace as type checkers see it."""

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., object]: ...

    @overload
    def __get__(self, instance: Namespace[E], owner: type) -> Callable[..., E]: ...


class _NumberMethod(Protocol):
    """A method of `ExprMethods` as type checkers see it."""

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[..., object]: ...

    @overload
    def __get__(self, instance: Computable[E], owner: type) -> Callable[[], E]: ...


def _method(function: str, doc: str, options: Callable[..., dict[str, object]] = dict) -> _Method:
    """Return a method that runs `function` on the namespace's expression, with the options that
    `options` makes of the arguments.
    """
    arguments = inspect.signature(options) if options is not dict else inspect.Signature()

    def method(self: Namespace[E], *args: object, **kwargs: object) -> E:
        try:
            bound = arguments.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{method.__qualname__}{arguments}: {error}") from None
        return self._expr.compute(function, **options(*bound.args, **bound.kwargs))

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [itself, *arguments.parameters.values()]
    method.__signature__ = arguments.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation="FunctionExpr"
    )
    method.__doc__ = doc
    return cast("_Method", method)


class Namespace(Generic[E]):
    """Functions on one kind of type, for one expression."""

    def __init__(self, expr: Computable[E]) -> None:
        self._expr = expr

    def __init_subclass__(cls) -> None:
        for name, member in vars(cls).items():
            if inspect.isfunction(member) and member.__name__ == "method":
                member.__name__, member.__qualname__ = name, f"{cls.__name__}.{name}"


def _pattern(pattern: str, *, ignore_case: bool = False) -> dict[str, object]:
    return {"pattern": pattern, "ignore_case": ignore_case}


def _replacement(
    pattern: str, replacement: str, *, max_replacements: int | None = None
) -> dict[str, object]:
    return {"pattern": pattern, "replacement": replacement, "max_replacements": max_replacements}


def _separator(
    pattern: str, *, max_splits: int | None = None, reverse: bool = False
) -> dict[str, object]:
    return {"pattern": pattern, "max_splits": max_splits, "reverse": reverse}


def _unit(unit: str) -> dict[str, object]:
    return {"multiple": 1, "unit": unit}


def _padding(width: int, padding: str = " ") -> dict[str, object]:
    return {"width": width, "padding": padding}


# A step of a path of jq: `.name`, `."any name"`, `[0]`, `.[0]` or `["name"]`.
_JQ_STEP = re.compile(
    r"""\.?\[\s*(?P<index>-?\d+)\s*\]|\.?\[\s*"(?P<key>[^"]*)"\s*\]"""
    r"""|\."(?P<quoted>[^"]*)"|\.(?P<name>[A-Za-z_]\w*)"""
)


def _json_path(filter_expr: object) -> tuple[str | int, ...]:
    """Return the keys and indices of a path of jq."""
    if not isinstance(filter_expr, str):
        raise TypeError(f"filter_expr={filter_expr!r} is not a string: write a path such as '.a'")
    text = filter_expr.strip()
    steps: list[str | int] = []
    position = 1 if text == "." else 0
    while position < len(text):
        step = _JQ_STEP.match(text, position)
        if step is None or not text.startswith("."):
            break
        index, names = step["index"], (step["key"], step["quoted"], step["name"])
        steps.append(
            int(index) if index is not None else next(name for name in names if name is not None)
        )
        position = step.end()
    if not text or position < len(text):
        raise ValueError(
            f"filter_expr={filter_expr!r} is not a path: write steps such as '.user.name', "
            "'.items[0]' or '.[1]'"
        )
    return tuple(steps)


class StringNamespace(Namespace[E]):
    """Functions on text: `col("name").str.upper()`. Positions and lengths count characters, not
    bytes, unless stated.
    """

    len = _method("utf8_length", "Return the number of characters.")
    byte_len = _method("binary_length", "Return the number of bytes in UTF-8.")

    upper = _method("utf8_upper", "Convert to upper case.")
    lower = _method("utf8_lower", "Convert to lower case.")
    capitalize = _method(
        "utf8_capitalize", "Convert the first letter to upper case and the others to lower case."
    )
    title = _method(
        "utf8_title",
        "Convert the first letter of each word to upper case and the others to lower case.",
    )
    swapcase = _method("utf8_swapcase", "Swap upper and lower case.")

    is_alpha = _method("utf8_is_alpha", "Return True for letters only, at least one.")
    is_alnum = _method("utf8_is_alnum", "Return True for letters and digits only, at least one.")
    is_digit = _method("utf8_is_digit", "Return True for digits only, at least one.")
    is_decimal = _method("utf8_is_decimal", "Return True for decimal digits only, at least one.")
    is_numeric = _method(
        "utf8_is_numeric", "Return True for numeric characters only, at least one."
    )
    is_space = _method("utf8_is_space", "Return True for whitespace only, at least one character.")
    is_lower = _method("utf8_is_lower", "Return True if all letters are lower case, at least one.")
    is_upper = _method("utf8_is_upper", "Return True if all letters are upper case, at least one.")
    is_title = _method(
        "utf8_is_title", "Return True if exactly the first letter of each word is upper case."
    )
    is_printable = _method("utf8_is_printable", "Return True if every character is printable.")
    is_ascii = _method("string_is_ascii", "Return True if every character is ASCII.")

    starts_with = _method("starts_with", "Return True if the text starts with `pattern`.", _pattern)
    ends_with = _method("ends_with", "Return True if the text ends with `pattern`.", _pattern)
    contains = _method("match_substring", "Return True if the text contains `pattern`.", _pattern)
    match = _method(
        "match_like",
        "Return True if the text matches `pattern`: % matches any text, _ any character.",
        _pattern,
    )
    match_regex = _method(
        "match_substring_regex",
        "Return True if the text contains a match of the regular expression.",
        _pattern,
    )
    find = _method(
        "find_substring",
        "Return the byte position of the first `pattern`, -1 without one.",
        _pattern,
    )
    find_regex = _method(
        "find_substring_regex",
        "Return the byte position of the first match of the regular expression, -1 without one.",
        _pattern,
    )
    count = _method("count_substring", "Count `pattern`, without overlaps.", _pattern)
    count_regex = _method(
        "count_substring_regex",
        "Count the matches of the regular expression, without overlaps.",
        _pattern,
    )

    reverse = _method("utf8_reverse", "Reverse the characters.")
    slice = _method(
        "utf8_slice_codeunits",
        "Return the characters from `start` up to `stop`; negative positions count from the end.",
        lambda start, stop=None, step=1: {"start": start, "stop": stop, "step": step},
    )
    replace = _method(
        "replace_substring",
        "Replace `pattern` by `replacement`, at most `max_replacements` times.",
        _replacement,
    )
    replace_regex = _method(
        "replace_substring_regex",
        r"Replace matches of the regular expression; \1 in `replacement` is the first group.",
        _replacement,
    )
    replace_slice = _method(
        "utf8_replace_slice",
        "Replace the characters from `start` up to `stop`.",
        lambda start, stop, replacement: {"start": start, "stop": stop, "replacement": replacement},
    )
    split = _method(
        "split_pattern",
        "Split at `pattern`, at most `max_splits` times; with `reverse` from the end.",
        _separator,
    )
    split_regex = _method(
        "split_pattern_regex", "Split at matches of the regular expression.", _separator
    )
    split_whitespace = _method(
        "utf8_split_whitespace",
        "Split at whitespace.",
        lambda *, max_splits=None, reverse=False: {"max_splits": max_splits, "reverse": reverse},
    )
    extract = _method(
        "extract_regex",
        "Return a struct with a field per named group, `(?P<name>...)`; null without a match.",
        lambda pattern: {"pattern": pattern},
    )

    center = _method(
        "utf8_center",
        "Center the text in `width` characters, filled with `padding`; longer text stays.",
        _padding,
    )
    lpad = _method(
        "utf8_lpad",
        "Align the text right in `width` characters, filled with `padding`; longer text stays.",
        _padding,
    )
    rpad = _method(
        "utf8_rpad",
        "Align the text left in `width` characters, filled with `padding`; longer text stays.",
        _padding,
    )

    def pad(
        self, width: int, fillchar: str = " ", side: Literal["left", "right", "both"] = "right"
    ) -> E:
        """Fill the text with `fillchar` up to `width` characters on one side or on both; longer
        text stays.
        """
        functions = {"right": "utf8_rpad", "left": "utf8_lpad", "both": "utf8_center"}
        if side not in functions:
            raise ValueError(f"side={side!r} is not known: choose 'left', 'right' or 'both'")
        return self._expr.compute(functions[side], width=width, padding=fillchar)

    def strip(self, characters: str | None = None) -> E:
        """Remove whitespace, or any of `characters`, from both ends."""
        return self._trimmed("utf8_trim", characters)

    def lstrip(self, characters: str | None = None) -> E:
        """Remove whitespace, or any of `characters`, from the start."""
        return self._trimmed("utf8_ltrim", characters)

    def rstrip(self, characters: str | None = None) -> E:
        """Remove whitespace, or any of `characters`, from the end."""
        return self._trimmed("utf8_rtrim", characters)

    def repeat(self, n: object) -> E:
        """Repeat the text `n` times; `n` may be an expression."""
        return self._expr.compute("binary_repeat", n)

    def jq(self, filter_expr: str) -> E:
        """Return the part of a JSON document at a path of jq such as `.user.name`, `.items[0]` or
        `.[1]`. Strings are returned as they are, other values as JSON; null if the text is not
        valid JSON or the path does not exist.

        Raises:
            ValueError: `filter_expr` is not a path; pipes and functions of jq are not supported.
        """
        return self._expr.compute("json_part", path=_json_path(filter_expr))

    def _trimmed(self, function: str, characters: str | None) -> E:
        if characters is None:
            return self._expr.compute(f"{function}_whitespace")
        return self._expr.compute(function, characters=characters)


class ListNamespace(Namespace[E]):
    """Functions on lists: `col("items").list.len()`, `col("items").list[0]`,
    `col("items").list[1:3]`.
    """

    len = _method("list_value_length", "Return the number of elements.")
    get = _method(
        "list_get",
        "Return the element at `index`, from the end if negative; null if the list is too short.",
        lambda index: {"index": index},
    )
    slice = _method(
        "list_slice",
        "Return a slice as Python does, with negative positions and steps.",
        lambda start=None, stop=None, step=None: {"start": start, "stop": stop, "step": step},
    )
    flatten = _method("list_flatten", "Flatten lists of lists by one level.")

    def sort(
        self,
        order: Literal["ascending", "descending"] = "ascending",
        null_placement: Literal["at_start", "at_end"] = "at_end",
    ) -> E:
        """Sort the elements of each list, nulls first or last."""
        if order not in ("ascending", "descending"):
            raise ValueError(f"order={order!r} is not known: choose 'ascending' or 'descending'")
        if null_placement not in ("at_start", "at_end"):
            raise ValueError(
                f"null_placement={null_placement!r} is not known: choose 'at_start' or 'at_end'"
            )
        return self._expr.compute("list_sort", order=order, null_placement=null_placement)

    def __getitem__(self, key: int | _Slice) -> E:
        """Return one element as `get`, or a slice as `slice`."""
        if isinstance(key, int):
            return self.get(key)
        if not isinstance(key, _Slice):
            raise TypeError(f"a list index is an integer or a slice, not {key!r}")
        return self.slice(key.start, key.stop, key.step)


class ArrayNamespace(Namespace[E]):
    """Functions on lists of fixed size: `col("embedding").arr.to_list()`."""

    to_list = _method("list_to_variable", "Convert to lists of any length.")


class StructNamespace(Namespace[E]):
    """Fields of structs: `col("user").struct["age"]`, or `struct[0]` for the first."""

    field = _method(
        "struct_field",
        "Return the field of this name.",
        lambda field_name: {"indices": [field_name]},
    )
    field_by_index = _method(
        "struct_field",
        "Return the field at this position, from 0.",
        lambda index: {"indices": [index]},
    )

    def __getitem__(self, key: str | int) -> E:
        """Return the field with this name or position."""
        if isinstance(key, str | int):
            return self._expr.compute("struct_field", indices=[key])
        raise TypeError(f"a struct index is a field's name or position, not {key!r}")


class MapNamespace(Namespace[E]):
    """Functions on maps: `col("headers").map.keys()`."""

    keys = _method("map_keys", "Return a list of the keys.")
    values = _method("map_values", "Return a list of the values, in the order of the keys.")


class DatetimeNamespace(Namespace[E]):
    """Functions on dates and timestamps: `col("at").dt.year()`."""

    year = _method("year", "Return the year.")
    month = _method("month", "Return the month, from 1.")
    day = _method("day", "Return the day of the month, from 1.")
    hour = _method("hour", "Return the hour, from 0.")
    minute = _method("minute", "Return the minute, from 0.")
    second = _method("second", "Return the second, from 0, without its fraction.")
    strftime = _method(
        "strftime", "Format as text with a pattern such as %Y-%m-%d.", lambda fmt: {"format": fmt}
    )
    ceil = _method("ceil_temporal", "Round up to a `unit` such as 'hour' or 'day'.", _unit)
    floor = _method("floor_temporal", "Round down to a `unit` such as 'hour' or 'day'.", _unit)
    round = _method("round_temporal", "Round to the nearest `unit` such as 'hour' or 'day'.", _unit)


def _function(function: str, doc: str) -> _NumberMethod:
    def method(self: Computable[E]) -> E:
        return self.compute(function)

    method.__doc__ = doc
    return cast("_NumberMethod", method)


class ExprMethods:
    """Methods of `Expr` on numbers, and its namespaces."""

    abs = _function("abs_checked", "Return the absolute value.")
    negate = _function("negate_checked", "Return the value with the opposite sign.")
    sign = _function("sign", "Return -1, 0 or 1.")
    ceil = _function("ceil", "Round up to an integer.")
    floor = _function("floor", "Round down to an integer.")
    round = _function(
        "round", "Round to the nearest integer; halves to the even one, as in Python."
    )
    trunc = _function("trunc", "Round towards zero to an integer.")
    ln = _function("ln", "Return the natural logarithm.")
    log10 = _function("log10", "Return the logarithm to base 10.")
    log2 = _function("log2", "Return the logarithm to base 2.")
    exp = _function("exp", "Return e to the power of the value.")
    sin = _function("sin", "Return the sine of an angle in radians.")
    cos = _function("cos", "Return the cosine of an angle in radians.")
    tan = _function("tan", "Return the tangent of an angle in radians.")
    asin = _function("asin", "Return the arcsine in radians.")
    acos = _function("acos", "Return the arccosine in radians.")
    atan = _function("atan", "Return the arctangent in radians.")

    def power(self: Computable[E], exponent: object) -> E:
        """Return the value to the power of `exponent`, a number or an expression."""
        return self.compute("power", exponent)

    @property
    def str(self: Computable[E]) -> StringNamespace[E]:
        """Functions on text."""
        return StringNamespace(self)

    @property
    def list(self: Computable[E]) -> ListNamespace[E]:
        """Functions on lists."""
        return ListNamespace(self)

    @property
    def arr(self: Computable[E]) -> ArrayNamespace[E]:
        """Functions on lists of fixed size."""
        return ArrayNamespace(self)

    @property
    def struct(self: Computable[E]) -> StructNamespace[E]:
        """Fields of structs."""
        return StructNamespace(self)

    @property
    def map(self: Computable[E]) -> MapNamespace[E]:
        """Functions on maps."""
        return MapNamespace(self)

    @property
    def dt(self: Computable[E]) -> DatetimeNamespace[E]:
        """Functions on dates and timestamps."""
        return DatetimeNamespace(self)
