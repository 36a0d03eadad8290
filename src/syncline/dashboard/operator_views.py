"""State of the operators of an execution, and which of them is the bottleneck. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from syncline.runs.json_values import Record, finite

MAX_OPERATORS = 200
NAME_CHARACTERS = 300
MAX_NUMBER = 2**53
"""Maximum valid number: larger ones are no counts, and browsers cannot represent them."""
LATEST_TIME = 1e11
"""Maximum valid seconds since the epoch."""

OperatorState = Literal["running", "waiting", "passing", "finished", "stopped"]
"""passing: blocks pass through without tasks."""
PartKind = Literal["reading", "function", "other", "input", "room", "rest"]
PARTS: tuple[tuple[PartKind, str], ...] = (
    ("reading", "reading"),
    ("function", "user functions"),
    ("other", "other work"),
    ("input", "waiting for input"),
    ("room", "waiting for memory or a CPU"),
    ("rest", "finished or not started"),
)
"""Parts of an operator's time in display order: kind and label."""

_PROGRAM_LIMITS = 0.2
"""The program is the bottleneck if it waits for rows for less than this share of its time."""
_IS_BUSY = 0.3
_NEARLY = 0.8
"""Operators that are busy for at least this share of the busiest one's time are candidates; the one
whose tasks take most time is the bottleneck.
"""
_OTHERS_WAIT = 0.75


@dataclass(frozen=True, kw_only=True)
class TimePart:
    """Part of an operator's time."""

    kind: PartKind
    share: float
    """Share of the total time."""


@dataclass(frozen=True, kw_only=True)
class OperatorView:
    """State of one operator."""

    number: int
    name: str
    inputs: tuple[int, ...] = ()
    """Numbers of its input operators."""
    level: int = 0
    """Column in the graph: 0 without inputs, otherwise one more than the last of its inputs."""
    state: OperatorState = "waiting"
    rows: int = 0
    rows_per_s: float | None = None
    """Current rate while running, average afterwards."""
    running: int = 0
    """Running tasks."""
    tasks: int = 0
    """Completed tasks."""
    total: int | None = None
    """Total number of tasks, if known."""
    queued_rows: int = 0
    """Rows that wait for a task."""
    held_bytes: int = 0
    """Bytes of its existing output blocks."""
    skipped_rows: int = 0
    """Rows dropped because a function failed."""
    busy_share: float = 0.0
    """Share of the recent time with at least one running task."""
    work_s: float = 0.0
    """Total seconds of all its tasks in the recent time."""
    parts: tuple[TimePart, ...] = ()
    """Parts of its time since the beginning; empty for an operator without tasks."""
    is_bottleneck: bool = False
    """True if it is the bottleneck."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Operators of a pass."""

    names: tuple[str, ...]
    inputs: tuple[tuple[int, ...], ...]
    levels: tuple[int, ...]
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class OperatorSample:
    """Recorded counters of one operator."""

    tasks: int = 0
    total: int | None = None
    running: int = 0
    ended: bool = False
    rows: int = 0
    queued_rows: int = 0
    held_bytes: int = 0
    wall_s: float = 0.0
    read_s: float = 0.0
    function_s: float = 0.0
    waiting_input_s: float = 0.0
    waiting_downstream_s: float = 0.0
    busy_s: float = 0.0
    skipped_rows: int = 0

    @classmethod
    def of(cls, value: object) -> OperatorSample:
        """Parse the counters of a line; invalid ones are 0."""
        if not isinstance(value, dict):
            return cls()
        return cls(
            tasks=count(value.get("tasks")),
            total=count(value["total"]) if isinstance(value.get("total"), (int, float)) else None,
            running=count(value.get("running")),
            ended=value.get("ended") is True,
            rows=count(value.get("rows")),
            queued_rows=count(value.get("queued_rows")),
            held_bytes=count(value.get("held_bytes")),
            wall_s=amount(value.get("wall_s")),
            read_s=amount(value.get("read_s")),
            function_s=amount(value.get("function_s")),
            waiting_input_s=amount(value.get("waiting_input_s")),
            waiting_downstream_s=amount(value.get("waiting_downstream_s")),
            busy_s=amount(value.get("busy_s")),
            skipped_rows=count(value.get("skipped_rows")),
        )

    @property
    def has_tasks(self) -> bool:
        """True if the operator has or had tasks."""
        return bool(self.tasks or self.running or self.total) or self.busy_s > 0


