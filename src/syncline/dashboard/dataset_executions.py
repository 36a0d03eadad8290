"""Executions of a dataset, computed from the lines of their record. Pure.

`ExecutionReader` reads lines of `data/NAME.jsonl` incrementally and returns immutable
`ExecutionView`s, so one thread can read while another shows. Records are untrusted and their cost
is bounded: invalid numbers count as 0, names are cut, and only a maximum of lines, passes and
operators is used. Operators are computed in `operator_views`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from syncline.dashboard.operator_views import (
    MAX_OPERATORS,
    OperatorSample,
    OperatorView,
    Plan,
    amount,
    count,
    find_bottleneck,
    headroom,
    moment,
    operator_views,
    plan_of,
    short,
)
from syncline.runs.json_values import Record

PassState = Literal["running", "silent", "finished", "stopped", "errored", "killed"]
"""silent: no line was written for longer than usual. stopped: the program stopped iterating.
killed: the process ended before the pass.
"""

MAX_LINES = 20_000
MAX_PASSES = 1_000
MAX_POINTS = 1_000
"""Maximum points of each curve."""
FEW = 10
"""Maximum number of operators with a curve each."""
_ERROR_CHARACTERS = 5_000
_SILENT_S = 60.0
_SILENT_SHARE = 0.5
"""Lines become rarer with the age of an execution and for larger plans: the pause grows up to this
share of the age.
"""
_SHORTEST_S = 0.001
_NEAR_BUDGET = 0.1
_TELLING_S = 0.5
"""Minimum seconds of data before the bottleneck is determined."""
_RECENT_S = 1.0
"""Minimum seconds between the last two lines to use them for current rates."""

Curve = tuple[tuple[float, ...], tuple[float, ...]]
"""Times in seconds since the epoch, and values."""


@dataclass(frozen=True, kw_only=True)
class PassLine:
    """One pass in the list of passes."""

    number: int
    epoch: int | None
    state: PassState
    rows: int
    wall_s: float


@dataclass(frozen=True, kw_only=True)
class ExecutionView:
    """One pass, with the list of all passes."""

    dataset: str
    """Name of the dataset; may be empty."""
    process: str
    """Process and host that executed it, as far as known."""
    passes: tuple[PassLine, ...] = ()
    """All passes of the file in order."""
    number: int | None = None
    """Number of the shown pass, or None."""
    epoch: int | None = None
    state: PassState = "running"
    began: float | None = None
    """Start in seconds since the epoch."""
    seen: float | None = None
    """Time of the last line."""
    wall_s: float = 0.0
    rows: int = 0
    """Rows delivered to the program."""
    rows_per_s: float | None = None
    """Current rate while running, average afterwards."""
    waited_share: float | None = None
    """Share of time that the program waited for rows."""
    headroom: float | None = None
    """Times that the operators could deliver rows faster than the program consumes them."""
    held_bytes: int = 0
    """Bytes of existing blocks."""
    peak_bytes: int = 0
    budget_bytes: int = 0
    error: str = ""
    operators: tuple[OperatorView, ...] = ()
    left_out: int = 0
    """Number of operators that were not recorded."""
    bottleneck: str = ""
    """Sentence that names the bottleneck; empty if it cannot be determined."""
    rate_curves: Mapping[str, Curve] = field(default_factory=dict)
    """Rows per second: delivered, and by operator if there are few."""
    memory_curves: Mapping[str, Curve] = field(default_factory=dict)
    """Bytes held, and the budget if it is near."""


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """One progress line of a pass."""

    time: float
    wall_s: float
    rows: int
    waited_s: float
    budget_bytes: int
    held_bytes: int
    peak_bytes: int
    slots: float
    operators: tuple[OperatorSample, ...]

    @classmethod
    def of(cls, line: Record) -> _Sample:
        operators = line.get("operators")
        listed = operators[:MAX_OPERATORS] if isinstance(operators, list) else []
        return cls(
            time=moment(line.get("time")) or 0.0,
            wall_s=amount(line.get("wall_s")),
            rows=count(line.get("rows")),
            waited_s=amount(line.get("program_waited_s")),
            budget_bytes=count(line.get("budget_bytes")),
            held_bytes=count(line.get("held_bytes")),
            peak_bytes=count(line.get("peak_bytes")),
            slots=amount(line.get("slots")),
            operators=tuple(OperatorSample.of(each) for each in listed),
        )


@dataclass(frozen=True)
class _Point:
    """Values of a sample that curves need."""

    time: float
    wall_s: float
    rows: tuple[int, ...]
    """Rows delivered, then rows of each operator."""
    held_bytes: int
    budget_bytes: int


@dataclass(kw_only=True)
class _Pass:
    """Data kept of a pass."""

    number: int
    epoch: int | None
    began: float | None
    plan: Plan
    last: _Sample | None = None
    before: _Sample | None = None
    ended: str | None = None
    error: str = ""
    points: list[_Point] = field(default_factory=list)

    def add(self, sample: _Sample) -> None:
        self.before, self.last = self.last, sample
        few = sample.operators if len(self.plan.names) <= FEW else ()
        rows = (sample.rows, *(each.rows for each in few))
        self.points.append(
            _Point(sample.time, sample.wall_s, rows, sample.held_bytes, sample.budget_bytes)
        )
        if len(self.points) > MAX_POINTS:
            del self.points[1::2]


class ExecutionReader:
    """Incremental reader of one file's lines. For one thread at a time."""

    def __init__(self) -> None:
        self._dataset = ""
        self._process = ""
        self._first: float | None = None
        self._passes: dict[int, _Pass] = {}
        self._taken = 0

    def add(self, lines: Iterable[Record]) -> bool:
        """Add lines; return True if any were used."""
        before = self._taken
        for line in lines:
            if self._taken >= MAX_LINES:
                break
            self._taken += 1
            self._add_line(line)
        return self._taken > before

    def view(self, number: int | None = None, *, now: float, is_live: bool) -> ExecutionView:
        """Return the state of the execution.

        Args:
            number: Pass to show; by default the latest one, with the curves of all passes.
            now: Seconds since the epoch.
            is_live: True if the run is running; otherwise unfinished passes count as killed.
        """
        states = {each.number: self._state(each, now, is_live) for each in self._passes.values()}
        whole = ExecutionView(
            dataset=self._dataset,
            process=self._process,
            passes=tuple(_line(each, states[each.number]) for each in self._passes.values()),
        )
        if not self._passes:
            return whole
        every = list(self._passes.values())
        chosen = None if number is None else self._passes.get(number)
        shown = chosen or every[-1]
        together = (
            [shown] if chosen else [each for each in every if each.plan.names == shown.plan.names]
        )
        whole = replace(whole, rate_curves=_rates(together), memory_curves=_memory(together))
        return _shown(whole, shown, states[shown.number])

    def _add_line(self, line: Record) -> None:
        number = line.get("pass", 0)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**53:
            return
        if "dataset" in line:
            self._begin(number, line)
            return
        current = self._passes.get(number)
        if current is None or current.ended is not None:
            return
        current.add(_Sample.of(line))
        ended = line.get("ended")
        if ended is not None:
            current.ended = ended if ended in ("finished", "stopped", "errored") else "stopped"
            current.error = short(line.get("error"), _ERROR_CHARACTERS)

    def _begin(self, number: int, line: Record) -> None:
        if number in self._passes or len(self._passes) >= MAX_PASSES:
            return
        epoch, began = line.get("epoch"), moment(line.get("time"))
        is_epoch = isinstance(epoch, int) and not isinstance(epoch, bool) and abs(epoch) < 2**53
        self._passes[number] = _Pass(
            number=number, epoch=epoch if is_epoch else None, began=began, plan=plan_of(line)
        )
        self._first = began if self._first is None else self._first
        self._dataset = self._dataset or short(line.get("dataset"))
        if line.get("hostname") or line.get("pid"):
            self._process = short(f"pid {line.get('pid')} on {line.get('hostname')}")

    def _state(self, each: _Pass, now: float, is_live: bool) -> PassState:
        if each.ended is not None:
            return each.ended  # type: ignore[return-value]
        if not is_live:
            return "killed"
        seen = each.last.time if each.last is not None else each.began
        if seen is None:
            return "running"
        usual_s = _SILENT_S + _SILENT_SHARE * max(0.0, seen - (self._first or seen))
        return "silent" if now - seen > usual_s else "running"


