"""Histories of values that hold until they change: a load over time, and extremes over a delay.

Pure: times are arguments. Memory and cost per operation do not grow with the number of changes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from syncline.serve.autoscaling_config import AggregationFunction

BUCKETS = 64
"""Parts of a window; changes within one part are merged, so that a mean is exact to 1/64."""
LEAST_WINDOW_S = 0.1
"""Shortest time to look back, so that one short request is not a load."""
IDLE_S = 1.0
"""Seconds without load after which the next load is a burst."""


@dataclass(slots=True)
class _Bucket:
    """Values from `start` to `end`."""

    start: float
    end: float
    area: float
    """Integral of the value."""
    largest: float
    smallest: float


class LoadWindow:
    """The recent values of a count.

    Args:
        length_s: Seconds to look back.
        now: Beginning of the history, when the count is 0; no average includes earlier time.
    """

    def __init__(self, length_s: float, now: float) -> None:
        self._length_s = max(length_s, LEAST_WINDOW_S)
        self._buckets: deque[_Bucket] = deque()
        self._now = now
        self._begin = now
        self._burst = now
        self._zero_since: float | None = now
        self.value = 0.0
        """The current count."""

    def resize(self, length_s: float) -> None:
        """Look back `length_s` from now on, as far as the history reaches."""
        self._length_s = max(length_s, LEAST_WINDOW_S)

    def record(self, now: float, value: float) -> None:
        """Record that the count is `value` from `now` on."""
        if value == self.value:
            return
        self._advance(now)
        if self._zero_since is not None and now - self._zero_since >= IDLE_S:
            self._burst = now
            self._buckets.append(_Bucket(now, now, 0.0, value, value))
        self.value = value
        self._zero_since = now if value == 0 else None

    def aggregate(self, now: float, how: AggregationFunction, *, since_idle: bool = False) -> float:
        """Return the mean (over time), the maximum or the minimum of the window.

        With `since_idle`, the window does not include idle time before the current burst.
        """
        self._advance(now)
        begin = max(self._begin, now - self._length_s)
        if since_idle:
            begin = max(begin, self._burst)
        parts = [each for each in self._buckets if each.end > max(begin, each.start)]
        if how is AggregationFunction.MAX:
            return max([bucket.largest for bucket in parts] + [self.value])
        if how is AggregationFunction.MIN:
            return min([bucket.smallest for bucket in parts] + [self.value])
        area = 0.0
        for bucket in parts:
            covered = (bucket.end - max(bucket.start, begin)) / (bucket.end - bucket.start)
            area += bucket.area * covered
        return area / max(now - begin, 1e-9) if parts else self.value

    def settled_at(self) -> float:
        """Return the time from which on a burst is long enough to judge it."""
        return max(self._begin, self._burst) + LEAST_WINDOW_S

    def is_idle(self, now: float) -> bool:
        """Return True if the count was 0 during the whole window."""
        return self._zero_since is not None and now - self._zero_since >= self._length_s

    def _advance(self, now: float) -> None:
        """Account for the time since the last change, and forget old values."""
        if now <= self._now:
            return
        seconds, value, buckets = now - self._now, self.value, self._buckets
        if not buckets or now - buckets[-1].start > self._length_s / BUCKETS:
            buckets.append(_Bucket(self._now, now, seconds * value, value, value))
        else:
            last = buckets[-1]
            last.end = now
            last.area += seconds * value
            last.largest = max(last.largest, value)
            last.smallest = min(last.smallest, value)
        self._now = now
        while buckets[0].end <= now - self._length_s:
            buckets.popleft()


class SlidingExtreme:
    """The minimum or maximum of a value over the last `length_s` seconds.

    Args:
        length_s: Seconds to look back.
        largest: True for the maximum.
        initial: Value before the first record.
    """

    def __init__(self, length_s: float, *, largest: bool, initial: float) -> None:
        self._length_s = length_s
        self._sign = -1.0 if largest else 1.0
        # (signed value, time at which another value followed), ascending; None: it still holds.
        self._entries: deque[tuple[float, float | None]] = deque([(self._sign * initial, None)])

    def record(self, now: float, value: float) -> None:
        """Record that the value is `value` from `now` on."""
        signed = self._sign * value
        entries = self._entries
        last, end = entries[-1]
        if end is None:
            if last == signed:
                return
            entries[-1] = (last, now)
        while entries and entries[-1][0] >= signed:
            entries.pop()
        entries.append((signed, None))

    def over(self, now: float) -> float:
        """Return the extreme of the values that held at some time of the window."""
        entries = self._entries
        while len(entries) > 1:
            end = entries[0][1]
            if end is None or end > now - self._length_s:
                break
            entries.popleft()
        return self._sign * entries[0][0]
