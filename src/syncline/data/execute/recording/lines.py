"""What a record of an execution says, line by line: dictionaries for JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from syncline.data.execute.scheduler import Counts, StageCounts
from syncline.data.execute.stages import Stage
from syncline.data.execute.stats import ExecutionStats, OperatorStats
from syncline.runs.secrets import masked_text

Ended: TypeAlias = Literal["finished", "stopped", "errored"]
"""How an execution has ended: at its last row, because the program wanted no more, or with an
error.
"""

MOST_OPERATORS = 200
"""Of a larger plan the operators nearest to the program are recorded."""
_LONGEST_NAME = 200
_LONGEST_ERROR = 2000


def recorded(stages: Sequence[Stage]) -> slice:
    """Which stages of an execution are recorded."""
    return slice(max(0, len(stages) - MOST_OPERATORS), len(stages))


def beginning(
    stages: Sequence[Stage], *, time_s: float, dataset: str, number: int, **facts: Any
) -> dict[str, Any]:
    """The line with which a pass begins.

    Args:
        stages: The operators, inputs before those that read them.
        time_s: When it began, in seconds since the epoch.
        dataset: For people; empty for a dataset without a name.
        number: Of the pass, from 0 on; all its lines carry it.
        **facts: More, for people.
    """
    shown = recorded(stages)
    operators = [
        {
            "name": _shortened(stage.name, _LONGEST_NAME),
            "inputs": [each - shown.start for each in stage.inputs if each >= shown.start],
        }
        for stage in stages[shown]
    ]
    line: dict[str, Any] = {
        "time": time_s,
        "dataset": dataset,
        "pass": number,
        **facts,
        "operators": operators,
    }
    return {**line, "left_out": shown.start} if shown.start else line


def sample(
    stats: ExecutionStats, counts: Counts, *, time_s: float, number: int, peak_bytes: int
) -> dict[str, Any]:
    """Where a pass stands. `peak_bytes`: the most that its blocks held at a moment that was looked
    at.
    """
    shown = slice(max(0, len(stats.operators) - MOST_OPERATORS), len(stats.operators))
    return {
        "time": time_s,
        "pass": number,
        "wall_s": _rounded(stats.wall_s),
        "rows": stats.rows,
        "blocks": stats.blocks,
        "size_bytes": stats.size_bytes,
        "program_waited_s": _rounded(stats.program_waited_s),
        "budget_bytes": counts.budget_bytes,
        "held_bytes": counts.held_bytes,
        "peak_bytes": max(peak_bytes, counts.held_bytes),
        "slots": _rounded(counts.slots),
        "used_slots": _rounded(counts.used_slots),
        "operators": [
            _operator(*each)
            for each in zip(stats.operators[shown], counts.stages[shown], strict=True)
        ],
    }


def ending(line: Mapping[str, Any], ended: Ended, error: BaseException | None) -> dict[str, Any]:
    """The last sample of a pass."""
    last = {**line, "ended": ended}
    return last if error is None else {**last, "error": error_text(error)}


def error_text(error: BaseException) -> str:
    """An error for people, without secrets."""
    return masked_text(_shortened(f"{type(error).__name__}: {error}", _LONGEST_ERROR))


def _operator(stats: OperatorStats, counts: StageCounts) -> dict[str, Any]:
    return {
        "tasks": stats.tasks,
        "total": counts.total,
        "running": counts.running,
        "waiting": counts.waiting,
        "ended": counts.ended,
        "blocks": stats.blocks,
        "rows": stats.rows,
        "size_bytes": stats.size_bytes,
        "queued_rows": counts.queued_rows,
        "held_bytes": counts.held_bytes,
        "wall_s": _rounded(stats.wall_s),
        "cpu_s": _rounded(stats.cpu_s),
        "read_s": _rounded(stats.read_s),
        "function_s": _rounded(stats.function_s),
        "waiting_input_s": _rounded(stats.waiting_input_s),
        "waiting_downstream_s": _rounded(stats.waiting_downstream_s),
        "busy_s": _rounded(stats.busy_s),
        "skipped_rows": stats.skipped_rows,
    }


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


def _shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
