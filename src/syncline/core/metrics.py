"""Metrics of user code: `Counter`, `Gauge` and `Histogram`, the values of this process.

`util.metrics` and `serve.metrics` export the three classes. Metrics of the same name are one
metric. Methods may be called from any thread. `publisher` sends the values to the program; replicas
of serve report them to their controller instead. `metrics_text` has the Prometheus text.
"""

from __future__ import annotations

import bisect
import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from syncline.core.metrics_publisher import Publisher
from syncline.core.metrics_text import HistogramValue, Kind, Tags, UserMetric
from syncline.suggestions import did_you_mean

MOST_SERIES = 10_000
"""Combinations of tags of one metric; further ones are dropped."""
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_TAG = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class _Histogram:
    """Counts of one series of a histogram."""

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0.0


class _Metric:
    """The values of a metric, shared by all objects of its name."""

    def __init__(
        self, *, name: str, kind: Kind, description: str, bounds: tuple[float, ...] = ()
    ) -> None:
        self.name = name
        self.kind = kind
        self.description = description
        self.bounds = bounds
        self.values: dict[Tags, float] = {}
        self.histograms: dict[Tags, _Histogram] = {}


_lock = threading.Lock()
_metrics: dict[str, _Metric] = {}


def collect() -> tuple[UserMetric, ...]:
    """Return the metrics of this process that have values."""
    with _lock:
        return tuple(
            UserMetric(
                name=metric.name,
                kind=metric.kind,
                description=metric.description,
                series=_series(metric),
            )
            for metric in _metrics.values()
            if metric.values or metric.histograms
        )


publisher = Publisher(collect)
"""Publishes the values of this process."""


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    publisher.reset()
    for metric in _metrics.values():  # the values are the parent's
        metric.values.clear()
        metric.histograms.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _series(metric: _Metric) -> tuple[tuple[Tags, float | HistogramValue], ...]:
    if metric.kind != "histogram":
        return tuple(metric.values.items())
    return tuple(
        (tags, HistogramValue(metric.bounds, tuple(value.counts), value.total))
        for tags, value in metric.histograms.items()
    )


class Metric:
    """Base class of the three kinds."""

    _kind: ClassVar[Kind]

    def __init__(
        self,
        name: str,
        description: str = "",
        tag_keys: Sequence[str] | None = None,
        *,
        bounds: tuple[float, ...] = (),
    ) -> None:
        self._arguments: dict[str, Any] = {
            "name": name,
            "description": description,
            "tag_keys": tag_keys,
        }
        self._name = _checked_name(name)
        self._tag_keys = _checked_tag_keys(tag_keys)
        self._defaults: dict[str, str] = {}
        with _lock:
            metric = _metrics.get(self._name)
            if metric is None:
                metric = _metrics[self._name] = _Metric(
                    name=self._name, kind=self._kind, description=description, bounds=bounds
                )
        if metric.kind != self._kind:
            raise ValueError(
                f"metric {self._name!r} is a {metric.kind} already: give the {self._kind} another "
                f"name"
            )
        if metric.bounds != bounds:
            raise ValueError(
                f"histogram {self._name!r} has the boundaries {metric.bounds} already: give the "
                f"same ones, or another name"
            )
        self._metric = metric

    @property
    def info(self) -> dict[str, Any]:
        """Name, description, tag keys and default tags."""
        return {
            "name": self._name,
            "description": self._metric.description,
            "tag_keys": self._tag_keys,
            "default_tags": dict(self._defaults),
        }

    def set_default_tags(self, default_tags: Mapping[str, str]) -> Metric:
        """Set the tags that each value gets; return the metric. ValueError for unknown tags."""
        self._defaults = self._checked_tags(default_tags)
        return self

    def _tags(self, tags: Mapping[str, str] | None) -> Tags:
        if not self._tag_keys and not tags:
            return ()
        given = {**self._defaults, **self._checked_tags(tags or {})}
        missing = [key for key in self._tag_keys if key not in given]
        if missing:
            raise ValueError(
                f"metric {self._name!r} needs values for its tags {', '.join(missing)}: pass "
                f"`tags={{...}}`, or set default tags"
            )
        return tuple((key, given[key]) for key in self._tag_keys)

    def _checked_tags(self, tags: Mapping[str, str]) -> dict[str, str]:
        for key, value in tags.items():
            if key not in self._tag_keys:
                raise ValueError(
                    f"metric {self._name!r} has no tag {key!r}."
                    f"{did_you_mean(key, self._tag_keys)} Its tags are: "
                    f"{', '.join(self._tag_keys) or 'none'}; add it to `tag_keys`."
                )
            if not isinstance(value, str):
                raise TypeError(f"tag {key!r} of metric {self._name!r} is {value!r}: give a string")
        return dict(tags)

    def __reduce__(self) -> tuple[Any, ...]:
        # A metric that travels with the user's class counts in the process where it arrives.
        return _remade, (type(self), self._arguments, self._defaults)


