"""`PreparedDataLoader`: a user's DataLoader that knows how far its passes are, and goes on there
after a restart.

A pass begins with a seed and an order, both drawn from the random states in force, which are kept.
To go on in the middle of a pass these states are put back, the same is drawn, and the indices of
what the program had are passed over; so nothing is loaded but what it gets.
"""

from __future__ import annotations

import base64
import logging
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader

from syncline.train import random_states
from syncline.train.session import TrainSession
from syncline.train.torch.orders import Indices, Order, primed
from syncline.train.torch.places import Place, find
from syncline.train.torch.samplers import Epochs
from syncline.train.torch.streams import RandomStates
from syncline.train.torch.transfer import moved, moved_ahead
from syncline.train.torch.worker_seeds import with_seeds

T = TypeVar("T")

logger = logging.getLogger("syncline")


@dataclass(eq=False, kw_only=True)
class Reading:
    """What a prepared loader has beside what it is a copy of; the session's `Reader`.

    It does not know the loader, which therefore goes, with its worker processes, when the program
    drops it.
    """

    name: str
    """For messages, and in checkpoints."""
    session: TrainSession
    order: Order
    indices: Indices
    epochs: Epochs
    device: torch.device
    ahead: bool
    """Whether one batch is copied ahead. Not where the program's own process loads: it would draw
    that batch's random numbers too early.
    """
    in_order: bool
    """Whether batches come in the order of their indices."""
    dataset: Any
    """An `IterableDataset` that can say itself where it is, and go on there; else None."""
    generators: Sequence[torch.Generator]
    """Those that the user gave to the loader and its samplers."""
    worker_seeds: torch.Generator = field(default_factory=torch.Generator)
    """From which torch draws the seed of worker processes: seeded for each pass, so that starting
    them moves no other generator.
    """
    place: Place | None = None
    """Of the pass that began last, or where the first one goes on."""
    is_found: bool = False
    """`place` is where the first one goes on."""
    waited_s: float = 0.0

    def state_dict(self) -> dict[str, Any]:
        """As the loader's."""
        place = self.place
        if place is None:
            return {}
        ended = place.ended or (place.left and self.session.get_preemption_info() is None)
        if self.dataset is not None and not ended and not self.is_found:
            place.dataset = base64.b64encode(pickle.dumps(self.dataset.state_dict())).decode()
        if ended and not self.is_found:
            place.random = {
                "generators": self.generator_states()
            }  # the next epoch draws from there
        return place.to_dict(
            self.order,
            rank=self.session.world_rank,
            world_size=self.session.world_size,
            ended=ended,
        )

    def load_state_dict(self, states: Sequence[Mapping[str, Any]], /) -> None:
        """As the loader's."""
        if not any(states):
            return
        self.place, warning = find(
            states, self.order, rank=self.session.world_rank, world_size=self.session.world_size
        )
        self.is_found = True
        if not warning and not self.place.ended and not self.in_order:
            warning = "with `in_order=False` it is not known which batches the program had, so some may come twice or not at all"
        if warning:
            logger.warning("%s: %s.", self.name, warning)

    def generator_states(self) -> list[str]:
        """Those of `generators`, in base64."""
        return [
            base64.b64encode(each.get_state().numpy().tobytes()).decode()
            for each in self.generators
        ]

    def restore_generators(self, place: Place) -> None:
        """Let `generators` go on where `place` found them."""
        for generator, text in zip(
            self.generators, place.random.get("generators", ()), strict=False
        ):
            generator.set_state(
                torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
            )

    def next_place(self) -> tuple[Place, bool]:
        """Where the pass that begins now starts, and whether that is where an earlier attempt was;
        the samplers are in its epoch.
        """
        place, found = self.place, self.is_found
        self.is_found = False
        epoch = self.epochs.told()
        if found and place is not None:
            self.restore_generators(place)
        goes_on = found and place is not None and not place.ended
        if goes_on and place is not None and epoch not in (None, place.epoch):
            goes_on = False
            logger.warning(
                "%s: the checkpoint was taken in the middle of epoch %d (batches: %d), but the program has set epoch %d, which begins at "
                "its start: to go on in the middle, set the epoch that is under way.",
                self.name,
                place.epoch,
                place.batches,
                epoch,
            )
        if not goes_on or place is None:
            if epoch is None:
                epoch = 0 if place is None else place.epoch + 1
            place = Place(epoch=epoch, kind=self.order.kind)
        self.epochs.tell(place.epoch)
        return place, goes_on


