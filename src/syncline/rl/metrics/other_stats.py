"""Other stats: moving average, items of any type, percentiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from syncline.rl.metrics.series_stats import SeriesStats
from syncline.rl.metrics.stats import COMPACT_AFTER, NAN, MetricValue, StatsBase, numbers, plain
from syncline.rl.value_types import Options, Results, StateDict

DEFAULT_PERCENTILES = (0, 50, 75, 90, 95, 99, 100)


class EmaStats(StatsBase):
    """Exponential moving average: value = ema_coeff * new + (1 - ema_coeff) * value.

    The first value initializes it. A component keeps its average; the root's value is the mean of
    the averages merged since its last reduce.
    """

    stats_cls_identifier = "ema"

    def __init__(self, *, ema_coeff: float = 0.01, **settings: Any) -> None:
        settings.pop("clear_on_reduce", None)
        super().__init__(**settings)
        self._ema_coeff = ema_coeff
        self._value: float | None = None
        self._pending: list[MetricValue] = []
        self._merged: list[float] = []

    def settings(self) -> Options:
        return {"ema_coeff": self._ema_coeff}

    def push(self, value: object) -> None:
        self._pending.append(value)
        if len(self._pending) == COMPACT_AFTER:
            self._fold()

    def _fold(self) -> None:
        coeff, average = self._ema_coeff, self._value
        for value in numbers(self._pending):
            average = value if average is None else coeff * value + (1.0 - coeff) * average
        self._value = average
        self._pending = []

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> MetricValue:
        if latest_merged_only:
            merged = self.latest_merged or []
        else:
            self._fold()
            merged = self._merged
        value = math.fsum(merged) / len(merged) if merged else self._value
        if value is None or (latest_merged_only and not merged):
            value = NAN
        return value if compile else [value]

    def take(self) -> StatsBase:
        value = self.peek()
        self._value, self._merged = (None if math.isnan(value) else value), []
        sent = self.clone()
        sent._value = self._value
        return sent

    def merge(self, incoming_stats: Sequence[EmaStats]) -> None:
        values = [stats.peek() for stats in incoming_stats]
        self.latest_merged = [value for value in values if not math.isnan(value)]
        self._merged.extend(self.latest_merged)

    def get_values(self) -> Results:
        self._fold()
        return {"value": self._value, "merged": list(self._merged)}

    def set_values(self, values: StateDict) -> None:
        self._value, self._merged = values["value"], list(values["merged"])
        self._pending = []

    def __len__(self) -> int:
        return 1


class ItemStats(StatsBase):
    """The latest value, of any type; None if nothing was logged since the last reduce."""

    stats_cls_identifier = "item"

    def __init__(self, *, clear_on_reduce: bool | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self._clear = clear_on_reduce is not False
        self._item: MetricValue = None

    def settings(self) -> Options:
        return {"clear_on_reduce": self._clear}

    def push(self, value: object) -> None:
        self._item = value

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> MetricValue:
        self._item = plain(self._item)
        return self._item if compile else [self._item]

    def take(self) -> StatsBase:
        sent = self.clone()
        sent._item = plain(self._item)
        if self._clear:
            self._item = None
        return sent

    def merge(self, incoming_stats: Sequence[ItemStats]) -> None:
        for stats in incoming_stats:
            self._item = stats._item

    def get_values(self) -> Results:
        return {"item": plain(self._item)}

    def set_values(self, values: StateDict) -> None:
        self._item = values["item"]

    def __len__(self) -> int:
        return 1


class ItemSeriesStats(SeriesStats):
    """The list of values of any type: the last `window`, or all since the last reduce."""

    stats_cls_identifier = "item_series"

    def push(self, value: object) -> None:
        self.values.append(value)
        self._unsent += 1

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> MetricValue:
        return list((self.latest_merged or ()) if latest_merged_only else self._read())

    def take(self) -> StatsBase:
        sent = self.clone()
        fresh = min(self._unsent, len(self.values))
        sent.values.extend(list(self._read())[len(self.values) - fresh :])
        self._unsent = 0
        if self._clear:
            self.values.clear()
        return sent

    def merge(self, incoming_stats: Sequence[SeriesStats]) -> None:
        self.latest_merged = [value for stats in incoming_stats for value in stats.values]
        self.values.extend(self.latest_merged)
        self._unsent += len(self.latest_merged)

    def get_values(self) -> Results:
        return {"values": list(self._read()), "parts": [], "unsent": self._unsent}


class PercentilesStats(ItemSeriesStats):
    """Percentiles with linear interpolation, as a dict from percentile to value (None without
    values).
    """

    stats_cls_identifier = "percentiles"

    def __init__(
        self, *, percentiles: Sequence[float] | bool | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        if percentiles is None or isinstance(percentiles, bool):
            percentiles = DEFAULT_PERCENTILES
        outside = [p for p in percentiles if not 0 <= p <= 100]
        if outside:
            raise ValueError(f"`percentiles` must be between 0 and 100; got {outside}.")
        self._percentiles = list(percentiles)

    def settings(self) -> Options:
        return {**super().settings(), "percentiles": list(self._percentiles)}

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> MetricValue:
        values = sorted(numbers(super().peek(latest_merged_only=latest_merged_only)))
        return percentiles_of(values, self._percentiles) if compile else values


def percentiles_of(
    ordered: Sequence[float], percentiles: Sequence[float]
) -> dict[float, float | None]:
    """Return percentiles of ascending values, interpolated between neighbours."""
    if not ordered:
        return dict.fromkeys(percentiles)
    found: dict[float, float | None] = {}
    for percentile in percentiles:
        position = percentile / 100 * (len(ordered) - 1)
        below = math.floor(position)
        above, weight = min(below + 1, len(ordered) - 1), position - below
        found[percentile] = ordered[below] * (1 - weight) + ordered[above] * weight
    return found
