"""What expressions of one kind of type can do: `.str`, `.list`, `.arr`, `.struct`, `.map` and
`.dt`.

Each class is a table: a method's name, the function that it runs (Arrow's, or one of `kernels`),
its docstring, and a lambda whose parameters are the method's and whose result are the function's
options. Methods that need more than that are written out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

# The list namespace has a method named `slice`.
_Slice: TypeAlias = slice

if TYPE_CHECKING:
    from syncline.data.columnar.expressions.expr import Expr, FunctionExpr


def _method(
    function: str, doc: str, options: Callable[..., dict[str, Any]] = dict
) -> Callable[..., FunctionExpr]:
    """A method that runs `function` on the namespace's expression, with the options that `options`
    makes of its arguments.
    """
    arguments = inspect.signature(options) if options is not dict else inspect.Signature()

    def method(self: Namespace, *args: Any, **kwargs: Any) -> FunctionExpr:
        try:
            bound = arguments.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{method.__qualname__}{arguments}: {error}") from None
        return self._expr.compute(function, **options(*bound.args, **bound.kwargs))

    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [itself, *arguments.parameters.values()]
    method.__signature__ = arguments.replace(
        parameters=parameters, return_annotation="FunctionExpr"
    )  # type: ignore[attr-defined]
    method.__doc__ = doc
    return method


class Namespace:
    """The functions for one kind of type, on one expression."""

    def __init__(self, expr: Expr) -> None:
        self._expr = expr

    def __init_subclass__(cls) -> None:
        for name, member in vars(cls).items():
            if inspect.isfunction(member) and member.__name__ == "method":
                member.__name__, member.__qualname__ = name, f"{cls.__name__}.{name}"


def _pattern(pattern: str, *, ignore_case: bool = False) -> dict[str, Any]:
    return {"pattern": pattern, "ignore_case": ignore_case}


def _padding(width: int, padding: str = " ") -> dict[str, Any]:
    return {"width": width, "padding": padding}


class StringNamespace(Namespace):
    """Functions on text: `col("name").str.upper()`. Positions and lengths count letters, not bytes,
    unless stated.
    """

    len = _method("utf8_length", "How many letters.")
    byte_len = _method("binary_length", "How many bytes in UTF-8.")

    upper = _method("utf8_upper", "All letters in upper case.")
    lower = _method("utf8_lower", "All letters in lower case.")
    capitalize = _method(
        "utf8_capitalize", "The first letter in upper case, the others in lower case."
    )
    title = _method(
        "utf8_title", "The first letter of each word in upper case, the others in lower case."
    )
    swapcase = _method("utf8_swapcase", "Upper case to lower case and the other way round.")

    is_alpha = _method("utf8_is_alpha", "Whether there are only letters, and at least one.")
    is_alnum = _method(
        "utf8_is_alnum", "Whether there are only letters and digits, and at least one."
    )
    is_digit = _method("utf8_is_digit", "Whether there are only digits, and at least one.")
    is_decimal = _method(
        "utf8_is_decimal", "Whether there are only decimal digits, and at least one."
    )
    is_numeric = _method(
        "utf8_is_numeric",
        "Whether there are only characters that stand for numbers, and at least one.",
    )
    is_space = _method("utf8_is_space", "Whether there is only white space, and some.")
    is_lower = _method("utf8_is_lower", "Whether all letters are in lower case, and there is one.")
    is_upper = _method("utf8_is_upper", "Whether all letters are in upper case, and there is one.")
    is_title = _method(
        "utf8_is_title", "Whether each word begins with its only letter in upper case."
    )
    is_printable = _method("utf8_is_printable", "Whether every character can be printed.")
    is_ascii = _method("string_is_ascii", "Whether every character is ASCII.")

    starts_with = _method("starts_with", "Whether the text begins with `pattern`.", _pattern)
    ends_with = _method("ends_with", "Whether the text ends with `pattern`.", _pattern)
    contains = _method("match_substring", "Whether `pattern` is found in the text.", _pattern)
    match = _method(
        "match_like",
        "Whether the text is like `pattern`, where % stands for any text and _ for any letter.",
        _pattern,
    )
    match_regex = _method(
        "match_substring_regex", "Whether the regular expression is found in the text.", _pattern
    )
    find = _method(
        "find_substring", "At which byte `pattern` first begins, -1 if nowhere.", _pattern
    )
    find_regex = _method(
        "find_substring_regex",
        "At which byte the regular expression is first found, -1 if nowhere.",
        _pattern,
    )
    count = _method("count_substring", "How often `pattern` is found, without overlaps.", _pattern)
    count_regex = _method(
        "count_substring_regex",
        "How often the regular expression is found, without overlaps.",
        _pattern,
    )

    reverse = _method("utf8_reverse", "The letters from last to first.")
    slice = _method(
        "utf8_slice_codeunits",
        "The letters from `start` up to, not including, `stop`; negative positions count from the end.",
        lambda start, stop=None, step=1: {"start": start, "stop": stop, "step": step},
    )
    replace = _method(
        "replace_substring",
        "The text with `replacement` for each `pattern`, at most `max_replacements` times.",
        lambda pattern, replacement, *, max_replacements=None: {
            "pattern": pattern,
            "replacement": replacement,
            "max_replacements": max_replacements,
        },
    )
    replace_regex = _method(
        "replace_substring_regex",
        r"The text with `replacement`, where \1 is the first group, for each match of the regular expression.",
        lambda pattern, replacement, *, max_replacements=None: {
            "pattern": pattern,
            "replacement": replacement,
            "max_replacements": max_replacements,
        },
    )
    replace_slice = _method(
        "utf8_replace_slice",
        "The text with `replacement` for the letters from `start` up to, not including, `stop`.",
        lambda start, stop, replacement: {"start": start, "stop": stop, "replacement": replacement},
    )
    split = _method(
        "split_pattern",
        "A list of what stands between each `pattern`; with `reverse` the last `max_splits` count.",
        lambda pattern, *, max_splits=None, reverse=False: {
            "pattern": pattern,
            "max_splits": max_splits,
            "reverse": reverse,
        },
    )
    split_regex = _method(
        "split_pattern_regex",
        "A list of what stands between each match of the regular expression.",
        lambda pattern, *, max_splits=None, reverse=False: {
            "pattern": pattern,
            "max_splits": max_splits,
            "reverse": reverse,
        },
    )
    split_whitespace = _method(
        "utf8_split_whitespace",
        "A list of what stands between white space.",
        lambda *, max_splits=None, reverse=False: {"max_splits": max_splits, "reverse": reverse},
    )
    extract = _method(
        "extract_regex",
        "A struct with one field per named group, `(?P<name>...)`, of the regular expression; null where it is not found.",
        lambda pattern: {"pattern": pattern},
    )

    center = _method(
        "utf8_center",
        "The text in the middle of `width` letters, filled with `padding`; never cut.",
        _padding,
    )
    lpad = _method(
        "utf8_lpad",
        "The text at the right of `width` letters, filled with `padding`; never cut.",
        _padding,
    )
    rpad = _method(
        "utf8_rpad",
        "The text at the left of `width` letters, filled with `padding`; never cut.",
        _padding,
    )

    def pad(
        self, width: int, fillchar: str = " ", side: Literal["left", "right", "both"] = "right"
    ) -> FunctionExpr:
        """The text filled with `fillchar` up to `width` letters, on one side or on both; never
        cut.
        """
        functions = {"right": "utf8_rpad", "left": "utf8_lpad", "both": "utf8_center"}
        if side not in functions:
            raise ValueError(f"side={side!r} is not known: choose 'left', 'right' or 'both'")
        return self._expr.compute(functions[side], width=width, padding=fillchar)

    def strip(self, characters: str | None = None) -> FunctionExpr:
        """The text without white space, or without any of `characters`, at both ends."""
        return self._trimmed("utf8_trim", characters)

    def lstrip(self, characters: str | None = None) -> FunctionExpr:
        """The text without white space, or without any of `characters`, at its beginning."""
        return self._trimmed("utf8_ltrim", characters)

    def rstrip(self, characters: str | None = None) -> FunctionExpr:
        """The text without white space, or without any of `characters`, at its end."""
        return self._trimmed("utf8_rtrim", characters)

    def repeat(self, n: int | Expr) -> FunctionExpr:
        """The text `n` times in a row; `n` may be an expression."""
        return self._expr.compute("binary_repeat", n)

    def _trimmed(self, function: str, characters: str | None) -> FunctionExpr:
        if characters is None:
            return self._expr.compute(f"{function}_whitespace")
        return self._expr.compute(function, characters=characters)


class ListNamespace(Namespace):
    """Functions on lists: `col("items").list.len()`, `col("items").list[0]`,
    `col("items").list[1:3]`.
    """

    len = _method("list_value_length", "How many elements.")
    get = _method(
        "list_get",
        "The element at `index`, from the end if negative; null where the list is too short.",
        lambda index: {"index": index},
    )
    slice = _method(
        "list_slice",
        "The elements from `start` up to, not including, `stop`, as Python's slices, negative positions and steps included.",
        lambda start=None, stop=None, step=None: {"start": start, "stop": stop, "step": step},
    )
    flatten = _method("list_flatten", "One list of the elements of the lists inside.")

    def sort(
        self,
        order: Literal["ascending", "descending"] = "ascending",
        null_placement: Literal["at_start", "at_end"] = "at_end",
    ) -> FunctionExpr:
        """The elements of each list in order, nulls first or last."""
        if order not in ("ascending", "descending"):
            raise ValueError(f"order={order!r} is not known: choose 'ascending' or 'descending'")
        if null_placement not in ("at_start", "at_end"):
            raise ValueError(
                f"null_placement={null_placement!r} is not known: choose 'at_start' or 'at_end'"
            )
        return self._expr.compute("list_sort", order=order, null_placement=null_placement)

    def __getitem__(self, key: int | _Slice) -> FunctionExpr:
        """One element as `get`, or a slice as `slice`."""
        if isinstance(key, int):
            return self.get(key)
        if not isinstance(key, _Slice):
            raise TypeError(f"a list is indexed with an integer or a slice, not with {key!r}")
        return self.slice(key.start, key.stop, key.step)


class ArrayNamespace(Namespace):
    """Functions on lists of fixed size: `col("embedding").arr.to_list()`."""

    to_list = _method("list_to_variable", "The same lists with a type that allows for any length.")


class StructNamespace(Namespace):
    """Fields of records: `col("user").struct["age"]`, or `struct[0]` for the first."""

    field = _method(
        "struct_field", "The field of this name.", lambda field_name: {"indices": [field_name]}
    )
    field_by_index = _method(
        "struct_field", "The field at this place, from 0.", lambda index: {"indices": [index]}
    )

    def __getitem__(self, key: str | int) -> FunctionExpr:
        """The field of a name or at a place."""
        if isinstance(key, str | int):
            return self._expr.compute("struct_field", indices=[key])
        raise TypeError(f"a struct is indexed with a field's name or place, not with {key!r}")


class MapNamespace(Namespace):
    """Functions on mappings: `col("headers").map.keys()`."""

    keys = _method("map_keys", "A list of the keys.")
    values = _method("map_values", "A list of the values, in the order of the keys.")


class DatetimeNamespace(Namespace):
    """Functions on dates and points in time: `col("at").dt.year()`."""

    year = _method("year", "The year.")
    month = _method("month", "The month, from 1.")
    day = _method("day", "The day of the month, from 1.")
    hour = _method("hour", "The hour, from 0.")
    minute = _method("minute", "The minute, from 0.")
    second = _method("second", "The second, from 0, without its fraction.")
    strftime = _method(
        "strftime", "Text after a pattern such as %Y-%m-%d.", lambda fmt: {"format": fmt}
    )
    ceil = _method(
        "ceil_temporal",
        "Up to the next whole `unit`, such as 'hour' or 'day'.",
        lambda unit: {"multiple": 1, "unit": unit},
    )
    floor = _method(
        "floor_temporal",
        "Down to the last whole `unit`, such as 'hour' or 'day'.",
        lambda unit: {"multiple": 1, "unit": unit},
    )
    round = _method(
        "round_temporal",
        "To the nearest whole `unit`, such as 'hour' or 'day'.",
        lambda unit: {"multiple": 1, "unit": unit},
    )


def _function(function: str, doc: str) -> Callable[[Expr], FunctionExpr]:
    def method(self: Expr) -> FunctionExpr:
        return self.compute(function)

    method.__doc__ = doc
    return method


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

    def power(self: Expr, exponent: object) -> FunctionExpr:  # type: ignore[misc]
        """Return the value to the power of `exponent`, a number or an expression."""
        return self.compute("power", exponent)

    @property
    def str(self: Expr) -> StringNamespace:  # type: ignore[misc]
        """Functions on text."""
        return StringNamespace(self)

    @property
    def list(self: Expr) -> ListNamespace:  # type: ignore[misc]
        """Functions on lists."""
        return ListNamespace(self)

    @property
    def arr(self: Expr) -> ArrayNamespace:  # type: ignore[misc]
        """Functions on lists of fixed size."""
        return ArrayNamespace(self)

    @property
    def struct(self: Expr) -> StructNamespace:  # type: ignore[misc]
        """Fields of structs."""
        return StructNamespace(self)

    @property
    def map(self: Expr) -> MapNamespace:  # type: ignore[misc]
        """Functions on maps."""
        return MapNamespace(self)

    @property
    def dt(self: Expr) -> DatetimeNamespace:  # type: ignore[misc]
        """Functions on dates and timestamps."""
        return DatetimeNamespace(self)