class PreparedDataLoader(DataLoader[T]):
    """The user's loader, whose passes go on where they were; made by `prepare_data_loader`. Used by
    one thread at a time.

    Loops over it at the same time are passes of their own; the one that began last is what
    `state_dict` speaks of.
    """

    _reading: Reading

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        began = time.perf_counter()
        reading = self._reading
        is_first = reading.place is None or reading.is_found
        place, goes_on = reading.next_place()
        if goes_on:
            with self._back_at_the_beginning(place):
                batches = self._begin(place, goes_on=True)
            reading.session.readers.restore_random(reading)
        else:
            if is_first:
                reading.session.readers.restore_random(reading)
            place.random = {**random_states.capture(), "generators": reading.generator_states()}
            batches = self._begin(place, goes_on=False)
        reading.place = place
        reading.waited_s += time.perf_counter() - began
        return Pass(batches, place, reading)

    @property
    def waited_s(self) -> float:
        """How long the program has waited for batches so far, in seconds."""
        return self._reading.waited_s

    def state_dict(self) -> dict[str, Any]:
        """How far the program is: the batches that it got count. Empty before the first pass."""
        return self._reading.state_dict()

    def load_state_dict(self, states: Sequence[Mapping[str, Any]], /) -> None:
        """Let the next pass go on where states were taken: those of all ranks, by rank, or this
        rank's alone where there are as many.
        """
        self._reading.load_state_dict(states)

    # -- what torch asks for

    @property
    def _index_sampler(self) -> Indices:
        return self._reading.indices

    def _get_iterator(self) -> Any:
        generator, self.generator = self.generator, self._reading.worker_seeds
        try:
            return super()._get_iterator()
        finally:
            self.generator = generator

    # -- the begin of a pass

    def _begin(self, place: Place, *, goes_on: bool) -> Iterator[T]:
        """Batches from `place` on. All that is drawn from the global generators for the order of
        the pass is drawn here.
        """
        reading, order = self._reading, self._reading.order
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        reading.worker_seeds.manual_seed(seed)
        if goes_on:
            indices = order.remaining(
                reading.indices.plain,
                kind=place.kind,
                epoch=place.epoch,
                seed=seed,
                items=place.start,
                batches=place.first,
            )
        else:
            indices = order.indices(reading.indices.plain, seed=seed)
        indices = primed(indices)
        first = 0 if order.kind == "stream" else place.first
        if self.num_workers:
            indices = with_seeds(indices, seed=seed, rank=reading.session.world_rank, first=first)
        reading.indices.current = indices
        if place.dataset is not None and reading.dataset is not None:
            reading.dataset.load_state_dict(pickle.loads(base64.b64decode(place.dataset)))
            return super().__iter__()
        batches: Iterator[T] = super().__iter__()
        if order.kind == "stream" and place.first:
            self._skip(batches, place)
        return batches

    def _skip(self, batches: Iterator[T], place: Place) -> None:
        logger.warning(
            "%s: what was read of epoch %d before the restart (batches: %d) is loaded again and dropped, because an IterableDataset "
            "begins at its start: give it `state_dict()` and `load_state_dict(state)` and set `num_workers=0`, or use a map-style dataset.",
            self._reading.name,
            place.epoch,
            place.first,
        )
        for _ in range(place.first):
            next(batches, None)

    @contextmanager
    def _back_at_the_beginning(self, place: Place) -> Iterator[None]:
        """Run a block on the random states in which the pass of `place` began; then the program's
        own are in force again.
        """
        before = RandomStates()
        try:
            if place.random:
                random_states.restore(place.random)
            yield
        finally:
            before.apply()


class Pass(Iterator[T]):
    """One loop over a prepared loader."""

    def __init__(self, batches: Iterator[T], place: Place, reading: Reading) -> None:
        self._place = place
        self._reading = reading
        if reading.device.type == "cpu":
            self._batches = iter(batches)
        else:
            self._batches = (moved_ahead if reading.ahead else moved)(iter(batches), reading.device)

    def __next__(self) -> T:
        began = time.perf_counter()
        try:
            batch = next(self._batches)
        except StopIteration:
            self._place.ended = True
            raise
        except Exception:
            self._place.batches += 1  # its samples failed, and the next call goes on behind them
            raise
        finally:
            self._reading.waited_s += time.perf_counter() - began
        self._place.batches += 1
        return batch

    def __del__(self) -> None:
        self._place.left = True
