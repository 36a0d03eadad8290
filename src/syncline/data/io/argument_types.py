"""The check of argument types that the functions `read_*` and `from_*` share.

Not covered: paths, whose types `filesystem.resolve` checks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast


def require(argument: str, value: object, kinds: type | tuple[type, ...], wanted: str) -> None:
    """Raise TypeError if an argument has another type.

    Args:
        argument: Name of the argument.
        value: The value that the program gave.
        kinds: Accepted types.
        wanted: Description of the accepted values, such as "the text of a query".
    """
    if not isinstance(value, kinds):
        raise TypeError(
            f"{argument}={value!r}: pass {wanted}, not a value of type {type(value).__name__}"
        )


def texts(argument: str, value: object, wanted: str) -> list[str]:
    """Return one text, or several, as a list. Raise TypeError for anything else."""
    if isinstance(value, str):
        return [value]
    require(argument, value, str if isinstance(value, bytes) else Iterable, wanted)
    found = list(cast("Iterable[str]", value))
    for each in found:
        require(argument, each, str, wanted)
    return found
