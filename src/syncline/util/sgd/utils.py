"""What operators measure with: averages of metrics over batches, timers; and the keys that both
sides of a result know.

Pure Python: a metric may be a number or anything with `item()`, such as a tensor of one element.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

BATCH_COUNT = "batch_count"
"""How many batches a result is of."""
NUM_SAMPLES = "num_samples"
"""How many samples a batch, or a result, is of."""
BATCH_SIZE = "*batch_size"
"""The key of `config` for the batch size, in programs of old."""

F = TypeVar("F", bound=Callable[..., Any])


class AverageMeter:
    """The running mean of one metric, each value with a weight."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.val: float = 0
        """The last value."""
        self.avg: float = 0
        """The weighted mean so far."""
        self.sum: float = 0
        """The sum of weighted values."""
        self.count: float = 0
        """The sum of weights."""

    def update(self, val: float, n: float = 1) -> None:
        """Add `val` with the weight `n`."""
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count if self.count else 0


class AverageMeterCollection:
    """The running means of all metrics of an epoch."""

    def __init__(self) -> None:
        self._batch_count = 0
        self.n: float = 0
        self._meters: dict[str, AverageMeter] = defaultdict(AverageMeter)

    def update(self, metrics: Mapping[str, Any], n: float = 1) -> None:
        """Add the metrics of one batch of `n` samples."""
        self._batch_count += 1
        self.n += n
        for name, value in metrics.items():
            self._meters[name].update(value.item() if hasattr(value, "item") else value, n)

    def summary(self) -> dict[str, Any]:
        """`batch_count`, `num_samples`, and for each metric `x` its mean over samples as `x` and
        its last value as `last_x`.
        """
        stats: dict[str, Any] = {BATCH_COUNT: self._batch_count, NUM_SAMPLES: self.n}
        for name, meter in self._meters.items():
            stats[str(name)] = meter.avg
            stats[f"last_{name}"] = meter.val
        return stats


class TimerCollection:
    """Seconds by name, measured while it is enabled."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._enabled = True
        self._meters: dict[str, AverageMeter] = defaultdict(AverageMeter)

    def enable(self) -> None:
        """Measure from now on."""
        self._enabled = True

    def disable(self) -> None:
        """Stop measuring."""
        self._enabled = False

    def reset(self) -> None:
        """Forget everything."""
        self._meters.clear()

    @contextmanager
    def record(self, key: str) -> Iterator[None]:
        """Measure a block under a name."""
        began = self._clock()
        yield
        if self._enabled:
            self._meters[key].update(self._clock() - began)

    def stats(self, mean: bool = True, last: bool = False) -> dict[str, float]:
        """`mean_<key>_s`, and with `last` also `last_<key>_s`, in seconds."""
        stats: dict[str, float] = {}
        for key, meter in self._meters.items():
            if mean:
                stats[f"mean_{key}_s"] = meter.avg
            if last:
                stats[f"last_{key}_s"] = meter.val
        return stats


def override(interface_class: type) -> Callable[[F], F]:
    """Marks a method that overrides one of `interface_class`; AttributeError if there is none of
    that name.
    """

    def check(method: F) -> F:
        if not hasattr(interface_class, method.__name__):
            raise AttributeError(
                f"`{method.__name__}` is marked as an override, but {interface_class.__name__} has no method of this name, so nobody would "
                "call it: correct the name."
            )
        return method

    return check
