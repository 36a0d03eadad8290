"""`BatchQueue`: decides which items form the next batch, and when it starts. Pure.

Items of one key (a model) wait in the order of their arrival; a batch contains only items of one
key. At most `max_concurrent_batches` run. A batch starts when it is full, or when the policy stops
waiting:

- `FixedWait`: until its oldest item has waited `timeout_s`.
- `AdaptiveWait`: for the items that usually follow. Callers that got a result usually send their
  next item soon. While fewer items have arrived than results were returned, the policy waits for
  the next one if waiting costs the queued items less than another batch would: with b items, at
  most a/b seconds, where a is the fixed part of the batch duration. It does not wait for callers
  that are slower than the model, or that did not return in time before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import islice
from typing import Generic, Protocol, TypeVar

from syncline.records import dataclass
from syncline.serve.exceptions import RayServeException

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class BatchQueueStatistics:
    """Counts of a batch queue."""

    queued: int
    running: int
    """Number of running batches."""
    batches: int
    """Number of started batches."""
    items: int
    """Number of items in started batches."""


class WaitPolicy(Protocol):
    """Decides how long an incomplete batch waits."""

    def arrived(self, now: float) -> None:
        """Handle the arrival of an item."""

    def started(self, now: float) -> None:
        """Handle the start of a batch."""

    def ended(self, size: int, duration_s: float, now: float) -> None:
        """Handle the end of a batch."""

    def start_at(self, size: int, oldest: float) -> float:
        """Return the time at which an incomplete batch of `size` items should start."""


class FixedWait:
    """Waits until the oldest item has waited `timeout_s`."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    def arrived(self, now: float) -> None:
        """Do nothing."""

    def started(self, now: float) -> None:
        """Do nothing."""

    def ended(self, size: int, duration_s: float, now: float) -> None:
        """Do nothing."""

    def start_at(self, size: int, oldest: float) -> float:
        """Return the end of the oldest item's wait."""
        return oldest + self.timeout_s


class AdaptiveWait:
    """Waits for callers that got a result and usually send their next item within a batch duration.

    Durations of batches are fitted as a + c * size by decayed least squares.
    """

    _DECAY = 0.95
    _SMOOTHING = 0.1
    _UNKNOWN_FIXED_PART = 0.5  # of the mean duration, while all batches have the same size
    _FORGETTING = 0.98  # decay of the gap, to retry waiting after it did not pay off

    def __init__(self) -> None:
        self._expected = 0  # returned results minus items that arrived since
        self._event = 0.0  # last arrival or end of a batch
        self._ended = 0.0
        self._gap = 0.0  # mean seconds from an event to the next expected arrival
        self._return = 0.0  # mean seconds from the end of a batch to the arrivals that it caused
        self._weight = self._sizes = self._durations = 0.0
        self._squares = self._products = 0.0

    def arrived(self, now: float) -> None:
        """Handle the arrival of an item."""
        if self._expected:
            self._expected -= 1
            self._gap += self._SMOOTHING * (now - self._event - self._gap)
            self._return += self._SMOOTHING * (now - self._ended - self._return)
        self._event = now

    def started(self, now: float) -> None:
        """Stop expecting callers that did not return in time."""
        if self._expected and now > self._event:
            self._gap += self._SMOOTHING * max(now - self._event - self._gap, 0.0)
        self._expected = 0

    def ended(self, size: int, duration_s: float, now: float) -> None:
        """Expect the callers of the batch to return; update the duration estimate."""
        self._expected += size
        self._event = self._ended = now
        self._gap *= self._FORGETTING
        keep = self._DECAY
        self._weight = keep * self._weight + 1.0
        self._sizes = keep * self._sizes + size
        self._durations = keep * self._durations + duration_s
        self._squares = keep * self._squares + size * size
        self._products = keep * self._products + size * duration_s

    def start_at(self, size: int, oldest: float) -> float:
        """Return the time until which waiting is worthwhile."""
        if not self._expected:
            return oldest
        fixed, mean = self._times()
        patience = fixed / size
        if self._gap > patience or self._return > mean:
            return oldest
        return self._event + patience

    def _times(self) -> tuple[float, float]:
        """Return the fixed part and the mean of the duration of batches."""
        mean, size = self._durations / self._weight, self._sizes / self._weight
        variance = self._squares / self._weight - size * size
        if variance < 0.01 * size * size:
            return self._UNKNOWN_FIXED_PART * mean, mean
        slope = (self._products / self._weight - size * mean) / variance
        return min(max(mean - max(slope, 0.0) * size, 0.05 * mean), mean), mean


