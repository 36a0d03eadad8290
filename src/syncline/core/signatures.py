"""Parameter lists as text, and the check of a call's arguments against one.

The text has one form for functions of any kind, such as ``a, b=…, /, *rest, c, **others``. It is
part of the handles of actors, so that calls with wrong arguments fail in the process that makes
them. Default values and annotations are left out: they may not be picklable.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

_DEFAULT = "=…"


def parameter_list(function: Callable[..., object], *, skip_first: bool = False) -> str | None:
    """Return the parameters as text, or None if they are unknown, as of some functions in C.

    `skip_first` leaves out the first positional parameter, such as `self`.
    """
    if type(function) is types.FunctionType and not vars(function):
        parts = _parts_of_code(function)
    else:
        try:
            parts = _parts_of_signature(inspect.signature(function))
        except (TypeError, ValueError):
            return None
    if skip_first and parts and not parts[0].startswith("*"):
        parts = parts[2:] if parts[1:2] == ["/"] else parts[1:]
    return ", ".join(parts)


def _parts_of_code(function: types.FunctionType) -> list[str]:
    """Return the parts for a plain function, much faster than `inspect.signature`."""
    code, defaults = function.__code__, len(function.__defaults__ or ())
    names, count, only = code.co_varnames, code.co_argcount, code.co_posonlyargcount
    parts = [
        f"{name}{_DEFAULT}" if position >= count - defaults else name
        for position, name in enumerate(names[:count])
    ]
    if only:
        parts.insert(only, "/")
    keywords = names[count : count + code.co_kwonlyargcount]
    rest = count + len(keywords)
    if code.co_flags & inspect.CO_VARARGS:
        parts.append(f"*{names[rest]}")
        rest += 1
    elif keywords:
        parts.append("*")
    known = function.__kwdefaults__ or {}
    parts += [f"{name}{_DEFAULT}" if name in known else name for name in keywords]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        parts.append(f"**{names[rest]}")
    return parts


def _parts_of_signature(signature: inspect.Signature) -> list[str]:
    parts: list[str] = []
    only, starred = 0, False
    for each in signature.parameters.values():
        name = each.name if each.default is each.empty else f"{each.name}{_DEFAULT}"
        if each.kind is each.POSITIONAL_ONLY:
            only += 1
        elif each.kind is each.VAR_POSITIONAL:
            name, starred = f"*{name}", True
        elif each.kind is each.VAR_KEYWORD:
            name = f"**{name}"
        elif each.kind is each.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        parts.append(name)
    if only:
        parts.insert(only, "/")
    return parts


class CallCheck:
    """Check of arguments against a parameter list; positional ones by their number alone."""

    __slots__ = (
        "_has_any_keyword",
        "_keywords",
        "_least",
        "_most",
        "_places",
        "_required",
        "_required_keywords",
        "_text",
    )

    def __init__(self, text: str | None) -> None:
        """`text` comes from `parameter_list`; None accepts everything."""
        self._text = text
        self._least: float = 0
        self._most: float = float("inf")
        self._places: dict[str, int] = {}  # of positional parameters that have a name for callers
        self._required: list[str] = []  # the first positional parameters
        self._keywords: set[str] = set()
        self._required_keywords: list[str] = []
        self._has_any_keyword = False
        if text is not None:
            self._read(text.split(", ") if text else [])

    def __call__(self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """Raise TypeError if a call of the function `name` with these arguments would fail."""
        if (not kwargs and self._least <= len(args) <= self._most) or self._text is None:
            return
        problem = self._problem(len(args), kwargs)
        if problem is not None:
            raise TypeError(
                f"{name}({self._text}) cannot be called with these arguments: {problem}"
            )

    def _read(self, parts: Iterable[str]) -> None:
        position, after_star = 0, False
        for part in parts:
            name = part.removesuffix(_DEFAULT)
            if part == "/":
                self._places.clear()
            elif part.startswith("**"):
                self._has_any_keyword = True
            elif part.startswith("*"):
                after_star = True
                if part == "*":
                    self._most = position
            elif after_star:
                self._keywords.add(name)
                if name == part:
                    self._required_keywords.append(name)
            else:
                self._places[name] = position
                position += 1
                if name == part:
                    self._required.append(name)
        if not after_star:
            self._most = position
        self._least = float("inf") if self._required_keywords else len(self._required)

    def _problem(self, given: int, kwargs: Mapping[str, object]) -> str | None:
        if given > self._most:
            return f"too many positional arguments ({given}, but at most {self._most:g})"
        for name in kwargs:
            place = self._places.get(name)
            if place is not None and place < given:
                return f"multiple values for argument {name!r}"
            if place is None and name not in self._keywords and not self._has_any_keyword:
                return f"got an unexpected keyword argument {name!r}"
        missing = [
            name
            for name in self._required[given:]
            if name not in kwargs or name not in self._places
        ]
        missing += [name for name in self._required_keywords if name not in kwargs]
        return f"missing a required argument: {missing[0]!r}" if missing else None


@lru_cache(maxsize=4096)
def call_check(text: str | None) -> CallCheck:
    """Return the check for a parameter list."""
    return CallCheck(text)
