"""`PreparedDataLoader`: the program's DataLoader with a position that is saved and resumed.

A pass begins with a seed and an order, both drawn from the current random states, which are
recorded. To resume in the middle of a pass, these states are restored, seed and order are drawn
again, and the indices of consumed batches are skipped, so that no consumed sample is loaded again.
"""

from __future__ import annotations

import base64
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader

from syncline.core import random_states
from syncline.train.resume_state import ReaderState
from syncline.train.session import TrainSession
from syncline.train.torch.device import prefetch, transfer
from syncline.train.torch.index_order import IndexSampler, Order, drawn_first
from syncline.train.torch.loader_state import Position, resume_position
from syncline.train.torch.random_generators import RandomStates, with_seeds
from syncline.train.torch.samplers import LoaderEpoch
from syncline.train.torch.stream_dataset import (
    StreamBatch,
    StreamCollate,
    StreamDataset,
    WorkerInit,
    with_slots,
)
from syncline.train.torch.stream_parts import StreamPart

T = TypeVar("T")

logger = logging.getLogger("syncline")


@dataclass(eq=False, kw_only=True)
class LoaderReader:
    """The session's `Reader` for a prepared loader.

    It has no reference to the loader, so the loader and its worker processes end when the program
    drops it.
    """

    name: str
    """Name in messages and checkpoints."""
    session: TrainSession
    order: Order
    indices: IndexSampler
    epoch: LoaderEpoch
    device: torch.device
    prefetches: bool
    """True if one batch is copied ahead. False if this process loads the batches, since it would
    draw the random numbers of that batch too early.
    """
    in_order: bool
    """True if batches arrive in the order of their indices."""
    stream: StreamDataset | None
    """An `IterableDataset` whose batches carry their position; None for other datasets."""
    is_ahead: bool
    """True if the program's framework fetches each batch before the previous one is processed."""
    ends_with_last_batch: bool
    """True if a checkpoint with the last batch of an epoch is one at its end. Otherwise the epoch
    ends when the program asks for a further batch: a program that saves its epoch within the loop
    then finds no batch left.
    """
    generators: Sequence[torch.Generator]
    """Generators that the program passed to the loader and its samplers."""
    on_empty_pass: Callable[[], None] | None = None
    """Called at the end of a pass without batches."""
    worker_seeds: torch.Generator = field(default_factory=torch.Generator)
    """Generator from which torch draws the seed of worker processes. It is seeded for each pass, so
    that starting them does not change another generator.
    """
    position: Position | None = None
    """Position of the latest pass, or position where the first one resumes."""
    is_restored: bool = False
    """True if the next pass resumes at `position`."""
    waited_s: float = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the loader's state."""
        position = self.position
        if position is None:
            return {}
        ended = position.ended or (
            position.abandoned and self.session.get_preemption_info() is None
        )
        if ended and not self.is_restored:
            # The next epoch draws from these.
            position.random = {"generators": self.generator_states()}
        return position.to_dict(
            self.order,
            rank=self.session.world_rank,
            world_size=self.session.world_size,
            ended=ended,
        )

    def load_state_dict(self, states: Sequence[ReaderState] | ReaderState, /) -> None:
        """Load the loader's state."""
        states = [states] if isinstance(states, Mapping) else states
        if not any(states):
            return
        self.position, warning = resume_position(
            states, self.order, rank=self.session.world_rank, world_size=self.session.world_size
        )
        self.is_restored = True
        if not warning and not self.position.ended and not self.in_order:
            warning = (
                "with `in_order=False` it is unknown which batches the program received, so some "
                "may be repeated or left out"
            )
        if warning:
            logger.warning("%s: %s.", self.name, warning)

    def generator_states(self) -> list[str]:
        """Return the states of `generators` in base64."""
        return [
            base64.b64encode(each.get_state().numpy().tobytes()).decode()
            for each in self.generators
        ]

    def next_position(self) -> tuple[Position, bool]:
        """Return the position where the next pass begins, and True if an earlier attempt has begun
        that pass. Sets the epoch of the samplers.
        """
        position, restored = self.position, self.is_restored
        self.is_restored = False
        epoch = self.epoch.requested()
        resumes = False
        if restored and position is not None:
            self._restore_generators(position)
            resumes = not position.ended and epoch in (None, position.epoch)
            if not position.ended and not resumes:
                logger.warning(
                    "%s: the checkpoint was taken in the middle of epoch %d (batches: %d), but the "
                    "program has set epoch %d, which starts at its beginning. To resume in the "
                    "middle, set the epoch of the checkpoint.",
                    self.name,
                    position.epoch,
                    position.batches,
                    epoch,
                )
        if not resumes or position is None:
            if epoch is None:
                epoch = 0 if position is None else position.epoch + 1
            position = Position(epoch=epoch, kind=self.order.kind)
        self.epoch.set(position.epoch)
        return position, resumes

    def _restore_generators(self, position: Position) -> None:
        saved = position.random.get("generators", ())
        for generator, text in zip(self.generators, saved, strict=False):
            generator.set_state(
                torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
            )


