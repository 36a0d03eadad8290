"""Text about a failed job: ranks, exit codes or signals, and the last lines of the tracebacks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from syncline.core.error_messages import exit_cause
from syncline.launcher.messages import Failure
from syncline.runs.outliers import ranks_text

LINES = 8
"""Lines of a traceback that are printed."""
SHOWN = 4
"""Failed ranks that are described."""
_TITLE = "Traceback (most recent call last):"
_STOPPED = "SIGTERM"


def failure_text(script: str, failures: Sequence[Failure], tails: Mapping[int, str]) -> str:
    """Describe the failures, the first one first.

    Args:
        script: Name of the program.
        failures: Failed ranks.
        tails: Latest output by rank.
    """
    ordered = sorted(failures, key=_order)
    causes = [each for each in ordered if not is_stopped(each)] or ordered[:1]
    lines = [f"{script} failed: {_cause(causes[0])}"]
    for each in causes[1:SHOWN]:
        lines.append(_cause(each))
    if len(causes) > SHOWN:
        lines.append(f"{len(causes) - SHOWN} more ranks failed")
    stopped = [each.rank for each in ordered if each not in causes]
    if stopped:
        verb = "was" if len(stopped) == 1 else "were"
        lines.append(f"{ranks_text(stopped)} {verb} stopped")
    for each in causes:
        trace = _trace(each, tails)
        if trace:
            lines += [f"Rank {each.rank}:", textwrap.indent(last_lines(trace), "  ")]
            break
    return "\n".join(lines)


def _order(failure: Failure) -> tuple[bool, int, bool, int]:
    """Return the sort key: in one second, a rank that a signal has ended comes first, because the
    others fail when its connections close.
    """
    return is_stopped(failure), int(failure.time), failure.exitcode >= 0, failure.rank


def event_texts(failures: Sequence[Failure], tails: Mapping[int, str]) -> dict[str, dict[str, str]]:
    """Return the fields `ranks` and `tracebacks` of the record's event about a failure."""
    causes = [each for each in failures if not is_stopped(each)] or list(failures)
    traces = {each.rank: trace for each in causes if (trace := _trace(each, tails))}
    return {
        "ranks": {str(each.rank): exit_cause(each.exitcode) for each in causes},
        "tracebacks": {str(rank): text for rank, text in traces.items()},
    }


def is_stopped(failure: Failure) -> bool:
    """Return True for a rank that the agent stopped because another one failed."""
    return failure.exitcode == -15 and not failure.traceback


def traceback_of(output: str) -> str:
    """Return the last traceback in the output of a rank; empty without one."""
    start = output.rfind(_TITLE)
    if start < 0:
        return ""
    lines = output[start:].splitlines()
    end = next(
        (
            number
            for number, line in enumerate(lines[1:], 1)
            if line and not line.startswith((" ", "\t"))
        ),
        len(lines) - 1,
    )
    return "\n".join(line.rstrip("\r") for line in lines[: end + 1])


def _trace(failure: Failure, tails: Mapping[int, str]) -> str:
    """Return the traceback that the rank has recorded, or the last one in its output."""
    return failure.traceback.strip() or traceback_of(tails.get(failure.rank, ""))


def last_lines(trace: str) -> str:
    """Return the last lines of a traceback."""
    lines = trace.splitlines()
    return "\n".join(lines if len(lines) <= LINES else ["…", *lines[-LINES:]])


def _cause(failure: Failure) -> str:
    return f"rank {failure.rank} (pid={failure.pid}) {exit_cause(failure.exitcode)}"