def amount(value: object) -> float:
    """Return a valid number between 0 and `MAX_NUMBER`; 0 for anything else."""
    number = finite(value)
    return number if number is not None and 0 <= number <= MAX_NUMBER else 0.0


def count(value: object) -> int:
    """Return a valid number as an integer; 0 for anything else."""
    return int(amount(value))


def moment(value: object) -> float | None:
    """Return valid seconds since the epoch; None for anything else."""
    number = finite(value)
    return number if number is not None and 0 <= number <= LATEST_TIME else None


def short(value: object, longest: int = NAME_CHARACTERS) -> str:
    """Return a text of bounded length; "" for anything else."""
    return value[:longest] if isinstance(value, str) else ""


def plan_of(line: Record) -> Plan:
    """Parse the operators in the first line of a pass; drop inputs that do not precede them."""
    given = line.get("operators")
    listed = given[:MAX_OPERATORS] if isinstance(given, list) else []
    operators: list[Record] = [each if isinstance(each, dict) else {} for each in listed]
    inputs: list[tuple[int, ...]] = []
    levels: list[int] = []
    for number, operator in enumerate(operators):
        read = operator.get("inputs")
        numbers = (
            [each for each in read[:MAX_OPERATORS] if type(each) is int and 0 <= each < number]
            if isinstance(read, list)
            else []
        )
        inputs.append(tuple(dict.fromkeys(numbers)))
        levels.append(1 + max((levels[each] for each in numbers), default=-1))
    return Plan(
        names=tuple(
            short(operator.get("name")) or f"operator {number + 1}"
            for number, operator in enumerate(operators)
        ),
        inputs=tuple(inputs),
        levels=tuple(levels),
        left_out=count(line.get("left_out")),
    )


def operator_views(
    plan: Plan,
    now: Sequence[OperatorSample],
    earlier: Sequence[OperatorSample],
    wall_s: float,
    span_s: float,
    *,
    is_over: bool,
) -> tuple[OperatorView, ...]:
    """Return the state of the operators of a pass.

    Args:
        plan: The operators.
        now: Latest counters of each operator; missing ones count as 0.
        earlier: Counters at the beginning of the recent window; empty for the whole pass.
        wall_s: Duration of the pass.
        span_s: Duration of the recent window.
        is_over: True if the pass has ended.
    """
    made = []
    for number, name in enumerate(plan.names):
        sample = now[number] if number < len(now) else OperatorSample()
        before = earlier[number] if number < len(earlier) else OperatorSample()
        made.append(
            OperatorView(
                number=number,
                name=name,
                inputs=plan.inputs[number],
                level=plan.levels[number],
                state=_state(sample, is_over),
                rows=sample.rows,
                rows_per_s=max(0, sample.rows - before.rows) / span_s if span_s > 0 else None,
                running=0 if is_over else sample.running,
                tasks=sample.tasks,
                total=sample.total,
                queued_rows=sample.queued_rows,
                held_bytes=sample.held_bytes,
                skipped_rows=sample.skipped_rows,
                busy_share=min(1.0, max(0.0, sample.busy_s - before.busy_s) / span_s)
                if span_s > 0
                else 0.0,
                work_s=max(0.0, sample.wall_s - before.wall_s),
                parts=time_parts(sample, wall_s, has_inputs=bool(plan.inputs[number])),
            )
        )
    return tuple(made)


