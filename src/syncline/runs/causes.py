"""Causes of failures and stalls: the one line that lists show of them. Pure."""

from __future__ import annotations

import re

from syncline.runs.durations import duration

MAX_CAUSE_CHARACTERS = 300
_MAX_LINE = 1_000
_RANK_HEADER = re.compile(r"^\[Rank [0-9,]+ Error Snippet\]:$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_MODULE = re.compile(r"^(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*(?::|$))")
_OF_PROCESS = re.compile(r"^\w+Error: (?=Rank \d+ |The process of the trial )")
"""Class of the error of a killed process, which says less than the rest of the line."""
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Failure)\b")


def cause_line(error: str) -> str:
    """Return the line of an error that names its cause, in a traceback the line of the exception;
    "" for an empty text.

    Of several ranks, the first one counts. Of chained exceptions, the last one counts. Of a message
    with several lines, the first line counts, and module names before the exception are dropped.
    """
    first_rank = _RANK_HEADER.split(error)[:2][-1]
    lines = [line.rstrip()[:_MAX_LINE] for line in first_rank.splitlines() if line.strip()]
    starts = [place for place, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if starts:
        after = (line for line in lines[starts[-1] + 1 :] if not line[0].isspace())
        chosen = next(after, lines[-1])
    else:
        chosen = next(
            (line for line in lines if _EXCEPTION.match(line)),
            next((line for line in lines if not line.endswith(":")), "".join(lines[-1:])),
        )
    line = _OF_PROCESS.sub("", _MODULE.sub("", chosen.strip()))
    return line[:MAX_CAUSE_CHARACTERS]


def stall_text(seconds: float) -> str:
    """Return "stalled for 4 min"."""
    return f"stalled for {duration(max(0.0, seconds))}"
