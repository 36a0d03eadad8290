"""`StatsBase`: the values logged under one key, and their reduction.

Covered: the base class of stats, and reading numbers and tensors. Not covered: the reductions
(`series_stats`: mean, sum, min, max, lifetime_sum; `other_stats`: ema, item, item_series,
percentiles), keys (`metrics_logger`).

A `push` stores the value. Tensors are read when the value is needed (peek, reduce, state), so
logging does not wait for a device. Reductions of numbers ignore NaN.

Every `reduce(compile=False)` of a component returns the values pushed since the previous one, and
the root merges these parts. A window therefore covers the latest values of all components, and a
mean over several components weighs each value equally.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from syncline.rl.value_types import Options, Results, StateDict

if TYPE_CHECKING:
    from typing_extensions import Self

NAN = math.nan
COMPACT_AFTER = 4096
"""Number of stored values after which stats without a window fold them into one."""

Clock = Callable[[], float]

MetricValue: TypeAlias = Any
"""A logged or reduced value: a number, an array, a list, or another object."""


def plain(value: MetricValue) -> MetricValue:
    """Move a value off its device: return a number for a tensor or NumPy scalar with one element,
    an array for a larger tensor, and any other value unchanged.
    """
    if isinstance(value, (int, float, str)):
        return value
    detach = getattr(value, "detach", None)
    if detach is not None:
        value = detach()
        return value.item() if value.numel() == 1 else value.cpu().numpy()
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def number(value: MetricValue) -> float:
    """Return a logged value as a number.

    Raises:
        TypeError: It is neither a number nor has exactly one element.
    """
    if isinstance(value, (int, float)):
        return value
    try:
        item: float = value.item() if hasattr(value, "item") else float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"Cannot reduce {value!r} of type {type(value).__name__} to a number. Log numbers or "
            "tensors with one element, or use reduce='item' or reduce='item_series'."
        ) from error
    return item


def numbers(values: Iterable[object]) -> list[float]:
    """Return the logged values as numbers, without NaN."""
    read = [number(value) for value in values]
    return [value for value in read if not math.isnan(value)]


class StatsBase:
    """The values of one key.

    Not thread-safe. A subclass is registered in `stats_cls_lookup` under its
    `stats_cls_identifier`; its constructor takes `is_root` and the settings passed to `log_value`
    that are not None (window, ema_coeff, percentiles, with_throughput, clear_on_reduce).
    """

    stats_cls_identifier: ClassVar[str] = ""
    has_throughputs = False

    def __init__(self, *, is_root: bool = False, clock: Clock = time.perf_counter) -> None:
        self.is_root = is_root
        self._clock = clock
        self.latest_merged: MetricValue = None

    def settings(self) -> Options:
        """Return the constructor arguments for equal stats without values."""
        return {}

    @property
    def throughputs(self) -> MetricValue:
        """Growth per second; only if `has_throughputs`."""
        raise NotImplementedError

    def push(self, value: object) -> None:
        """Add one value."""
        raise NotImplementedError

    def peek(self, compile: bool = True, latest_merged_only: bool = False) -> MetricValue:
        """Return the reduced values without changing them; as a list if `compile` is False.

        With `latest_merged_only`, reduce only the values of the latest `merge`.
        """
        raise NotImplementedError

    def take(self) -> StatsBase:
        """Return the values since the last reduce, as stats to merge, and start a new period."""
        raise NotImplementedError

    def merge(self, incoming_stats: Sequence[MetricValue]) -> None:
        """Add the values that `take` of other stats of this class returned."""
        raise NotImplementedError

    def get_values(self) -> Results:
        """Return the values as plain data."""
        raise NotImplementedError

    def set_values(self, values: StateDict) -> None:
        """Replace the values with those of `get_values`."""
        raise NotImplementedError

    def reduce(self, compile: bool = True) -> MetricValue:
        """Start a new period; return the reduced values or, if `compile` is False, the stats for
        the root to merge.
        """
        if not compile:
            return self.take()
        value = self.peek()
        self.take()
        return value

    def clone(self, **overrides: object) -> Self:
        """Return stats with the same settings and without values."""
        settings = {"is_root": self.is_root, "clock": self._clock, **self.settings()}
        return type(self)(**{**settings, **overrides})

    def get_state(self) -> StateDict:
        """Return settings and values as plain data."""
        return {
            "stats_cls_identifier": self.stats_cls_identifier,
            "is_root": self.is_root,
            "settings": self.settings(),
            "values": self.get_values(),
        }

    @classmethod
    def from_state(cls, state: StateDict, clock: Clock = time.perf_counter) -> StatsBase:
        """Rebuild stats from the state that `get_state` returned."""
        stats = cls(is_root=state["is_root"], clock=clock, **state["settings"])
        stats.set_values(state["values"])
        return stats

    def __float__(self) -> float:
        return number(self.peek())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.peek()!r})"

    def __getstate__(self) -> StateDict:
        return {"state": self.get_state()}

    def __setstate__(self, pickled: StateDict) -> None:
        restored = type(self).from_state(pickled["state"])
        self.__dict__.update(restored.__dict__)
