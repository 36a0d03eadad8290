"""`AsyncPlan`: runners sample without waiting for the learners (IMPALA and its descendants).

Each runner has a few fragment requests in flight, so that it never idles. Fragments form batches in
the order of their arrival. If batches wait because the learners are slower, runners get no requests
until there is room (backpressure): no fragment is dropped, and their age is bounded. Not covered:
data, processes and clocks (`driver`).
"""

from __future__ import annotations

from dataclasses import dataclass

from syncline.core.state_machine import Dispatcher, on
from syncline.rl.plans.batch_buffer import BatchBuffer
from syncline.rl.plans.messages import (
    Event,
    FragmentReady,
    Instruction,
    Learn,
    Publish,
    RunnerJoined,
    RunnerLost,
    Sample,
    UpdateDone,
)
from syncline.rl.value_types import StateDict


@dataclass(frozen=True, kw_only=True)
class AsyncStatistics:
    """Counts of a plan."""

    fragments: int
    """Number of delivered fragments."""
    updates: int
    """Number of passes over batches."""
    staleness_mean: float
    """Mean staleness: updates between the weights that sampled a fragment and its arrival."""
    staleness_max: int
    waiting_batches: int
    """Number of batches in the buffer."""
    held_back: int
    """Number of times that a runner got no request because batches waited for the learners."""


class AsyncPlan(Dispatcher[Event, list[Instruction]], handles=Event):
    """Not thread-safe.

    Args:
        batch_steps: Minimum number of environment steps in a batch.
        buffer: Buffer of batches.
        requests_per_runner: Maximum number of concurrent fragment requests per runner.
        learner_slots: Maximum number of batches at the learners.
        broadcast_interval: Updates between weight broadcasts.
        sample_while_learning: Request fragments even while a batch is ready; False for a runner
            in the learner's process, whose fragments would only become older.
    """

    def __init__(
        self,
        *,
        batch_steps: int,
        buffer: BatchBuffer,
        requests_per_runner: int = 2,
        learner_slots: int = 1,
        broadcast_interval: int = 1,
        sample_while_learning: bool = True,
    ) -> None:
        self._batch_steps = batch_steps
        self._buffer = buffer
        self._requests_per_runner = requests_per_runner
        self._learner_slots = learner_slots
        self._broadcast_interval = broadcast_interval
        self._sample_while_learning = sample_while_learning
        self._requested: dict[int, int] = {}
        self._pending: list[tuple[int, int]] = []
        self._pending_steps = 0
        self._batches: dict[int, tuple[int, ...]] = {}
        self._next_batch = 0
        self._learning: list[int] = []
        self.updates = 0
        self._fragments = self._staleness_sum = self._staleness_max = self._held_back = 0

    def handle(self, event: Event) -> list[Instruction]:
        """Handle an event; return instructions."""
        return self.dispatch(event)

    @property
    def is_learning(self) -> bool:
        """True if the learners have a batch."""
        return bool(self._learning)

    @property
    def num_runners(self) -> int:
        """Number of runners that can sample."""
        return len(self._requested)

    def statistics(self) -> AsyncStatistics:
        """Return counts since the start."""
        return AsyncStatistics(
            fragments=self._fragments,
            updates=self.updates,
            staleness_mean=self._staleness_sum / max(self._fragments, 1),
            staleness_max=self._staleness_max,
            waiting_batches=len(self._buffer),
            held_back=self._held_back,
        )

    # -- events

    @on(RunnerJoined)
    def _joined(self, event: RunnerJoined) -> list[Instruction]:
        self._requested.setdefault(event.runner, 0)
        return self._next()

    @on(RunnerLost)
    def _lost(self, event: RunnerLost) -> list[Instruction]:
        self._requested.pop(event.runner, None)
        return self._next()

    @on(FragmentReady)
    def _ready(self, event: FragmentReady) -> list[Instruction]:
        if event.runner in self._requested:
            self._requested[event.runner] -= 1
        staleness = max(self.updates - event.version, 0)
        self._fragments += 1
        self._staleness_sum += staleness
        self._staleness_max = max(self._staleness_max, staleness)
        self._pending.append((event.fragment, event.steps))
        self._pending_steps += event.steps
        return self._next()

    @on(UpdateDone)
    def _done(self, event: UpdateDone) -> list[Instruction]:
        self._learning.remove(event.batch)
        self.updates += 1
        published: list[Instruction] = []
        if self.updates % self._broadcast_interval == 0:
            published.append(Publish(version=self.updates))
        return published + self._next()

    # -- decisions

    def _next(self) -> list[Instruction]:
        """Form batches, send them to the learners, and keep the runners busy."""
        self._form_batches()
        learn: list[Instruction] = []
        while len(self._learning) < self._learner_slots and len(self._buffer):
            batch, is_last = self._buffer.take()
            fragments = self._batches.pop(batch) if is_last else self._batches[batch]
            learn.append(Learn(batch=batch, fragments=fragments, is_last=is_last))
            self._learning.append(batch)
            self._form_batches()
        return self._requests() + learn  # requests first, because an update may block the driver

    def _form_batches(self) -> None:
        while self._pending_steps >= self._batch_steps and not self._buffer.is_full:
            taken, steps = [], 0
            while steps < self._batch_steps:
                fragment, size = self._pending.pop(0)
                taken.append(fragment)
                steps += size
            self._pending_steps -= steps
            self._batches[self._next_batch] = tuple(taken)
            self._buffer.add(self._next_batch)
            self._next_batch += 1

    def _requests(self) -> list[Instruction]:
        may_sample = self._pending_steps < self._batch_steps
        if not self._sample_while_learning:
            may_sample = may_sample and not self._learning
        made: list[Instruction] = []
        for runner, count in self._requested.items():
            missing = self._requests_per_runner - count
            if missing > 0 and not may_sample:
                self._held_back += 1
            elif missing > 0:
                made += [Sample(runner=runner)] * missing
                self._requested[runner] = self._requests_per_runner
        return made

    # -- state

    def get_state(self) -> StateDict:
        """Return everything except requests."""
        return {
            "learning": list(self._learning),
            "pending": list(self._pending),
            "batches": dict(self._batches),
            "next_batch": self._next_batch,
            "updates": self.updates,
            "buffer": self._buffer.get_state(),
            "counts": (self._fragments, self._staleness_sum, self._staleness_max, self._held_back),
        }

    def set_state(self, state: StateDict) -> None:
        """Restore the state that `get_state` returned; runners join again."""
        self._requested.clear()
        self._learning = list(state["learning"])
        self._pending = list(state["pending"])
        self._pending_steps = sum(steps for _, steps in self._pending)
        self._batches = dict(state["batches"])
        self._next_batch = state["next_batch"]
        self.updates = state["updates"]
        self._buffer.set_state(state["buffer"])
        self._fragments, self._staleness_sum, self._staleness_max, self._held_back = state["counts"]