class BatchQueue(Generic[Item]):
    """Waiting items, and the number of running batches."""

    def __init__(
        self,
        policy: WaitPolicy,
        *,
        max_batch_size: int,
        max_concurrent_batches: int = 1,
        size_of: Callable[[Sequence[Item]], float] | None = None,
    ) -> None:
        """`size_of` computes the size of a batch; by default it is the number of items."""
        self.policy = policy
        self.max_batch_size = max_batch_size
        self._max_running = max_concurrent_batches
        self._size_of = size_of
        self._waiting: dict[Hashable, OrderedDict[Item, float]] = {}
        self._keys: dict[Item, Hashable] = {}
        self._running = 0
        self._batches = 0
        self._items = 0

    def add(self, item: Item, key: Hashable, now: float) -> None:
        """Append an item."""
        items = self._waiting.get(key)
        if items is None:
            items = self._waiting[key] = OrderedDict()
        items[item] = now
        self._keys[item] = key
        self.policy.arrived(now)

    def remove(self, item: Item) -> bool:
        """Remove a waiting item; return False if it is not waiting."""
        if item not in self._keys:
            return False
        self._take(self._keys[item], [item])
        return True

    def take(self, now: float) -> tuple[list[Item], list[tuple[Item, Exception]]]:
        """Return the batch that starts now (or an empty one), and items that fit in no batch.

        Call it again until both are empty. Call `ended` after each batch.
        """
        failed: list[tuple[Item, Exception]] = []
        if self._running >= self._max_running:
            return [], failed
        for key in self._by_age():
            batch, is_full = self._largest(key, failed)
            if batch and (is_full or self._start_at(key, batch) <= now):
                self._take(key, batch)
                self._running += 1
                self._batches += 1
                self._items += len(batch)
                self.policy.started(now)
                return batch, failed
        return [], failed

    def ended(self, size: int, duration_s: float, now: float) -> None:
        """Handle the end of a batch of `size` items."""
        self._running -= 1
        self.policy.ended(size, duration_s, now)

    def next_moment(self) -> float | None:
        """Return the time at which `take` should be called again; None: after the next change."""
        if self._running >= self._max_running or not self._waiting:
            return None
        return min(self._start_at(key, self._largest(key, None)[0]) for key in list(self._waiting))

    def statistics(self) -> BatchQueueStatistics:
        """Return the current counts."""
        return BatchQueueStatistics(
            queued=len(self._keys), running=self._running, batches=self._batches, items=self._items
        )

    def _by_age(self) -> list[Hashable]:
        """Return the keys, starting with that of the oldest item."""
        if len(self._waiting) < 2:
            return list(self._waiting)
        return sorted(self._waiting, key=lambda key: next(iter(self._waiting[key].values())))

    def _start_at(self, key: Hashable, batch: list[Item]) -> float:
        oldest = next(iter(self._waiting[key].values()))
        return self.policy.start_at(len(batch), oldest) if batch else oldest

    def _largest(
        self, key: Hashable, failed: list[tuple[Item, Exception]] | None
    ) -> tuple[list[Item], bool]:
        """Return the largest batch of the key's items, and True if no other item fits.

        Items that are too large for any batch are removed and appended to `failed` if given.
        """
        waiting = self._waiting[key]
        if self._size_of is None:
            batch = list(islice(waiting, self.max_batch_size))
            return batch, len(batch) >= self.max_batch_size
        batch = []
        for item in list(waiting):
            size, error = self._measured([*batch, item])
            if error is None and size <= self.max_batch_size:
                batch.append(item)
                if size == self.max_batch_size:
                    return batch, True
            elif batch:
                return batch, True
            elif failed is not None:
                failed.append((item, error or _too_large(size, self.max_batch_size)))
                self._take(key, [item])
        return batch, False

    def _measured(self, items: list[Item]) -> tuple[float, Exception | None]:
        assert self._size_of is not None
        try:
            size = self._size_of(items)
            if isinstance(size, bool) or not size >= 0:
                raise TypeError(f"`batch_size_fn` returned {size!r}: return a number")
        except Exception as error:
            return 0, error
        return size, None

    def _take(self, key: Hashable, items: list[Item]) -> None:
        waiting = self._waiting[key]
        for item in items:
            del waiting[item], self._keys[item]
        if not waiting:
            del self._waiting[key]


def _too_large(size: float, limit: int) -> RayServeException:
    return RayServeException(
        f"an item of size {size} is larger than `max_batch_size={limit}`: raise the limit, or make "
        f"the item smaller"
    )
