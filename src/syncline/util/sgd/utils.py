"""Averages of metrics over batches, timers, and keys of results.

Pure Python: a metric is a number or an object with `item()`, such as a tensor with one element.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

BATCH_COUNT = "batch_count"
"""Key for the number of batches of a result."""
NUM_SAMPLES = "num_samples"
"""Key for the number of samples of a batch or a result."""
BATCH_SIZE = "*batch_size"
"""Key of `config` for the batch size in older programs."""

F = TypeVar("F", bound=Callable[..., Any])


class AverageMeter:
    """Weighted running mean of one metric."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset all values to 0."""
        self.val: float = 0
        """Last value."""
        self.avg: float = 0
        """Weighted mean so far."""
        self.sum: float = 0
        """Sum of weighted values."""
        self.count: float = 0
        """Sum of weights."""

    def update(self, val: float, n: float = 1) -> None:
        """Add `val` with the weight `n`."""
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count if self.count else 0


class AverageMeterCollection:
    """Running means of all metrics of an epoch."""

    def __init__(self) -> None:
        self._batch_count = 0
        self.n: float = 0
        self._meters: dict[str, AverageMeter] = defaultdict(AverageMeter)

    def update(self, metrics: Mapping[str, float], n: float = 1) -> None:
        """Add the metrics of one batch of `n` samples."""
        self._batch_count += 1
        self.n += n
        for name, value in metrics.items():
            self._meters[name].update(value.item() if hasattr(value, "item") else value, n)

    def summary(self) -> dict[str, float]:
        """Return `batch_count`, `num_samples`, and for each metric `x` its mean over samples as
        `x` and its last value as `last_x`.
        """
        stats: dict[str, float] = {BATCH_COUNT: self._batch_count, NUM_SAMPLES: self.n}
        for name, meter in self._meters.items():
            stats[str(name)] = meter.avg
            stats[f"last_{name}"] = meter.val
        return stats


class TimerCollection:
    """Named timers in seconds, active while enabled."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._enabled = True
        self._meters: dict[str, AverageMeter] = defaultdict(AverageMeter)

    def enable(self) -> None:
        """Enable the timers."""
        self._enabled = True

    def disable(self) -> None:
        """Disable the timers."""
        self._enabled = False

    def reset(self) -> None:
        """Remove all timers."""
        self._meters.clear()

    @contextmanager
    def record(self, key: str) -> Iterator[None]:
        """Measure the duration of a block."""
        began = self._clock()
        yield
        if self._enabled:
            self._meters[key].update(self._clock() - began)

    def stats(self, mean: bool = True, last: bool = False) -> dict[str, float]:
        """Return `mean_<key>_s`, and with `last` also `last_<key>_s`, in seconds."""
        stats: dict[str, float] = {}
        for key, meter in self._meters.items():
            if mean:
                stats[f"mean_{key}_s"] = meter.avg
            if last:
                stats[f"last_{key}_s"] = meter.val
        return stats


def override(interface_class: type) -> Callable[[F], F]:
    """Mark a method as an override of a method of `interface_class`.

    Raises:
        AttributeError: `interface_class` has no method of that name.
    """

    def check(method: F) -> F:
        if not hasattr(interface_class, method.__name__):
            raise AttributeError(
                f"`{method.__name__}` is marked as an override, but {interface_class.__name__} has "
                "no such method: correct the name."
            )
        return method

    return check