def time_parts(sample: OperatorSample, wall_s: float, *, has_inputs: bool) -> tuple[TimePart, ...]:
    """Return the parts of an operator's time in a pass, which add up to the total; empty without
    tasks.

    The busy time is divided in proportion to the times of the tasks. Current waiting counts as
    waiting for input or for room.
    """
    if not sample.has_tasks or wall_s <= 0:
        return ()
    waiting = {"input": sample.waiting_input_s, "room": sample.waiting_downstream_s}
    rest_s = max(0.0, wall_s - sample.busy_s - sum(waiting.values()))
    if not sample.ended and sample.tasks + sample.running > 0:
        waiting["input" if has_inputs and not sample.queued_rows else "room"] += rest_s
        rest_s = 0.0
    reading = min(sample.read_s, sample.wall_s) / sample.wall_s if sample.wall_s else 0.0
    function = min(sample.function_s / sample.wall_s, 1.0 - reading) if sample.wall_s else 0.0
    seconds: dict[PartKind, float] = {
        "reading": sample.busy_s * reading,
        "function": sample.busy_s * function,
        "other": sample.busy_s * max(0.0, 1.0 - reading - function),
        "input": waiting["input"],
        "room": waiting["room"],
        "rest": rest_s,
    }
    whole_s = math.fsum(seconds.values())
    return tuple(
        TimePart(kind=kind, share=seconds[kind] / whole_s) for kind, _ in PARTS if seconds[kind] > 0
    )


def find_bottleneck(
    operators: Sequence[OperatorView], waited_share: float | None, *, has_rows: bool
) -> tuple[int | None, str]:
    """Return the number of the operator that limits the others (None if it is none), and a sentence
    that names the bottleneck.

    Args:
        operators: Operators of a pass.
        waited_share: Share of the recent time that the program waited for rows; None if unknown.
        has_rows: True if the program has received rows.
    """
    if waited_share is None:
        return None, ""
    if has_rows and waited_share < _PROGRAM_LIMITS:
        share = _percent(waited_share)
        said = f"The program is the bottleneck: it waits for rows only {share} of the time."
        return None, said
    most = max((each.busy_share for each in operators), default=0.0)
    if most < _IS_BUSY:
        return (
            None,
            "No operator is the bottleneck: most time is spent starting processes, waiting for "
            "CPUs, or waiting for one another.",
        )
    busiest = max(
        (each for each in operators if each.busy_share >= _NEARLY * most),
        key=lambda each: (each.work_s, each.busy_share),
    )
    others = [each.busy_share for each in operators if each.number != busiest.number and each.parts]
    said = (
        f"{busiest.name} is the bottleneck: it is busy {_percent(busiest.busy_share)} of the time"
    )
    if not others:
        return busiest.number, f"{said}."
    if max(others) < _OTHERS_WAIT * busiest.busy_share:
        return busiest.number, f"{said} while others wait."
    work_s = sum(each.work_s for each in operators)
    part = (
        f", and its tasks take {_percent(busiest.work_s / work_s)} of the time of all tasks"
        if work_s > 0
        else ""
    )
    return busiest.number, f"{said}{part}."


def headroom(
    operators: Sequence[OperatorView], slots: float, span_s: float, waited_s: float
) -> float | None:
    """Estimate how many times faster the operators could deliver rows than the program consumes
    them; None if their tasks took no time.

    With every slot busy the rows would take the time of all tasks / slots. The program alone would
    take the time in which it did not wait.

    Args:
        operators: Operators of a pass.
        slots: Tasks that may run at a time.
        span_s: Seconds of the recent time.
        waited_s: Part of it in which the program waited for rows.
    """
    work_s = sum(each.work_s for each in operators)
    if work_s <= 0 or slots <= 0:
        return None
    return max(0.0, span_s - waited_s) * slots / work_s


def _state(sample: OperatorSample, is_over: bool) -> OperatorState:
    if sample.ended:
        return "finished"
    if is_over:
        return "stopped"
    if sample.running:
        return "running"
    return "passing" if sample.rows and not sample.has_tasks else "waiting"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
