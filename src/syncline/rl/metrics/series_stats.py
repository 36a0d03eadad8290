"""Stats that reduce numbers to a single one: mean, min, max, sum, and lifetime sum.

Covered: windows, the parts that components send to the root, throughputs of sums.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from syncline.rl.metrics.stats import (
    COMPACT_AFTER,
    NAN,
    Clock,
    MetricValue,
    StatsBase,
    numbers,
    plain,
)
from syncline.rl.value_types import Options, Results, StateDict, Tree


class SeriesStats(StatsBase):
    """Reduces numbers to a single one: over the last `window` values or, without a window, over all
    values since the last reduce.

    Subclasses define `reduce_numbers`, and `fold` if reduced parts cannot be reduced again. A
    reduce keeps the values of a window unless `clear_on_reduce` is set. Without a window it drops
    them, unless `clear_on_reduce=False` and the stats belong to the root.
    """

    def __init__(
        self,
        *,
        window: float | None = None,
        clear_on_reduce: bool | None = None,
        is_root: bool = False,
        clock: Clock = time.perf_counter,
    ) -> None:
        super().__init__(is_root=is_root, clock=clock)
        if window is not None and window < 1:
            raise ValueError(f"`window={window}` must be at least 1, or None for no window.")
        self._window = None if window is None or math.isinf(window) else int(window)
        self._windowed = window is not None
        self._clear = clear_on_reduce if clear_on_reduce is not None else not self._windowed
        self._settings = {"window": window, "clear_on_reduce": clear_on_reduce}
        self.values: deque[MetricValue] = deque(maxlen=self._window)
        self._parts: list[Tree] = []  # folded values of stats without a window
        self._unsent = 0

    def settings(self) -> Options:
        return dict(self._settings)

    def reduce_numbers(self, values: list[float]) -> float:
        """Return the reduction of one or more numbers."""
        raise NotImplementedError

    def fold(self, values: list[float], parts: list[Tree]) -> list[MetricValue]:
        """Combine values (without NaN) and earlier parts to one part; [] if all are empty."""
        values = values + parts
        return [self.reduce_numbers(values)] if values else []

    def result(self, parts: list[Tree]) -> float:
        """Return the reduced value of a part that `fold` returned."""
        return NAN if not parts else float_or_int(parts[0])

    def push(self, value: object) -> None:
        self.values.append(value)
        self._unsent += 1
        if self._unsent == COMPACT_AFTER and not self._windowed:
            self._compact()

    def _read(self) -> deque[MetricValue]:
        """Replace tensors with their values, so that each is read only once."""
        self.values = deque(map(plain, self.values), maxlen=self._window)
        return self.values

    def _compact(self) -> None:
        self._parts = self.fold(numbers(self.values), self._parts)
        self.values.clear()
        self._unsent = 0

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> MetricValue:
        if not latest_merged_only:
            parts = self.fold(numbers(self._read()), self._parts)
        elif self._windowed:
            parts = self.fold(numbers(self.latest_merged or ()), [])
        else:
            parts = self.fold([], list(self.latest_merged or ()))
        value = self.result(parts)
        return value if compile else [value]

    def take(self) -> StatsBase:
        sent = self.clone()
        if self._windowed:
            fresh = min(self._unsent, len(self.values))
            sent.values.extend(list(self._read())[len(self.values) - fresh :])
            sent._unsent = fresh
            self._unsent = 0
        else:
            self._compact()
            sent._parts = list(self._parts)
        if self._clear or not (self._windowed or self.is_root):
            self.values.clear()
            self._parts = []
        return sent

    def merge(self, incoming_stats: Sequence[SeriesStats]) -> None:
        if self._windowed:
            self.latest_merged = [value for stats in incoming_stats for value in stats.values]
            self.values.extend(self.latest_merged)
            self._unsent += len(self.latest_merged)
        else:
            parts = [part for stats in incoming_stats for part in stats._parts]
            self.latest_merged = parts
            self._parts = self.fold([], self._parts + parts)

    def get_values(self) -> Results:
        return {
            "values": list(self._read()),
            "parts": [list(part) if isinstance(part, tuple) else part for part in self._parts],
            "unsent": self._unsent,
        }

    def set_values(self, values: StateDict) -> None:
        self.values = deque(values["values"], maxlen=self._window)
        parts = values["parts"]
        self._parts = [tuple(part) if isinstance(part, (list, tuple)) else part for part in parts]
        self._unsent = values["unsent"]

    def __len__(self) -> int:
        return len(self.values) + len(self._parts)


def float_or_int(value: MetricValue) -> float:
    """Convert a Python or NumPy number to a Python number."""
    return value if isinstance(value, int) else float(value)


class MeanStats(SeriesStats):
    """Mean with equal weight for each value, regardless of the component that logged it."""

    stats_cls_identifier = "mean"

    def fold(self, values: list[float], parts: list[Tree]) -> list[MetricValue]:
        total, count = math.fsum(values), len(values)
        for part_total, part_count in parts:
            total, count = total + part_total, count + part_count
        return [(total, count)] if count else []

    def result(self, parts: list[Tree]) -> float:
        return parts[0][0] / parts[0][1] if parts else NAN


class MinStats(SeriesStats):
    """Smallest value."""

    stats_cls_identifier = "min"

    def reduce_numbers(self, values: list[float]) -> float:
        return min(values)


class MaxStats(SeriesStats):
    """Largest value."""

    stats_cls_identifier = "max"

    def reduce_numbers(self, values: list[float]) -> float:
        return max(values)


class Throughput:
    """Rate of a sum per second since the last reduce and since the start or restore.

    Stores a pair of value and time for each; the current value is an argument.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.restart(0.0)

    def restart(self, value: float) -> None:
        """Start both measurements."""
        self._reduced = self._restored = (value, self._clock())

    def reduced(self, value: float) -> None:
        """Restart the measurement of `since_last_reduce`."""
        self._reduced = (value, self._clock())

    def since_last_reduce(self, value: float) -> float:
        return self._rate(value, self._reduced)

    def since_last_restore(self, value: float) -> float:
        return self._rate(value, self._restored)

    def _rate(self, value: float, start: tuple[float, float]) -> float:
        seconds = self._clock() - start[1]
        return (value - start[0]) / seconds if seconds > 0 else 0.0


