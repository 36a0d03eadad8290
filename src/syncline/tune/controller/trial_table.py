"""`TrialTable`: one record per trial of a search, with its phase, indexes by phase, and the
instructions that follow from a change of one trial. Pure: decisions are made in `state`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from syncline.core.state_machine import Lifecycle, StateEnum, TransitionTable
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import StorageContext
from syncline.tune.config import CheckpointConfig
from syncline.tune.controller import events
from syncline.tune.controller.events import Instruction, SearchRules
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import AUTO_RESULT_KEYS, Config, Metrics
from syncline.tune.workers.messages import Command, Save


class Phase(StateEnum):
    """Phase of a trial in the search; finer than `Trial.status`."""

    NEW = "new"
    """Waits for its first start."""
    PENDING = "pending"
    """Waits to start again."""
    RESIZED = "resized"
    """Waits to start again with other resources, before all other trials."""
    RUNNING = "running"
    """Has a process: starts, steps or saves."""
    LENDING = "lending"
    """Has a process and lends its resources to the trainer inside it, which reserves workers."""
    PAUSED = "paused"
    """Paused by the scheduler."""
    COPYING = "copying"
    """Waits for a copy of another trial's checkpoint."""
    INTERRUPTED = "interrupted"
    """Had a process, or waited for a copy, when the process of the search ended."""
    ENDED = "ended"
    """Terminated or failed."""


_WAITING = frozenset({Phase.RUNNING, Phase.PAUSED, Phase.PENDING, Phase.COPYING, Phase.ENDED})
_ACTIVE = frozenset(
    {Phase.PAUSED, Phase.PENDING, Phase.RESIZED, Phase.COPYING, Phase.INTERRUPTED, Phase.ENDED}
)

TRANSITIONS: TransitionTable[Phase] = {
    Phase.NEW: _WAITING,
    Phase.PENDING: _WAITING,
    Phase.RESIZED: _WAITING,
    Phase.RUNNING: _ACTIVE | {Phase.LENDING},
    Phase.LENDING: _ACTIVE | {Phase.RUNNING},
    Phase.PAUSED: frozenset({Phase.RUNNING, Phase.PENDING, Phase.COPYING, Phase.ENDED}),
    Phase.COPYING: frozenset({Phase.COPYING, Phase.PENDING, Phase.INTERRUPTED, Phase.ENDED}),
    Phase.INTERRUPTED: frozenset({Phase.PENDING, Phase.ENDED}),
    Phase.ENDED: frozenset({Phase.PENDING}),  # a restore may resume or restart trials
}

_STATUS = {
    Phase.NEW: Trial.PENDING,
    Phase.PENDING: Trial.PENDING,
    Phase.RESIZED: Trial.PENDING,
    Phase.RUNNING: Trial.RUNNING,
    Phase.LENDING: Trial.RUNNING,
    Phase.PAUSED: Trial.PAUSED,
    Phase.COPYING: Trial.PAUSED,
}


@dataclass
class Attempt:
    """One start of a trial, and requests to carry out after its current step."""

    number: int
    """Number of the start, from 1."""
    pause_requested: bool = False
    save_requested: bool = False
    then: Literal["continue", "requeue", "finish"] = "continue"
    """`requeue`: a pause becomes a new start. `finish`: the trial ends after its last save."""


@dataclass(frozen=True, kw_only=True)
class Exploit:
    """A pending copy of another trial's checkpoint."""

    source: Checkpoint
    donor_metrics: Metrics
    config: Config
    tag: str


@dataclass
class TrialRecord:
    """State of one trial in the search."""

    trial: Trial
    lifecycle: Lifecycle[Phase] = field(init=False)
    """Phase of the trial, with its recent transitions."""
    attempts: int = 0
    """Number of starts so far."""
    attempt: Attempt | None = None
    """The current start; None without a process."""
    exploit: Exploit | None = None
    """The copy that a trial in phase COPYING waits for."""

    def __post_init__(self) -> None:
        name = f"trial {self.trial.trial_id}"
        self.lifecycle = Lifecycle(name, TRANSITIONS, Phase.NEW, history_length=8)

    @property
    def phase(self) -> Phase:
        """Current phase."""
        return self.lifecycle.state

    @property
    def is_waiting(self) -> bool:
        """True if the trial waits to start."""
        return self.phase in (Phase.NEW, Phase.PENDING, Phase.RESIZED)


