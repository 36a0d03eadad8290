"""Texts of what trials hold: parameters, names cut to what tells them apart, errors, checkpoints.
Pure.

Numbers, durations and paths are in `syncline.train.console.values`.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from syncline.storage import filesystem as directories
from syncline.train.checkpoint import Checkpoint
from syncline.train.console.values import is_number, located, shortened, text_of


def parameters_text(parameters: Mapping[str, Any], length: int = 40) -> str:
    """Parameters in one line: `{'lr': 0.01, 'layers': 2}`."""
    values = (
        f"{key!r}: {text_of(value, length) if is_number(value) else shortened(repr(value), length)}"
        for key, value in parameters.items()
    )
    return f"{{{', '.join(values)}}}"


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """For each flat key (`model/lr`) its shortest end that no other key has: `lr`, or `model/lr`
    where there is an `optimizer/lr` too.
    """
    names = list(keys)
    owners: dict[str, int] = {}
    for key in names:
        for end in _ends(key):
            owners[end] = owners.get(end, 0) + 1
    return {key: next((end for end in _ends(key) if owners[end] == 1), key) for key in names}


def _ends(key: str) -> list[str]:
    """`c`, `b/c`, `a/b/c`."""
    parts = key.split("/")
    return ["/".join(parts[position:]) for position in range(len(parts) - 1, -1, -1)]


def last_line(error: BaseException | None, text: str = "") -> str:
    """The line that says what went wrong: the last one of the traceback `text`, or of `error`
    itself.
    """
    lines = text.strip().splitlines() or (
        "".join(traceback.format_exception_only(error)).strip().splitlines() if error else []
    )
    return lines[-1].strip() if lines else "no reason is known"


def place(checkpoint: Checkpoint) -> str:
    """Where a checkpoint lies: a path of this machine, or a URI."""
    return located(
        checkpoint.path,
        local=directories.is_local(checkpoint.filesystem),
        scheme=checkpoint.filesystem.type_name,
    )
