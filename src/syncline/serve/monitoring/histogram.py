"""Histograms of times in logarithmic buckets 2 % wide. Pure.

Bucket 0 holds times up to a microsecond, bucket i those up to 1.02**i microseconds. A histogram is
a dict from bucket to count; buckets without counts are left out, so that it is small wherever it is
sent or stored. Hot paths append seconds to a `Samples` list, and pay for the buckets once a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from math import exp, isfinite, log

from syncline.records import dataclass

BUCKET_RATIO = 1.02
"""Upper by lower bound of a bucket."""
_SCALE = 1 / log(BUCKET_RATIO)
_LOWEST_S = 1e-6
HIGHEST_BUCKET = int(log(86_400.0 / _LOWEST_S) * _SCALE) + 2
"""Bucket of a day and more."""

Buckets = dict[int, int]
"""Counts by bucket."""


def bucket_of(seconds: float) -> int:
    """Return the bucket of a time."""
    if seconds <= _LOWEST_S:
        return 0
    return min(int(log(seconds * 1e6) * _SCALE) + 1, HIGHEST_BUCKET)


def middle_of(bucket: int) -> float:
    """Return a time in the middle of a bucket, in seconds."""
    return _LOWEST_S * exp((bucket - 0.5) / _SCALE) if bucket else 0.0


@dataclass(frozen=True, kw_only=True)
class Times:
    """Number, sum and distribution of some times."""

    count: int = 0
    sum_s: float = 0.0
    buckets: Mapping[int, int] = field(default_factory=dict)
    """Counts by bucket; their sum may differ slightly from `count`: see `Samples`."""

    def __add__(self, other: Times) -> Times:
        """Return both together."""
        if not other.count:
            return self
        if not self.count:
            return other
        buckets = dict(self.buckets)
        for bucket, count in other.buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        return Times(
            count=self.count + other.count, sum_s=self.sum_s + other.sum_s, buckets=buckets
        )

    def __sub__(self, earlier: Times) -> Times:
        """Return the times that were added since `earlier`."""
        if not earlier.count:
            return self
        buckets = {
            bucket: added
            for bucket, count in self.buckets.items()
            if (added := count - earlier.buckets.get(bucket, 0)) > 0
        }
        return Times(
            count=self.count - earlier.count, sum_s=self.sum_s - earlier.sum_s, buckets=buckets
        )

    @property
    def mean_s(self) -> float | None:
        """The mean; None without times."""
        return self.sum_s / self.count if self.count else None

    def quantile(self, fraction: float) -> float | None:
        """Return the time in seconds that this fraction does not exceed; None without times."""
        rank, seen = fraction * sum(self.buckets.values()), 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= rank:
                return middle_of(bucket)
        return None

    def below(self, bounds_s: Sequence[float]) -> list[int]:
        """Return for each bound, ascending, how many times are not longer."""
        found: list[int] = []
        total = 0
        for bucket in sorted(self.buckets):
            while len(found) < len(bounds_s) and middle_of(bucket) > bounds_s[len(found)]:
                found.append(total)
            total += self.buckets[bucket]
        return found + [total] * (len(bounds_s) - len(found))

    def as_json(self) -> list[float]:
        """Return [count, sum, bucket, its count, next bucket, …] with short numbers."""
        listed: list[float] = [self.count, round(self.sum_s, 6)]
        for bucket in sorted(self.buckets):
            listed += (bucket, self.buckets[bucket])
        return listed

    @classmethod
    def from_json(cls, value: object) -> Times:
        """Return the times of `as_json`; values of another form are left out."""
        if not isinstance(value, list) or len(value) < 2 or not all(map(_is_amount, value)):
            return NO_TIMES
        pairs = zip(value[2::2], value[3::2], strict=False)
        buckets = {
            int(bucket): int(count)
            for bucket, count in pairs
            if bucket <= HIGHEST_BUCKET and count >= 1
        }
        return cls(count=int(value[0]), sum_s=float(value[1]), buckets=buckets)


NO_TIMES = Times()


def _is_amount(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value < 2**53
        and isfinite(value)
    )


def count_times(seconds: Iterable[float]) -> Times:
    """Return the histogram of some times."""
    buckets: Buckets = {}
    count, total, scale = 0, 0.0, _SCALE
    for each in seconds:
        count += 1
        total += each
        bucket = int(log(each * 1e6) * scale) + 1 if each > _LOWEST_S else 0
        buckets[bucket] = buckets.get(bucket, 0) + 1
    if buckets and max(buckets) > HIGHEST_BUCKET:
        for bucket in [each for each in buckets if each > HIGHEST_BUCKET]:
            count_beyond = buckets.pop(bucket)
            buckets[HIGHEST_BUCKET] = buckets.get(HIGHEST_BUCKET, 0) + count_beyond
    return Times(count=count, sum_s=total, buckets=buckets)


MOST_SAMPLES = 4096
"""Samples of one period whose buckets are computed; of more, every n-th is used."""


class Samples(list[float]):
    """Seconds that a hot path appends, and a reporter takes every second.

    Taking blocks the event loop for a millisecond at most: number and sum are exact, but beyond
    `MOST_SAMPLES` the buckets are those of a part of the samples.
    """

    def take(self) -> Times:
        """Return the histogram of the samples and forget them."""
        count = len(self)
        if not count:
            return NO_TIMES
        stride = -(-count // MOST_SAMPLES)
        part = count_times(self[::stride] if stride > 1 else self)
        total = sum(self) if stride > 1 else part.sum_s
        self.clear()
        buckets = {bucket: each * stride for bucket, each in part.buckets.items()}
        return Times(count=count, sum_s=total, buckets=buckets)
