"""`StreamDataset`: an `IterableDataset` whose passes can begin in the middle, in the main process
or in loader processes, and whose batches carry their position.

A loader's process prefetches, so only the position that a batch carries is that of the program.
Loader processes get the parts of a pass (see `stream_parts`) with the first index of the pass,
since persistent ones have a copy of the dataset that is older than the pass.

Loader processes seed the global generators for each batch from the part and the position in it, so
random augmentation is the same in any process and after a restart.
"""

from __future__ import annotations

import base64
import pickle
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.pin_memory import pin_memory

from syncline.train.torch.random_generators import seed_generators
from syncline.train.torch.stream_libraries import (
    StreamLibrary,
    in_place_of,
    is_made_here,
    library_of,
)
from syncline.train.torch.stream_parts import ShareCounter, StreamPart

_BATCH_KEY = struct.Struct("<QQQQ")

Slots = Sequence[tuple[StreamPart, ...]]
"""Parts of a rank, for each of its loader processes."""

_received: dict[str, Slots] = {}


@dataclass(frozen=True)
class StreamBatch:
    """A batch, and the parts that remain in its loader process after it."""

    batch: Any
    worker: int
    parts: tuple[StreamPart, ...]

    def pin_memory(self) -> StreamBatch:
        """Return the batch in pinned memory; called by torch."""
        return replace(self, batch=pin_memory(self.batch))  # type: ignore[no-untyped-call]


class StreamIndex:
    """Index that brings the parts of a pass to a loader process. There it becomes the plain
    index.
    """

    __slots__ = ("_index", "_slots")

    def __init__(self, index: object, slots: Slots) -> None:
        self._index = index
        self._slots = slots

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, Slots]]:
        return _receive, (self._index, self._slots)


def _receive(index: object, slots: Slots) -> object:
    _received["slots"] = slots
    return index


def with_slots(indices: Iterable[object], slots: Slots) -> Iterator[object]:
    """Yield the indices; the first one for each loader process brings its parts."""
    for number, index in enumerate(indices):
        yield StreamIndex(index, slots) if number < len(slots) else index


class StreamDataset(IterableDataset[Any]):
    """Yields the samples of the parts of a pass, one part after the other.

    Args:
        dataset: The program's dataset.
        batch_size: Samples per batch; 1 if each sample is a batch.
    """

    def __init__(self, dataset: Any, batch_size: int) -> None:
        self.dataset = dataset
        self.library: StreamLibrary = library_of(dataset)
        self.batch_size = batch_size
        self.slots: Slots = ()
        """Parts of the pass, if there are no loader processes."""
        self._pass: _Pass | None = None

    def __iter__(self) -> Iterator[Any]:
        if get_worker_info() is None:
            self._pass = _Pass(self, self.slots[0], seeds=False)
            self._pass.skip()
            return self._pass
        return self._in_worker()

    def _in_worker(self) -> Iterator[Any]:
        # Called before the first index arrives, and run after it.
        info: Any = get_worker_info()
        self._pass = _Pass(self, _received["slots"][info.id], seeds=True)
        yield from self._pass

    def mark(self, batch: Any) -> StreamBatch:
        """Return a batch with the position after it."""
        assert self._pass is not None
        info = get_worker_info()
        return StreamBatch(batch, 0 if info is None else info.id, self._pass.end_batch())


@dataclass(frozen=True)
class StreamCollate:
    """`collate_fn` whose batches carry their position."""

    dataset: StreamDataset
    collate: Callable[[Any], Any]

    def __call__(self, samples: Any) -> StreamBatch:
        return self.dataset.mark(self.collate(samples))


@dataclass(frozen=True)
class WorkerInit:
    """`worker_init_fn` that shows the program's function and dataset the program's dataset."""

    call: Callable[[int], None] | None

    def __call__(self, worker: int) -> None:
        info: Any = torch_worker._worker_info
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=info.dataset.dataset
        )
        if self.call is not None:
            self.call(worker)


class _Pass(Iterator[Any]):
    """Samples of a process from the parts of a pass."""

    def __init__(
        self, source: StreamDataset, parts: tuple[StreamPart, ...], *, seeds: bool
    ) -> None:
        self._source = source
        self._parts = parts
        self._seeds = seeds
        self._starts_batch = True
        self._stream: _Stream | None = None

    def skip(self) -> None:
        """Read the consumed samples of the first part now."""
        if self._parts and self._stream is None:
            self._stream = _Stream(self._source, self._parts[0], seeds=self._seeds)

    def __next__(self) -> Any:
        while self._parts:
            self.skip()
            assert self._stream is not None
            if self._starts_batch and self._seeds:
                self._stream.seed()
            self._starts_batch = False
            try:
                return next(self._stream)
            except StopIteration:
                self._parts, self._stream = self._parts[1:], None
        raise StopIteration

    def end_batch(self) -> tuple[StreamPart, ...]:
        """Return the position after the batch that was just completed."""
        self._starts_batch = True
        if self._stream is None:
            return self._parts
        return (self._stream.position(), *self._parts[1:])


class _Stream(Iterator[Any]):
    """Samples of one part, from its position on."""

    def __init__(self, source: StreamDataset, part: StreamPart, *, seeds: bool) -> None:
        self._library, self._batch_size = source.library, source.batch_size
        state = None if part.state is None else pickle.loads(base64.b64decode(part.state))
        self._counter = ShareCounter(part.shares, [] if state is None else list(part.seen))
        self._part = part
        self._items = part.items if state is not None else 0
        self._is_made_here = is_made_here(part, self._library)
        if self._is_made_here:
            self._begin(source.dataset, part, state)
        else:
            with in_place_of(part):
                self._begin(source.dataset, part, state)
        while self._items < part.items:
            if seeds and self._items % self._batch_size == 0:
                self.seed()
            if next(self, None) is None:
                raise RuntimeError(
                    f"the IterableDataset has only {self._items} samples for loader process "
                    f"{part.worker} of rank {part.rank}, but {part.items} were read before the "
                    "restart: its samples have changed. Restore them, or restart the epoch with "
                    "`DataConfig(resume=False)`."
                )

    def _begin(self, dataset: Any, part: StreamPart, state: object) -> None:
        self._dataset, order = self._library.start(dataset, part, state)
        self._part = replace(self._part, order=order)
        self._samples = iter(self._dataset)

    def __next__(self) -> Any:
        while True:
            if self._is_made_here:
                sample = next(self._samples)
            else:
                with in_place_of(self._part):
                    sample = next(self._samples)
            if self._counter.takes():
                self._items += 1
                return sample

    def seed(self) -> None:
        """Seed the global generators for a batch that begins here."""
        part = self._part
        seed_generators(_BATCH_KEY.pack(part.seed, part.rank, part.worker, self._items))

    def position(self) -> StreamPart:
        """Return the part with the current position."""
        state = self._library.state(self._dataset)
        if state is None:
            return replace(self._part, items=self._items)
        text = base64.b64encode(pickle.dumps(state)).decode()
        return replace(self._part, items=self._items, state=text, seen=tuple(self._counter.seen))