class TrialTable:
    """Records by trial id, indexed by phase. A change of phase costs constant time.

    Methods that change a trial append instructions, which `drain_instructions` returns.
    """

    def __init__(self) -> None:
        self.reserving: str | None = None
        """Id of the trial whose resources are being reserved."""
        self.changed: dict[str, Trial] = {}
        """Trials that changed since `drain_changed`."""
        self._out: list[Instruction] = []
        self._records: dict[str, TrialRecord] = {}
        self._live: dict[str, Trial] = {}
        self._by_phase: dict[Phase, dict[str, TrialRecord]] = {phase: {} for phase in Phase}
        self._deferred_deletes: list[tuple[str, Checkpoint]] = []  # of checkpoints being copied

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "changed": {}, "_out": []}

    # -- records

    def add(self, event: events.TrialSuggested, rules: SearchRules, *, index: int) -> Trial:
        """Return a new trial in phase NEW."""
        storage = rules.storage
        trial = Trial(
            trial_id=event.trial_id,
            index=index,
            trainable_name=rules.trainable_name,
            config=event.config,
            evaluated_params=event.evaluated_params,
            experiment_tag=event.tag,
            placement_group_factory=event.factory,
            storage=StorageContext(
                storage.experiment_fs_path, event.directory, storage.storage_filesystem
            ),
            checkpoint_config=rules.checkpoint_config,
            name=event.name,
        )
        record = TrialRecord(trial)
        self._records[trial.trial_id] = self._by_phase[Phase.NEW][trial.trial_id] = record
        self._live[trial.trial_id] = self.changed[trial.trial_id] = trial
        return trial

    def __getitem__(self, trial_id: str) -> TrialRecord:
        return self._records[trial_id]

    def get(self, trial_id: str) -> TrialRecord | None:
        """Return a record; None for an unknown id."""
        return self._records.get(trial_id)

    def set_phase(self, record: TrialRecord, phase: Phase, reason: str) -> None:
        """Move a record to the end of `phase` and set its trial's status.

        The caller sets the status of a trial in phase ENDED.

        Raises:
            InvalidTransition: `TRANSITIONS` does not allow it.
        """
        trial, former = record.trial, record.phase
        record.lifecycle.go(phase, reason)
        del self._by_phase[former][trial.trial_id]
        self._by_phase[phase][trial.trial_id] = record
        trial.status = _STATUS.get(phase, trial.status)
        self.changed[trial.trial_id] = trial
        if phase is Phase.ENDED:
            self._live.pop(trial.trial_id, None)
        else:
            self._live[trial.trial_id] = trial

    def count(self, *phases: Phase) -> int:
        """Return the number of records in these phases."""
        count = 0
        for phase in phases:  # faster than a generator, and called for every event
            count += len(self._by_phase[phase])
        return count

    def of(self, phase: Phase) -> Iterable[TrialRecord]:
        """Return the records of a phase in the order in which they entered it."""
        return self._by_phase[phase].values()

    @property
    def live(self) -> Collection[Trial]:
        """Trials that have not ended."""
        return self._live.values()

    def pending(self) -> Iterator[Trial]:
        """Yield trials that wait to start: resized ones, restarts (latest first), new ones."""
        waiting = chain(
            self.of(Phase.RESIZED),
            reversed(self._by_phase[Phase.PENDING].values()),
            self.of(Phase.NEW),
        )
        return (record.trial for record in waiting)

    def paused(self) -> Iterator[Trial]:
        """Yield trials that the scheduler paused, in the order of pausing."""
        return (record.trial for record in self.of(Phase.PAUSED))

    # -- instructions

    def emit(self, instruction: Instruction) -> None:
        """Append an instruction."""
        self._out.append(instruction)

    def drain_instructions(self) -> list[Instruction]:
        """Return the instructions since the last call."""
        out, self._out = self._out, []
        return out

    def drain_changed(self) -> list[Trial]:
        """Return the trials that changed since the last call."""
        changed, self.changed = list(self.changed.values()), {}
        return changed

    def notify(
        self, hook: events.Hook, trial: Trial, subject: Metrics | Checkpoint | None = None
    ) -> None:
        """Call a hook of the callbacks."""
        self.emit(events.NotifyCallbacks(hook=hook, trial_id=trial.trial_id, subject=subject))

    def report_completion(self, trial: Trial, *, error: bool) -> None:
        """Tell the searcher that a trial ended."""
        result = trial.last_result or None
        self.emit(events.ReportCompletion(trial_id=trial.trial_id, result=result, error=error))

    # -- changes of one trial

    def start(self, record: TrialRecord) -> None:
        """Start the next attempt of a trial from its latest checkpoint."""
        record.attempts += 1
        record.attempt = Attempt(record.attempts)
        self.set_phase(record, Phase.RUNNING, f"attempt {record.attempts}")
        latest = record.trial.checkpoints.latest
        metrics = latest.metrics if latest is not None else {}
        self.emit(
            events.StartTrial(
                trial_id=record.trial.trial_id,
                attempt=record.attempts,
                checkpoint=latest.checkpoint if latest is not None else None,
                progress={key: metrics[key] for key in metrics if key in AUTO_RESULT_KEYS},
            )
        )

    def run(self, record: TrialRecord, command: Command) -> None:
        """Carry out a command in the trial's process."""
        assert record.attempt is not None, record
        self.emit(
            events.RunCommand(
                trial_id=record.trial.trial_id, attempt=record.attempt.number, command=command
            )
        )

    def save(self, record: TrialRecord) -> None:
        """Save a checkpoint of a class trainable."""
        self.run(record, Save(checkpoint_index=record.trial.next_checkpoint_index))

    def leave(self, record: TrialRecord, *, failed: bool = False) -> None:
        """End the attempt of a trial. The caller sets the next phase."""
        attempt, trial = record.attempt, record.trial
        assert attempt is not None, record
        record.attempt = None
        trial.location = ""
        self.emit(events.StopTrial(trial_id=trial.trial_id, attempt=attempt.number, failed=failed))

    def requeue(self, record: TrialRecord, reason: str, phase: Phase = Phase.PENDING) -> None:
        """Let a trial start again from its latest checkpoint, before new trials."""
        trial = record.trial
        trial.location = ""  # may be set if the process of the search was killed
        trial.restored_iteration = trial.checkpoint_iteration
        self.set_phase(record, phase, reason)

    def reset(self, record: TrialRecord, checkpoint_config: CheckpointConfig) -> None:
        """Let a trial start again from scratch."""
        trial = record.trial
        for checkpoint in trial.reset(checkpoint_config):
            self.emit(events.DeleteCheckpoint(trial_id=trial.trial_id, checkpoint=checkpoint))
        self.requeue(record, "restart from scratch")

    def drop_reservation(self, record: TrialRecord) -> None:
        """Release the resources of a trial if they are being reserved."""
        if self.reserving == record.trial.trial_id:
            self.reserving = None
            self.emit(events.ReleaseResources(trial_id=record.trial.trial_id))

    # -- checkpoints

    def register(
        self, trial: Trial, checkpoint: Checkpoint, metrics: Metrics | None = None
    ) -> None:
        """Register the latest checkpoint, with the latest result unless `metrics` is given."""
        surplus = trial.record_checkpoint(
            checkpoint, trial.last_result if metrics is None else metrics
        )
        self.notify("checkpoint", trial, checkpoint)
        self.emit(events.ConfirmCheckpoint(trial_id=trial.trial_id, checkpoint=checkpoint))
        for other in surplus:
            self._delete(trial.trial_id, other)

    def begin_copy(self, record: TrialRecord, exploit: Exploit) -> None:
        """Let a trial wait for a copy of another trial's checkpoint."""
        self.set_phase(record, Phase.COPYING, f"exploits {exploit.source.path}")
        record.exploit = exploit
        self.emit(
            events.CopyCheckpoint(
                trial_id=record.trial.trial_id,
                source=exploit.source,
                checkpoint_index=record.trial.next_checkpoint_index,
            )
        )

    def end_copy(self, record: TrialRecord) -> Exploit | None:
        """Return the copy that the trial waited for, if any; it is done or no longer wanted."""
        exploit, record.exploit = record.exploit, None
        deferred, self._deferred_deletes = self._deferred_deletes, []
        for trial_id, checkpoint in deferred:
            self._delete(trial_id, checkpoint)
        return exploit

    def _delete(self, trial_id: str, checkpoint: Checkpoint) -> None:
        """Delete a checkpoint; later if it is being copied for another trial."""
        copying = (record.exploit for record in self.of(Phase.COPYING))
        if any(exploit is not None and exploit.source == checkpoint for exploit in copying):
            self._deferred_deletes.append((trial_id, checkpoint))
        else:
            self.emit(events.DeleteCheckpoint(trial_id=trial_id, checkpoint=checkpoint))