def _line(each: _Pass, state: PassState) -> PassLine:
    last = each.last
    return PassLine(
        number=each.number,
        epoch=each.epoch,
        state=state,
        rows=last.rows if last else 0,
        wall_s=last.wall_s if last else 0.0,
    )


def _shown(whole: ExecutionView, each: _Pass, state: PassState) -> ExecutionView:
    last = each.last
    whole = replace(
        whole,
        number=each.number,
        epoch=each.epoch,
        state=state,
        began=each.began,
        seen=each.began,
        left_out=each.plan.left_out,
        error=each.error,
    )
    if last is None:
        return replace(whole, operators=operator_views(each.plan, (), (), 0.0, 0.0, is_over=False))
    before = _window(each, state)
    span_s = _span(last.wall_s - (before.wall_s if before else 0.0))
    earlier = before.operators if before else ()
    operators = operator_views(
        each.plan,
        last.operators,
        earlier,
        last.wall_s,
        span_s,
        is_over=state not in ("running", "silent"),
    )
    waited_s = max(0.0, last.waited_s - (before.waited_s if before else 0.0))
    waited_share = min(1.0, waited_s / span_s) if span_s > 0 else None
    chosen, sentence = (
        find_bottleneck(operators, waited_share, has_rows=last.rows > 0)
        if span_s >= _TELLING_S
        else (None, "")
    )
    return replace(
        whole,
        seen=last.time,
        wall_s=last.wall_s,
        rows=last.rows,
        rows_per_s=max(0, last.rows - (before.rows if before else 0)) / span_s
        if span_s > 0
        else None,
        waited_share=waited_share,
        headroom=headroom(operators, last.slots, span_s, waited_s)
        if span_s >= _TELLING_S and last.rows > (before.rows if before else 0)
        else None,
        held_bytes=last.held_bytes,
        peak_bytes=last.peak_bytes,
        budget_bytes=last.budget_bytes,
        operators=tuple(
            replace(operator, is_bottleneck=operator.number == chosen) for operator in operators
        ),
        bottleneck=sentence,
    )


