"""Keyword arguments that many functions share: declared once as a TypedDict, shown in every
signature, checked by name.

`read_text(paths, *, encoding="utf-8", **options: Unpack[FileOptions])` is short to read, checked by
type checkers, and `keywords` gives it the signature that `help` and editors show, and an error with
the nearest name for a keyword that does not exist.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from syncline.core.tracebacks import shorten

F = TypeVar("F", bound=Callable[..., Any])


def keywords(
    defaults: Mapping[str, Any],
    *,
    changed: Mapping[str, Any] | None = None,
    without: Collection[str] = (),
    rest: str | None = None,
    known: Collection[str] | None = None,
) -> Callable[[F], F]:
    """A decorator for a function whose last parameter is `**options`. What the caller gives arrives
    in it, and what `changed` names.

    Args:
        defaults: The keywords that it takes besides its own, with the defaults that its signature
        shows. changed: Defaults of this function that differ from those. without: Names in
        `defaults` that this function does not take. rest: Name of the parameter for further
        keywords, which belong to another library; None if there are none. known: Names that `rest`
        may have; None for any.
    """

    def decorate(function: F) -> F:
        own = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        shared = {
            name: default
            for name, default in {**defaults, **(changed or {})}.items()
            if name not in without
        }
        shown = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in shared.items()
        ]
        if rest is not None:
            shown.append(inspect.Parameter(rest, inspect.Parameter.VAR_KEYWORD))
        takes_any = rest is not None and known is None
        names = [*(parameter.name for parameter in own), *shared, *(known or ())]

        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            try:
                for name in given:
                    if not takes_any and name not in names:
                        raise TypeError(_unknown(function.__name__, name, names))
                return function(*args, **{**(changed or {}), **given})
            except Exception as error:
                shorten(error)  # the program's call is what failed
                raise

        called.__signature__ = inspect.Signature([*own, *shown])  # type: ignore[attr-defined]
        return called  # type: ignore[return-value]

    return decorate


def nearest(name: str, names: Collection[str]) -> str:
    """A hint at the name that was probably meant, as the end of a sentence; empty if none is
    near.
    """
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f": is {close[0]!r} meant?" if close else ""


def _unknown(function: str, name: str, names: Collection[str]) -> str:
    return f"{function} takes no argument {name!r}{nearest(name, names) or ': it takes ' + ', '.join(names)}"
