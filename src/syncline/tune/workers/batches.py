"""`TrialBatches`: processes that run several short trials per call.

A process gets a list of trials, runs them one after the other, and returns all their outcomes. A
list has as many trials as run in `BATCH_S`, one at first, so long trials run one per call. A trial
that takes longer leaves its batch: it continues as a trial with its own process, and the trials
after it are returned to the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from syncline.core.placement import PlacementGroup
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.workers import messages
from syncline.tune.workers.messages import BatchRan, Outcome
from syncline.tune.workers.pool import ProcessPool, TrialProcess
from syncline.tune.workers.reservations import TrialReservations

BATCH_S = 0.03
"""Intended seconds of a batch, without waiting for a core."""
LIMIT_S = 0.06
"""Seconds, without waiting for a core, after which a trial leaves its batch."""
LARGEST = 64
"""Maximum number of trials of a batch."""
GROWTH = 4
"""Maximum factor from one batch to the next."""


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """A start of a trial that was assigned to a process."""

    trial_id: str
    attempt: int
    start: messages.Start


@dataclass(eq=False, kw_only=True)
class BatchProcess:
    """A process with its batches."""

    process: TrialProcess
    factory: PlacementGroupFactory
    """Resources of each of its trials."""
    reservation: str
    """Name of its placement group."""
    waiting: list[Assigned] = field(default_factory=list)
    """Trials of the next batch."""
    running: list[Assigned] = field(default_factory=list)
    """Trials of the current batch."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """What became of a batch."""

    ended: list[tuple[Assigned, messages.Stepped | messages.Failed]]
    """Trials that ended."""
    runs_on: Assigned | None = None
    """The trial that continues in `process`, if any."""
    process: TrialProcess | None = None
    """The process of `runs_on`."""
    returned: list[Assigned] = field(default_factory=list)
    """Trials that have not begun."""


class TrialBatches:
    """Not thread-safe.

    Args:
        pool: Starts and keeps the processes.
        reservations: Holds the placement groups of the processes.
        on_ran: Called with the outcome of a batch, or the engine's error, on any thread. It lets
            the thread of the search call `finish`.
    """

    def __init__(
        self,
        pool: ProcessPool,
        reservations: TrialReservations,
        on_ran: Callable[[BatchProcess, Outcome | None, BaseException | None], None],
    ) -> None:
        self._pool = pool
        self._reservations = reservations
        self._on_ran = on_ran
        self._processes: list[BatchProcess] = []
        self._started = 0
        self._size = 1

    def has_room(self, factory: PlacementGroupFactory) -> bool:
        """Return True if a process with these resources takes one more trial."""
        return self._with_room(factory) is not None

    def _with_room(self, factory: PlacementGroupFactory) -> BatchProcess | None:
        # A trial waits behind a running batch only if that takes no longer than a start would.
        limit = self._size if self._size > 1 else 0
        return next(
            (
                one
                for one in self._processes
                if one.factory == factory
                and len(one.waiting) < (limit if one.running else self._size)
            ),
            None,
        )

    def assign(
        self, trial: Assigned, factory: PlacementGroupFactory, group: PlacementGroup | None
    ) -> bool:
        """Assign a trial to a process with room, or to a new one if the trial reserved `group`.
        Return False if it did not, and no process has room.
        """
        chosen = self._with_room(factory) if group is None else None
        if chosen is None:
            if group is None:
                return False
            self._started += 1
            chosen = BatchProcess(
                process=self._pool.take(factory, group),
                factory=factory,
                reservation=f"batches {self._started}",
            )
            self._reservations.rename(trial.trial_id, chosen.reservation)
            self._processes.append(chosen)
        chosen.waiting.append(trial)
        if len(chosen.waiting) >= self._size:
            self._send(chosen)
        return True

    def flush(self) -> None:
        """Send the batches that wait, and give processes without trials back."""
        for one in list(self._processes):
            self._send(one)
            if not one.running and not one.waiting:
                self._processes.remove(one)
                self._pool.keep(one.process)
                self._reservations.release(one.reservation)

    def _send(self, one: BatchProcess) -> None:
        if one.running or not one.waiting:
            return
        one.running, one.waiting = one.waiting, []
        imports = self._pool.imports
        batch = messages.RunBatch(
            starts=tuple(
                replace(each.start, isolated=True, in_batch=True, imports=imports)
                for each in one.running
            ),
            within_s=LIMIT_S,
        )
        try:
            self._pool.run_batch(
                one.process, batch, lambda outcome, error: self._on_ran(one, outcome, error)
            )
        except (TypeError, ValueError) as error:  # a configuration cannot be pickled
            self._on_ran(one, None, error)

    def finish(
        self, one: BatchProcess, outcome: BatchRan | None, failed: messages.Failed | None
    ) -> Finished:
        """Handle the outcome of a batch, and send the next one. `failed` is set if the process
        died, or the batch could not be sent.
        """
        if one not in self._processes:  # ended meanwhile
            return Finished(ended=[])
        ran, one.running = one.running, []
        if outcome is None:
            assert failed is not None, "a batch has an outcome or an error"
            self._remove(one)
            if len(ran) == 1:
                return Finished(ended=[(ran[0], failed)], returned=one.waiting)
            self._size = 1  # so that the trial at fault is found
            return Finished(ended=[], returned=[*ran, *one.waiting])
        self._pool.note(one.process, outcome)
        ended = list(zip(ran, outcome.ended, strict=False))
        rest = ran[len(ended) :]
        if outcome.runs_on:
            self._size = 1
            self._processes.remove(one)
            self._reservations.rename(one.reservation, rest[0].trial_id)
            return Finished(
                ended=ended,
                runs_on=rest[0],
                process=one.process,
                returned=[*rest[1:], *one.waiting],
            )
        one.waiting[:0] = rest
        if ended:
            self._adapt(outcome.seconds / len(ended))
        if one.process.unusable:
            self._remove(one)
            return Finished(ended=ended, returned=one.waiting)
        self._send(one)
        return Finished(ended=ended)

    def _adapt(self, trial_s: float) -> None:
        """Set the size of batches by the time of a trial."""
        fitting = int(BATCH_S / max(trial_s, 1e-6))
        self._size = max(1, min(fitting, GROWTH * self._size, LARGEST))

    def drop(self, trial_id: str) -> bool:
        """Stop a trial that waits or runs in a batch; return False if it is in none. If it may run,
        its process ends, and with it the other trials of its batch.
        """
        for one in self._processes:
            if _holds(one.running, trial_id):
                self._remove(one)
                return True
            if _holds(one.waiting, trial_id):
                one.waiting = [each for each in one.waiting if each.trial_id != trial_id]
                return True
        return False

    def _remove(self, one: BatchProcess) -> None:
        self._processes.remove(one)
        self._pool.end(one.process)
        self._reservations.release(one.reservation)

    def close(self) -> None:
        """End all processes."""
        for one in list(self._processes):
            self._remove(one)


def _holds(trials: Iterable[Assigned], trial_id: str) -> bool:
    return any(each.trial_id == trial_id for each in trials)