def _window(each: _Pass, state: PassState) -> _Sample | None:
    """Return the sample at which the recent window begins; None for the beginning of the pass."""
    before, last = each.before, each.last
    if (
        state != "running"
        or before is None
        or last is None
        or last.wall_s - before.wall_s < _RECENT_S
    ):
        return None
    return before if len(before.operators) == len(last.operators) else None


def _span(seconds: float) -> float:
    """Return `seconds`, or 0 if they are too short to compute rates."""
    return seconds if seconds >= _SHORTEST_S else 0.0


def _rates(passes: Sequence[_Pass]) -> dict[str, Curve]:
    """Return rows per second between the samples of passes with the same operators."""
    operators = passes[-1].plan.names
    names = ("delivered", *(operators if len(operators) <= FEW else ()))
    labels = [_distinct(name, place, names) for place, name in enumerate(names)]
    curves: dict[str, tuple[list[float], list[float]]] = {label: ([], []) for label in labels}
    for each in passes:
        earlier_s, earlier = 0.0, (0,) * len(names)
        for point in each.points:
            span_s = _span(point.wall_s - earlier_s)
            # A pass may end shortly after a line: so short an interval gives no reliable rate.
            if span_s <= 0 or (earlier_s and span_s < _RECENT_S) or len(point.rows) != len(names):
                continue
            for label, now, then in zip(labels, point.rows, earlier, strict=True):
                times, values = curves[label]
                times.append(point.time)
                values.append(max(0, now - then) / span_s)
            earlier_s, earlier = point.wall_s, point.rows
    return {label: (_thinned(times), _thinned(values)) for label, (times, values) in curves.items()}


def _distinct(name: str, place: int, names: Sequence[str]) -> str:
    return name if names.count(name) == 1 else f"{place}: {name}"


def _memory(passes: Sequence[_Pass]) -> dict[str, Curve]:
    points = [point for each in passes for point in each.points]
    times = _thinned([point.time for point in points])
    held = _thinned([float(point.held_bytes) for point in points])
    budget = _thinned([float(point.budget_bytes) for point in points])
    # A distant budget would flatten the curve of held bytes.
    is_near = max(held, default=0.0) >= _NEAR_BUDGET * max(budget, default=0.0)
    return {"held": (times, held), **({"budget": (times, budget)} if is_near else {})}


def _thinned(values: Sequence[float]) -> tuple[float, ...]:
    """Return at most `MAX_POINTS` values, including the last."""
    stride = -(-len(values) // MAX_POINTS) or 1
    return tuple(values[::-1][::stride][::-1])
