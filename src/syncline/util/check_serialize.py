"""`inspect_serializability`: which part of a value cannot be sent to another process."""

from __future__ import annotations

import sys
from typing import NamedTuple, TextIO

from syncline.core import pickling
from syncline.core.serializability import find_unpicklable


class FailureTuple(NamedTuple):
    """A part of a value that cannot be pickled."""

    obj: object
    """The part itself."""
    name: str
    """Its path, such as ``config["a"].lock``."""
    parent: object
    """The inspected value."""

    def __hash__(self) -> int:
        return hash((id(self.obj), self.name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FailureTuple) and self.obj is other.obj and self.name == other.name

    def __repr__(self) -> str:
        return f"FailTuple({self.name} [obj={self.obj!r}, parent={self.parent!r}])"


def inspect_serializability(
    base_obj: object, name: str | None = None, depth: int = 3, print_file: TextIO | None = None
) -> tuple[bool, set[FailureTuple]]:
    """Print which part of a value cannot be pickled.

    Args:
        base_obj: The value.
        name: Name of the value in the output.
        depth: Ignored: the search goes as deep as it needs to.
        print_file: File to print to; None for standard output.

    Returns:
        True and an empty set if the value can be pickled; else False and the smallest part.
    """
    output = sys.stdout if print_file is None else print_file
    path = name or getattr(base_obj, "__name__", None) or type(base_obj).__name__
    error = pickling.can_pickle(base_obj)
    if error is None:
        print(f"`{path}` can be sent to another process.", file=output)
        return True, set()
    part = find_unpicklable(base_obj, path, error, pickling.can_pickle)
    print(
        f"`{path}` cannot be sent to another process: {part.path} is a {part.type_name} "
        f"({part.reason}).",
        file=output,
    )
    return False, {FailureTuple(part.value, part.path, base_obj)}