class PreparedDataLoader(DataLoader[T]):
    """The program's loader with resumable passes. Created by `prepare_data_loader`. Used by one
    thread at a time.

    Simultaneous loops over it are separate passes; `state_dict` describes the latest one.
    """

    _reader: LoaderReader

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        began = time.perf_counter()
        reader = self._reader
        is_first = reader.position is None or reader.is_restored
        position, resumes = reader.next_position()
        if resumes:
            with self._initial_states(position):
                batches = self._begin(position, resumes=True)
            reader.session.readers.restore_random(reader)
        else:
            if is_first:
                reader.session.readers.restore_random(reader)
            position.random = {**random_states.capture(), "generators": reader.generator_states()}
            batches = self._begin(position, resumes=False)
        reader.position = position
        reader.waited_s += time.perf_counter() - began
        return LoaderIterator(batches, position, reader)

    @property
    def waited_s(self) -> float:
        """Seconds that the program has waited for batches so far."""
        return self._reader.waited_s

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the batches that the program has received; {} before the first
        pass.
        """
        return self._reader.state_dict()

    def load_state_dict(self, states: Sequence[ReaderState] | ReaderState, /) -> None:
        """Resume the next pass from the states of all ranks, in rank order, or from this rank's
        state alone if the number of ranks is the same.
        """
        self._reader.load_state_dict(states)

    # -- overrides that torch calls

    @property
    def _index_sampler(self) -> IndexSampler:
        return self._reader.indices

    def _get_iterator(self) -> Any:
        used: dict[str, Any] = {"generator": self._reader.worker_seeds}
        stream = self._reader.stream
        if stream is not None:
            used |= {"dataset": stream, "collate_fn": StreamCollate(stream, self.collate_fn)}
            if self.num_workers:
                used["worker_init_fn"] = WorkerInit(self.worker_init_fn)
        attributes = vars(self)  # `__setattr__` forbids these changes
        before = {name: attributes[name] for name in used}
        attributes.update(used)
        try:
            return super()._get_iterator()
        finally:
            attributes.update(before)

    # -- start of a pass

    def _begin(self, position: Position, *, resumes: bool) -> Iterator[T]:
        """Return the batches from `position` on. All draws from the global generators for the order
        of the pass happen here.
        """
        reader, order = self._reader, self._reader.order
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        reader.worker_seeds.manual_seed(seed)
        if resumes:
            indices = order.remaining(
                reader.indices.plain,
                kind=position.kind,
                epoch=position.epoch,
                seed=seed,
                items=position.start_items,
                batches=position.start_batches,
            )
        else:
            indices = order.indices(reader.indices.plain, seed=seed)
        indices = drawn_first(indices)
        first = 0 if order.kind == "stream" else position.start_batches
        if reader.stream is not None:
            indices = self._stream_indices(indices, reader.stream, position, seed)
        elif self.num_workers:
            indices = with_seeds(indices, seed=seed, rank=reader.session.world_rank, first=first)
        reader.indices.current = indices
        batches: Iterator[T] = super().__iter__()
        if reader.stream is not None:
            return batches
        if order.kind == "stream" and position.start_batches:
            self._skip(batches, position)
        return batches

    def _stream_indices(
        self, indices: Iterator[object], stream: StreamDataset, position: Position, seed: int
    ) -> Iterator[object]:
        """Give the parts of the pass to the processes that read them; return the indices."""
        if position.slots is None:
            session = self._reader.session
            rank, world_size = stream.library.shard(
                stream.dataset, session.world_rank, session.world_size
            )
            position.slots = [
                (
                    StreamPart(
                        rank=rank,
                        world_size=world_size,
                        worker=worker,
                        workers=self.num_workers,
                        seed=seed,
                    ),
                )
                for worker in range(max(1, self.num_workers))
            ]
        else:
            if any(part.state is None and part.items for slot in position.slots for part in slot):
                self._warn_of_dropped_samples(position)
            # A `worker_init_fn` may have prepared the dataset for a certain process.
            position.slots = position.remaining(
                self.num_workers, in_place=self.worker_init_fn is not None
            )
        position.next_slot = 0
        stream.slots = tuple(position.slots)
        return with_slots(indices, stream.slots) if self.num_workers else indices

    def _warn_of_dropped_samples(self, position: Position) -> None:
        logger.warning(
            "%s: the samples of epoch %d before the restart (%d batches) are read again and "
            "dropped, because the state of the IterableDataset is unknown there. To skip them, add "
            "`state_dict()` and `load_state_dict(state)` to it, use a map-style dataset, or, with "
            "Hugging Face datasets, shuffle without a buffer.",
            self._reader.name,
            position.epoch,
            position.start_batches,
        )

    def _skip(self, batches: Iterator[T], position: Position) -> None:
        logger.warning(
            "%s: the batches of epoch %d before the restart (%d) are loaded again and dropped, "
            "because a data pipe of torch starts at its beginning. Use a map-style dataset, or an "
            "IterableDataset with `state_dict()` and `load_state_dict(state)`.",
            self._reader.name,
            position.epoch,
            position.start_batches,
        )
        for _ in range(position.start_batches):
            next(batches, None)

    @contextmanager
    def _initial_states(self, position: Position) -> Iterator[None]:
        """Run a block with the random states at the start of the pass; then restore the current
        states.
        """
        before = RandomStates()
        try:
            if position.random:
                random_states.restore(position.random)
            yield
        finally:
            before.apply()


class LoaderIterator(Iterator[T]):
    """Iterator of one pass over a prepared loader."""

    def __init__(self, batches: Iterator[T], position: Position, reader: LoaderReader) -> None:
        self._position = position
        self._reader = reader
        self._marks: deque[StreamBatch] = deque()
        """Positions of the batches that were fetched from torch's loader, if they have any."""
        self._has_fetched = False
        """True if the program has fetched a batch ahead."""
        self._fetched: StreamBatch | None = None
        # Without references to this object, so that it is deleted when the program drops it.
        plain = batches if reader.stream is None else map(partial(_keep_mark, self._marks), batches)
        if reader.device.type == "cpu":
            self._batches = iter(plain)
        else:
            self._batches = (prefetch if reader.prefetches else transfer)(
                iter(plain), reader.device
            )

    def __next__(self) -> T:
        self._reader.session.readers.requested()
        began = time.perf_counter()
        try:
            batch = next(self._batches)
        except StopIteration:
            if self._has_fetched:
                self._receive(self._fetched)
                self._has_fetched = False
            if self._is_empty() and self._reader.on_empty_pass is not None:
                self._reader.on_empty_pass()
            if not self._reader.is_ahead or self._reader.ends_with_last_batch:
                self._position.ended = True
            raise
        except Exception:
            self._position.batches += 1  # loading failed; the next call returns the next batch
            raise
        finally:
            self._reader.waited_s += time.perf_counter() - began
        mark = self._marks.popleft() if self._marks else None
        if not self._reader.is_ahead:
            self._receive(mark)
            return batch
        # The program now gets the batch that it fetched before this one.
        if self._has_fetched:
            self._receive(self._fetched)
        self._has_fetched, self._fetched = True, mark
        return batch

    def _is_empty(self) -> bool:
        return self._position.batches == self._position.start_batches

    def _receive(self, mark: StreamBatch | None) -> None:
        self._position.batches += 1
        if mark is not None:
            self._position.advance(mark.worker, mark.parts)

    def __del__(self) -> None:
        self._position.abandoned = True


def _keep_mark(marks: deque[StreamBatch], marked: Any) -> Any:
    """Return a batch without its position, which is kept until the program receives the batch."""
    marks.append(marked)
    return marked.batch