class SumStats(SeriesStats):
    """Sum; 0 without values."""

    stats_cls_identifier = "sum"

    def __init__(self, *, with_throughput: bool | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._settings["with_throughput"] = with_throughput
        self.has_throughputs = bool(with_throughput)
        self._throughput = Throughput(self._clock)

    def reduce_numbers(self, values: list[float]) -> float:
        return sum(values)

    def result(self, parts: list[Tree]) -> float:
        return float_or_int(parts[0]) if parts else 0

    @property
    def throughputs(self) -> MetricValue:
        """Sum per second since the last reduce."""
        return self._throughput.since_last_reduce(self.peek())

    def take(self) -> StatsBase:
        sent = super().take()
        self._throughput.reduced(0.0)
        return sent


class LifetimeSumStats(SumStats):
    """Sum over the whole run, including earlier runs that it continues.

    Only the root's stats keep the sum; reducing a component returns the increase since the last
    reduce.
    """

    stats_cls_identifier = "lifetime_sum"

    def __init__(self, *, with_throughput: bool | None = None, **settings: object) -> None:
        settings.pop("window", None)
        settings["clear_on_reduce"] = False
        super().__init__(with_throughput=with_throughput, **settings)

    @property
    def throughputs(self) -> dict[str, float]:
        """Sum per second since the last reduce, and for the root since the start or restore."""
        value = self.peek()
        rates = {"throughput_since_last_reduce": self._throughput.since_last_reduce(value)}
        if self.is_root:
            rates["throughput_since_last_restore"] = self._throughput.since_last_restore(value)
        return rates

    def take(self) -> StatsBase:
        sent = super().take()
        self._throughput.reduced(self.peek())
        return sent

    def set_values(self, values: StateDict) -> None:
        super().set_values(values)
        self._throughput.restart(self.peek())
