"""What the operators of an execution did, and which of them limits the others: from recorded
numbers to values for pages. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

MOST_OPERATORS = 200
NAME_CHARACTERS = 300
LARGEST = 2**53
"""Larger numbers are no counts of anything, and a browser does not know them."""
LATEST_TIME = 1e11
"""Seconds since the epoch that calendars have."""

OperatorState = Literal["running", "waiting", "passing", "finished", "stopped"]
"""passing: it has no tasks, blocks go through it."""
PartKind = Literal["reading", "function", "other", "input", "room", "rest"]
PARTS: tuple[tuple[PartKind, str], ...] = (
    ("reading", "reading"),
    ("function", "functions of the program"),
    ("other", "other work"),
    ("input", "waiting for input"),
    ("room", "waiting for room or a CPU"),
    ("rest", "done, or not begun"),
)
"""What an operator's time goes into, in the order in which it is shown, and what it is called."""

_PROGRAM_LIMITS = 0.2
"""A program that waits for rows for less of its time than this keeps its operators waiting."""
_IS_BUSY = 0.3
_NEARLY = 0.8
"""Operators that are busy for nearly as long as the busiest: the one whose tasks take most time is
named.
"""
_OTHERS_WAIT = 0.75


@dataclass(frozen=True, kw_only=True)
class TimePart:
    """A part of an operator's time."""

    kind: PartKind
    seconds: float
    share: float
    """Of the whole time."""


@dataclass(frozen=True, kw_only=True)
class OperatorView:
    """One operator."""

    number: int
    name: str
    inputs: tuple[int, ...] = ()
    """Numbers of the operators that it reads."""
    level: int = 0
    """Its column: 0 for those without inputs, and one more than the last of its inputs for
    others.
    """
    state: OperatorState = "waiting"
    rows: int = 0
    rows_per_s: float | None = None
    """Now, where it runs; as a whole where it has ended."""
    running: int = 0
    """Tasks that run."""
    tasks: int = 0
    """Tasks that have ended."""
    total: int | None = None
    """Tasks there are, if that is known."""
    queued_rows: int = 0
    """That wait for a task."""
    held_bytes: int = 0
    """In blocks that it has made and that exist still."""
    skipped_rows: int = 0
    """Left out because a function failed."""
    busy_share: float = 0.0
    """Of the time that is looked at: with at least one running task."""
    work_s: float = 0.0
    """Of that time: of all its tasks together."""
    parts: tuple[TimePart, ...] = ()
    """Where its time goes since the beginning; nothing for an operator without tasks."""
    limits: bool = False
    """Whether the others wait for it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The operators of a pass."""

    names: tuple[str, ...]
    inputs: tuple[tuple[int, ...], ...]
    levels: tuple[int, ...]
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class OperatorSample:
    """The recorded numbers of one operator."""

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
        """Those of a line, as far as they are numbers."""
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
        """Whether there was any."""
        return bool(self.tasks or self.running or self.total) or self.busy_s > 0


def amount(value: object) -> float:
    """A number that is no less than 0, and none that no clock or counter could show; 0 for anything
    else.
    """
    if (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST
    ):  # not-a-number fails this, too
        return 0.0
    return float(value)


def count(value: object) -> int:
    """The same, whole."""
    return int(amount(value))


def moment(value: object) -> float | None:
    """Seconds since the epoch."""
    is_moment = (
        not isinstance(value, bool)
        and isinstance(value, (int, float))
        and 0 <= value <= LATEST_TIME
    )
    return float(value) if is_moment and isinstance(value, (int, float)) else None


def short(value: object, longest: int = NAME_CHARACTERS) -> str:
    """A text of bounded length; empty for what is none."""
    return value[:longest] if isinstance(value, str) else ""


def plan_of(line: Mapping[str, Any]) -> Plan:
    """The operators of the line with which a pass begins. Inputs that do not come before what reads
    them are left out.
    """
    given = line.get("operators")
    listed = given[:MOST_OPERATORS] if isinstance(given, list) else []
    operators: list[Mapping[str, Any]] = [each if isinstance(each, dict) else {} for each in listed]
    inputs: list[tuple[int, ...]] = []
    levels: list[int] = []
    for number, operator in enumerate(operators):
        read = operator.get("inputs")
        numbers = (
            [each for each in read[:MOST_OPERATORS] if type(each) is int and 0 <= each < number]
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
    """The operators of a pass.

    Args:
        plan: What they are. now: The last numbers of each; of those that have none nothing is
        known. earlier: Numbers at the beginning of the time that is looked at; none for the
        beginning of the pass. wall_s: How long the pass has lasted. span_s: How long the time that
        is looked at is. is_over: Whether the pass has ended.
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
    """Where an operator's part of the time of a pass went; all parts together are the whole.
    Nothing for one without tasks.

    The time with running tasks is shared out as the time of the tasks is. Waiting that goes on is
    counted by what it is for.
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
        TimePart(kind=kind, seconds=seconds[kind], share=seconds[kind] / whole_s)
        for kind, _ in PARTS
        if seconds[kind] > 0
    )


def limiting(
    operators: Sequence[OperatorView], waited_share: float | None, *, has_rows: bool
) -> tuple[int | None, str]:
    """The number of the operator that all others wait for, and a sentence that says what limits;
    None where it is no operator.

    Args:
        operators: Those of a pass. waited_share: Of the time that is looked at, what the program
        waited for rows; None where that is not known. has_rows: Whether the program has got any.
    """
    if waited_share is None:
        return None, ""
    if has_rows and waited_share < _PROGRAM_LIMITS:
        return (
            None,
            f"The program is the bottleneck: it waits for rows only {_percent(waited_share)} of the time, so the operators wait for it.",
        )
    most = max((each.busy_share for each in operators), default=0.0)
    if most < _IS_BUSY:
        return (
            None,
            "No operator is busy for long: the time goes into starting processes, waiting for CPUs, or waiting for one another.",
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