class Counter(Metric):
    """A number that only grows, such as requests."""

    _kind = "counter"

    def inc(self, value: float = 1.0, tags: Mapping[str, str] | None = None) -> None:
        """Add a positive number; raises ValueError for others and for wrong tags."""
        number = _checked_number(self._name, value)
        if not number > 0:
            raise ValueError(f"counter {self._name!r} cannot grow by {value}: give more than 0")
        key = self._tags(tags)
        with _lock:
            values = self._metric.values
            if key in values or len(values) < MOST_SERIES:
                values[key] = values.get(key, 0.0) + number
        publisher.on_change()


class Gauge(Metric):
    """A number that goes up and down, such as the length of a queue."""

    _kind = "gauge"

    def set(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Set the number; raises ValueError for wrong tags."""
        number = _checked_number(self._name, value)
        key = self._tags(tags)
        with _lock:
            values = self._metric.values
            if key in values or len(values) < MOST_SERIES:
                values[key] = number
        publisher.on_change()


class Histogram(Metric):
    """The distribution of a number, such as seconds or sizes."""

    _kind = "histogram"

    def __init__(
        self,
        name: str,
        description: str = "",
        boundaries: Sequence[float] | None = None,
        tag_keys: Sequence[str] | None = None,
    ) -> None:
        """`boundaries` are the upper bounds of the buckets, ascending and above 0."""
        bounds = _checked_bounds(name, boundaries)
        super().__init__(name, description, tag_keys, bounds=bounds)
        self._arguments["boundaries"] = bounds

    def observe(self, value: float, tags: Mapping[str, str] | None = None) -> None:
        """Add an observation; raises ValueError for wrong tags."""
        number = _checked_number(self._name, value)
        key = self._tags(tags)
        bounds = self._metric.bounds
        with _lock:
            histograms = self._metric.histograms
            series = histograms.get(key)
            if series is None:
                if len(histograms) >= MOST_SERIES:
                    return
                series = histograms[key] = _Histogram(len(bounds) + 1)
            series.counts[bisect.bisect_left(bounds, number)] += 1
            series.total += number
        publisher.on_change()


def _remade(cls: type[Metric], arguments: dict[str, Any], defaults: dict[str, str]) -> Metric:
    metric = cls(**arguments)
    return metric.set_default_tags(defaults) if defaults else metric


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"the name of a metric is {name!r}: give a string")
    if not _NAME.fullmatch(name.replace("-", "_")):
        raise ValueError(
            f"{name!r} is not the name of a metric: use letters, digits and underscores, and begin "
            f"with a letter"
        )
    return name.replace("-", "_")


def _checked_tag_keys(keys: object) -> tuple[str, ...]:
    if keys is None:
        return ()
    if isinstance(keys, str) or not isinstance(keys, Sequence):
        raise TypeError(f"`tag_keys` got {keys!r}: give a tuple of strings")
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"`tag_keys` contains {key!r}: give strings")
        if not _TAG.fullmatch(key):
            raise ValueError(
                f"{key!r} in `tag_keys` is not a tag: use letters, digits, underscores"
            )
    return tuple(keys)


def _checked_bounds(name: str, bounds: object) -> tuple[float, ...]:
    if not isinstance(bounds, Sequence) or isinstance(bounds, str) or not bounds:
        raise ValueError(
            f"histogram {name!r} got the boundaries {bounds!r}: give a list of numbers, such as "
            f"[0.1, 1, 10]"
        )
    numbers = tuple(_checked_number(name, bound) for bound in bounds)
    if not numbers[0] > 0 or any(a >= b for a, b in zip(numbers, numbers[1:], strict=False)):
        raise ValueError(
            f"the boundaries of histogram {name!r} are {list(numbers)}: give ascending numbers "
            f"above 0"
        )
    return numbers


def _checked_number(name: str, value: object) -> float:
    if isinstance(value, str) or not hasattr(value, "__float__"):
        raise TypeError(f"metric {name!r} got {value!r}: give a number")
    return float(value)
