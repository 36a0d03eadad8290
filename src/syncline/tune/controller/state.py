"""`TuneMachine`: everything that a search decides. Pure: no clock, no files, no threads, no
processes; `handle(event) -> [instructions]`.

The searcher is asked and told through instructions; the scheduler and the stopper are called here,
because what they say decides. A trial's life, with what makes it move:

    PENDING  --Reserve, PlaceHeld-->  RUNNING (starting, stepping, saving)  --result, error-->  TERMINATED, ERROR
       ^---------- recovered, exploited, other resources ----------/    \\-- scheduler pauses --> PAUSED --scheduler chooses--> RUNNING

Only one trial at a time waits for its place, the one that the scheduler chose last: what is free
goes to trials in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from syncline.core.error_frames import unpack_error
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage import StorageContext
from syncline.tune.config import CheckpointConfig
from syncline.tune.controller import events
from syncline.tune.controller.events import Event, Instruction
from syncline.tune.controller.needed_metrics import check_result
from syncline.tune.error import TuneError
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import (
    AUTO_RESULT_KEYS,
    CHECKPOINT_DIR_NAME,
    DONE,
    EXPERIMENT_TAG,
    SHOULD_CHECKPOINT,
)
from syncline.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from syncline.tune.stopper import NoopStopper, Stopper

_Answer = TypeVar("_Answer")

COLLECT_S = 0.02
"""Results of one trial that come within this time are told together, where nobody decides about
them one by one.
"""

LOOKS = 60
"""So often, once a second, a searcher is asked again that gives nothing though nothing runs."""


@dataclass(frozen=True, kw_only=True)
class SearchRules:
    """What a search goes by."""

    trainable_name: str
    """Name of the trainable."""
    is_function: bool
    """Whether the trainable is a function, which saves when it wants to."""
    storage: StorageContext
    """The experiment directory."""
    trial_prefix: str
    """Ids of trials begin with it."""
    metric: str | None
    """What is to get better, if anybody said so."""
    strict_metrics: bool
    """Whether a result without that metric, or one that the scheduler needs, is an error."""
    max_concurrent: float
    """So many trials run at a time."""
    max_failures: float
    """How often a trial starts again after failing."""
    fail_fast: bool
    """Whether the first failure ends the search."""
    checkpoint_config: CheckpointConfig
    """Which checkpoints are made and kept."""


@dataclass
class _Run:
    """One start of a trial."""

    attempt: int
    pause_wanted: bool = False
    """Somebody wants it to leave its process after what it does now."""
    save_wanted: bool = False
    """Somebody wants it to be saved after what it does now."""
    then: Literal["go on", "requeue", "finish"] = "go on"
    """What follows: it goes on, or stays paused; it starts again at once; it ends."""


@dataclass
class _Exploit:
    """A trial that is to go on from another one's checkpoint."""

    source: Checkpoint
    donor_metrics: dict[str, Any]
    config: dict[str, Any]
    tag: str


class TuneMachine:
    """The search. It is a `ControllerView` to its scheduler, and can be pickled whole. Not safe for
    use from several threads.
    """

    def __init__(self, rules: SearchRules, scheduler: TrialScheduler, stopper: Stopper) -> None:
        self.rules = rules
        self.scheduler = scheduler
        self.stopper = stopper
        self.search_alg: Any = None
        """The searcher, set by the driver; not part of the machine's state."""
        self.total_resources: Mapping[str, float] = {}
        self.trials: list[Trial] = []
        self.iteration = 0
        """Results so far."""
        self.ended = False
        self._by_id: dict[str, Trial] = {}
        self._live: dict[str, Trial] = {}
        self._pending: dict[str, Trial] = {}
        self._paused: dict[str, Trial] = {}
        self._unstarted: set[str] = set()  # trials that wait for their first start
        self._running: dict[str, _Run] = {}
        self._attempts: dict[str, int] = {}
        self._donating: dict[str, _Exploit] = {}
        self._outdated: list[
            tuple[str, Checkpoint]
        ] = []  # of donors, deleted when they have been copied
        self._moving: dict[
            str, None
        ] = {}  # in order, trials that are to have other resources, in front of the others
        self._reserving: str | None = None
        self._lending: set[str] = set()
        self._asking = False
        self._searcher_finished = False
        self._searcher_waits = False
        self._room = float("inf")
        nobody_decides = type(scheduler) is FIFOScheduler and type(stopper) is NoopStopper
        self._collect_s = (
            COLLECT_S
            if nobody_decides and not rules.checkpoint_config.checkpoint_frequency
            else 0.0
        )
        self._looks = 0  # at a searcher that gives nothing though nothing runs
        self._warned = False
        self._stopping = False  # no more trials start
        self._end: events.End | None = None
        self._out: list[Instruction] = []
        self._changed: dict[str, Trial] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "search_alg": None, "_out": [], "_changed": {}}

    def handle(self, event: Event) -> list[Instruction]:
        """Take an event in; what is to be done now, in order.

        Raises:
            TuneError: The search cannot go on: a metric is missing.
        """
        self._out = []
        if not self._is_outdated(event):
            _HANDLERS[type(event)](self, event)
        self._advance()
        out, self._out = self._out, []
        return out

    def drain_changed(self) -> list[Trial]:
        """The trials that are new, have been started, or whose status was set, since this was asked
        last.
        """
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def limit(self, trials: float) -> None:
        """The engine at hand has room for so many trials at a time, whatever they hold."""
        self._room = trials

    def move_to(self, storage: StorageContext) -> None:
        """The experiment directory lies there now."""
        self.rules = replace(self.rules, storage=storage)

    @property
    def waits_for_searcher(self) -> bool:
        """Whether the searcher gave nothing, and is to be asked again."""
        return self._searcher_waits

    @property
    def searcher_finished(self) -> bool:
        """Whether no further trials come."""
        return self._searcher_finished

    # -- what schedulers may ask and do

    def get_trials(self) -> Sequence[Trial]:
        return self.trials

    def get_live_trials(self) -> Collection[Trial]:
        return self._live.values()

    def pending_trials(self) -> Iterable[Trial]:
        return self._pending.values()

    def paused_trials(self) -> Iterable[Trial]:
        return self._paused.values()

    def get_trial(self, trial_id: str) -> Trial | None:
        return self._by_id.get(trial_id)

    def stop_trial(self, trial: Trial) -> None:
        if trial.trial_id not in self._live:
            return
        if trial.trial_id in self._running:
            self._leave(trial)
        trial.stopped_by = "scheduler"
        self._complete(trial, tell_scheduler=False)

    def pause_trial(self, trial: Trial, should_checkpoint: bool = True) -> None:
        run = self._running.get(trial.trial_id)
        if run is not None:
            run.pause_wanted = True
            run.save_wanted = should_checkpoint
        elif trial.status == Trial.PENDING and trial.trial_id in self._live:
            self._drop_reservation(trial)
            self._set(trial, Trial.PAUSED)

    def save_trial(self, trial: Trial) -> None:
        run = self._running.get(trial.trial_id)
        if run is not None:
            run.save_wanted = True

    def exploit(
        self, trial: Trial, donor: Trial, *, config: Mapping[str, Any], tag: str = ""
    ) -> None:
        latest = donor.checkpoints.latest
        if latest is None or trial.is_finished():
            return
        if trial.trial_id in self._running:
            self._leave(trial)
        else:
            self._drop_reservation(trial)
        self._set(trial, Trial.PAUSED)
        self._paused.pop(trial.trial_id, None)  # it waits for its checkpoint, nobody can choose it
        self._donating[trial.trial_id] = _Exploit(
            latest.checkpoint, dict(latest.metrics), dict(config), tag
        )
        self._out.append(
            events.Donate(
                trial_id=trial.trial_id,
                source=latest.checkpoint,
                checkpoint_index=trial.next_checkpoint_index,
            )
        )

    def update_resources(self, trial: Trial, factory: PlacementGroupFactory) -> None:
        if trial.placement_group_factory == factory:
            return
        trial.placement_group_factory = factory
        run = self._running.get(trial.trial_id)
        if run is not None:
            run.pause_wanted = run.save_wanted = True
            run.then = "requeue"
        else:
            self._drop_reservation(trial)

    # -- events

    def _begin(self, event: events.Begin) -> None:
        self.total_resources = dict(event.total_resources)

    def _resumed(self, event: events.Resumed) -> None:
        """Whatever ran is not there any more; what may go on does."""
        self.total_resources = dict(event.total_resources)
        self.ended = self._stopping = self._asking = self._searcher_waits = False
        self._end = self._reserving = None
        self._running.clear()
        for trial_id in list(self._donating):
            self._end_donation(trial_id)
        self._lending.clear()
        self._searcher_finished = False  # it may have been given more samples
        for trial in self.trials:
            if trial.status == Trial.TERMINATED:
                self._take_up(trial, event.finished)
            elif trial.status == Trial.ERROR:
                self._take_up(trial, event.errored)
            elif event.unfinished == "SKIP":
                self._complete(trial, tell_scheduler=True)
            elif event.unfinished == "RESTART":
                self._reset(trial)
            elif trial.status == Trial.RUNNING or (
                trial.status == Trial.PAUSED and trial.trial_id not in self._paused
            ):
                self._requeue(trial)

    def _suggested(self, event: events.Suggested) -> None:
        self._asking = False
        self._looks = 0
        config = self.rules.checkpoint_config
        trial = Trial(
            trial_id=event.trial_id,
            index=len(self.trials),
            trainable_name=self.rules.trainable_name,
            config=event.config,
            evaluated_params=event.evaluated_params,
            experiment_tag=event.tag,
            placement_group_factory=event.factory,
            storage=self._place_of(event.directory),
            checkpoint_config=config,
            name=event.name,
        )
        self.trials.append(trial)
        self._changed[trial.trial_id] = trial
        self._by_id[trial.trial_id] = self._live[trial.trial_id] = self._pending[trial.trial_id] = (
            trial
        )
        self._unstarted.add(trial.trial_id)
        self.scheduler.on_trial_add(self, trial)

    def _nothing_suggested(self, event: events.NothingSuggested) -> None:
        self._asking = False
        self._searcher_finished = event.finished
        self._searcher_waits = not event.finished

    def _place_held(self, event: events.PlaceHeld) -> None:
        if self._reserving != event.trial_id:
            return
        self._reserving = None
        trial = self._by_id[event.trial_id]
        attempt = self._attempts[trial.trial_id] = self._attempts.get(trial.trial_id, 0) + 1
        self._moving.pop(trial.trial_id, None)
        self._set(trial, Trial.RUNNING)
        self._running[trial.trial_id] = _Run(attempt)
        latest = trial.checkpoints.latest
        progress = (
            {key: value for key, value in latest.metrics.items() if key in AUTO_RESULT_KEYS}
            if latest is not None
            else {}
        )
        self._out.append(
            events.StartTrial(
                trial_id=trial.trial_id,
                attempt=attempt,
                checkpoint=latest.checkpoint if latest is not None else None,
                progress=progress,
            )
        )

    def _place_refused(self, event: events.PlaceRefused) -> None:
        if self._reserving == event.trial_id:
            self._reserving = None
            self._give_up(self._by_id[event.trial_id], event.error, event.text)

    def _started(self, event: events.TrialStarted) -> None:
        trial, run = self._by_id[event.trial_id], self._running[event.trial_id]
        trial.location = event.location
        self._changed[trial.trial_id] = trial
        trial.start_time = trial.start_time or event.now
        self._notify("restore" if trial.checkpoints.latest is not None else "start", trial)
        self._next_step(trial, run)

    def _stepped(self, event: events.TrialStepped) -> None:
        trial, run = self._by_id[event.trial_id], self._running[event.trial_id]
        for earlier in event.earlier:
            passing = {**earlier, EXPERIMENT_TAG: trial.experiment_tag}
            self._take_result(trial, passing)
            self._notify("result", trial, passing)
            self._out.append(events.TellResult(trial_id=trial.trial_id, result=passing))
        if event.ended and trial.last_result:
            trial.last_result[DONE] = True
            self._finish(trial, run)
            return
        result: dict[str, Any] = {**event.result, EXPERIMENT_TAG: trial.experiment_tag}
        if event.checkpoint is not None:
            result[CHECKPOINT_DIR_NAME] = event.checkpoint.path.rpartition("/")[2]
        is_last = event.ended or bool(result.get(DONE)) or self.stopper(trial.trial_id, result)
        result[DONE] = is_last
        self._take_result(trial, result)
        self._notify("result", trial, trial.last_result)  # in which `done` may still be set
        if event.checkpoint is not None:
            self._register(trial, event.checkpoint)
        decision = TrialScheduler.STOP
        if not is_last:
            decision = self._ask_scheduler(
                lambda: self.scheduler.on_trial_result(self, trial, result)
            )
        if decision == TrialScheduler.STOP:
            trial.last_result[DONE] = True
        if self.stopper.stop_all():
            self._stopping = True
        if trial.trial_id not in self._running or self._running[trial.trial_id] is not run:
            return  # the scheduler has taken it out of its process
        if decision == TrialScheduler.STOP:
            trial.stopped_by = "" if is_last else "scheduler"
            self._finish(trial, run, tell_scheduler=is_last)
            return
        self._out.append(events.TellResult(trial_id=trial.trial_id, result=result))
        if decision == TrialScheduler.PAUSE:
            run.pause_wanted = run.save_wanted = True
        if self._is_time_to_save(trial, result):
            run.save_wanted = True
        self._next_step(trial, run)

    def _take_result(self, trial: Trial, result: dict[str, Any]) -> None:
        """`result` is the trial's latest. TuneError where something that is needed is not in it."""
        if self.rules.strict_metrics:
            needed = {
                "TuneConfig(metric=…)": self.rules.metric,
                "the scheduler": self.scheduler.metric,
            }
            check_result(
                result,
                self.rules.trainable_name,
                needed,
                self.stopper if self.iteration == 0 else None,
            )
        trial.take_result(result)
        self.iteration += 1

    def _saved(self, event: events.TrialSaved) -> None:
        trial, run = self._by_id[event.trial_id], self._running[event.trial_id]
        if event.checkpoint is not None:
            self._register(trial, event.checkpoint)
        if run.then == "finish":
            self._leave(trial)
            self._complete(trial, tell_scheduler=False)
        else:
            self._next_step(trial, run)

    def _failed(self, event: events.TrialFailed) -> None:
        trial = self._by_id[event.trial_id]
        self._leave(trial, failed=True)
        trial.num_failures += 1
        if self.rules.fail_fast or trial.num_failures > self.rules.max_failures or self._stopping:
            self._give_up(trial, event.error, event.text)
            return
        trial.error_text = event.text
        self._requeue(trial)
        self._notify("recover", trial)

    def _not_reset(self, event: events.NotReset) -> None:
        """The trainable cannot take the place of another one: a new process has to."""
        trial = self._by_id[event.trial_id]
        self._leave(trial, failed=True)
        self._requeue(trial)

    def _place_wanted(self, event: events.PlaceWanted) -> None:
        self._lending.add(event.trial_id)
        if self._reserving is not None:
            self._drop_reservation(self._by_id[self._reserving])
        self._out.append(events.Lend(trial_id=event.trial_id, attempt=event.attempt))

    def _place_found(self, event: events.PlaceFound) -> None:
        self._lending.discard(event.trial_id)
        self._out.append(events.LetGoOn(trial_id=event.trial_id, attempt=event.attempt))

    def _donated(self, event: events.Donated) -> None:
        exploit = self._end_donation(event.trial_id)
        trial = self._by_id[event.trial_id]
        if exploit is None or trial.is_finished():
            return
        done_so_far = trial.iteration
        if event.checkpoint is not None:
            trial.config = exploit.config
            trial.experiment_tag = (
                f"{trial.index}_{exploit.tag}" if exploit.tag else trial.experiment_tag
            )
            self._register(trial, event.checkpoint, exploit.donor_metrics)
        self._requeue(trial)
        trial.begin_at(max(done_so_far, trial.checkpoint_iteration))

    def _tick(self, event: events.Tick) -> None:
        self._searcher_waits = False

    def _time_up(self, event: events.TimeUp) -> None:
        self._stopping = True
        self._end = events.End(problem="its time budget is used up")

    # -- what follows

    def _advance(self) -> None:
        """Start what can start; end when there is nothing left."""
        if self.ended:
            return
        if self._stopping:
            self._stop_all()
        else:
            self._fill()
        if not self._live and (self._stopping or self._searcher_finished):
            self.ended = True
            self._out.append(self._end or events.End())

    def _fill(self) -> None:
        """See that a trial waits to run, and that the one to run next waits for its place."""
        if self._may_ask():
            self._asking = True
            self._out.append(
                events.AskSearcher(trial_id=f"{self.rules.trial_prefix}_{len(self.trials):05d}")
            )
            return  # what it says is handled at once
        room = min(self.rules.max_concurrent, self._room)
        if (
            self._asking
            or self._reserving is not None
            or self._lending
            or len(self._running) >= room
        ):
            return
        trial = self._choice()
        if trial is not None:
            self._reserving = trial.trial_id
            self._out.append(
                events.Reserve(trial_id=trial.trial_id, factory=trial.placement_group_factory)
            )
        elif self._may_ask():
            self._fill()  # the scheduler has ended trials when it was asked, and the searcher may have waited for that
        elif not self._running and not self._donating and self._searcher_waits:
            self._looks += 1
            if self._looks > LOOKS:
                raise TuneError(
                    f"the searcher {type(self.search_alg).__name__} has suggested nothing for {LOOKS} s though no trial runs that it could "
                    "wait for: return a configuration from `suggest`, or `Searcher.FINISHED`."
                )
            self._out.append(events.LookAgain())

    def _may_ask(self) -> bool:
        """Whether the searcher is to be asked: no trial waits for its first start, and one more may
        run.
        """
        waits = self._unstarted or self._searcher_finished or self._searcher_waits or self._asking
        return not waits and len(self._running) < self.rules.max_concurrent

    def _choice(self) -> Trial | None:
        for trial_id in self._moving:
            if trial_id in self._pending:
                return self._pending[trial_id]
        chosen = self._ask_scheduler(lambda: self.scheduler.choose_trial_to_run(self))
        if (
            chosen is not None
            and chosen.trial_id in self._live
            and chosen.trial_id not in self._running
        ):
            return chosen if chosen.trial_id not in self._donating else None
        if self._running or self._donating or not (self._searcher_finished or self._searcher_waits):
            return None
        # Nothing runs and nothing more will come: what the scheduler holds back would never run.
        return next(iter(self._pending.values()), None) or next(iter(self._paused.values()), None)

    def _next_step(self, trial: Trial, run: _Run) -> None:
        """Save if somebody wants it, then pause, or train on."""
        if run.save_wanted:
            run.save_wanted = False
            if not self.rules.is_function:
                self._out.append(
                    events.SaveTrial(
                        trial_id=trial.trial_id,
                        attempt=run.attempt,
                        checkpoint_index=trial.next_checkpoint_index,
                    )
                )
                return
        if run.pause_wanted:
            self._leave(trial)
            if self.rules.is_function and trial.checkpoint_iteration < trial.iteration:
                self._warn_once(
                    f"the function `{trial.trainable_name}` is paused between two reports and begins again from its last checkpoint, "
                    f"here {trial.checkpoint_iteration} of {trial.iteration} iterations: report a checkpoint with every result, "
                    "`tune.report(metrics, checkpoint=…)`, and begin from `tune.get_checkpoint()`."
                )
            if run.then == "requeue":
                self._requeue(trial)
                self._moving[trial.trial_id] = None
            else:
                trial.begin_at(trial.checkpoint_iteration)
                self._set(trial, Trial.PAUSED)
            return
        self._out.append(
            events.StepTrial(
                trial_id=trial.trial_id,
                attempt=run.attempt,
                checkpoint_index=trial.next_checkpoint_index,
                collect_s=self._collect_s,
            )
        )

    def _ask_scheduler(self, ask: Callable[[], _Answer]) -> _Answer:
        """What the scheduler says, and what it wants to be written down. TuneError where it cannot
        go on.
        """
        try:
            answer = ask()
        except RuntimeError as error:
            raise TuneError(str(error)) from error
        self._write_scheduler_lines()
        return answer

    def _finish(self, trial: Trial, run: _Run, *, tell_scheduler: bool = True) -> None:
        """Its last result is there: save if that is wanted, then end."""
        if tell_scheduler:
            self._ask_scheduler(
                lambda: self.scheduler.on_trial_complete(self, trial, trial.last_result)
            )
        if (
            self.rules.checkpoint_config.checkpoint_at_end
            and not self.rules.is_function
            and not self._has_checkpoint_of_now(trial)
        ):
            run.then = "finish"
            self._out.append(
                events.SaveTrial(
                    trial_id=trial.trial_id,
                    attempt=run.attempt,
                    checkpoint_index=trial.next_checkpoint_index,
                )
            )
            return
        self._leave(trial)
        self._complete(trial, tell_scheduler=False)

    def _complete(self, trial: Trial, *, tell_scheduler: bool) -> None:
        """It has ended well."""
        if tell_scheduler:
            self.scheduler.on_trial_complete(self, trial, trial.last_result)
        self._drop_reservation(trial)
        self._end_donation(trial.trial_id)
        self._set(trial, Trial.TERMINATED)
        self._searcher_waits = False
        self._out.append(
            events.TellComplete(
                trial_id=trial.trial_id, result=trial.last_result or None, error=False
            )
        )
        self._notify("complete", trial)

    def _give_up(self, trial: Trial, error: bytes, text: str) -> None:
        """It has failed for good."""
        self._drop_reservation(trial)
        trial.exception = unpack_error(error)
        trial.error_text = text
        self._set(trial, Trial.ERROR)
        self._searcher_waits = False
        self.scheduler.on_trial_error(self, trial)
        self._out.append(
            events.TellComplete(
                trial_id=trial.trial_id, result=trial.last_result or None, error=True
            )
        )
        self._notify("error", trial)
        if self.rules.fail_fast and not self._stopping:
            self._stopping = True
            self._end = events.End(
                problem=f"the trial {trial} failed, and `fail_fast` is set", error=error
            )

    def _stop_all(self) -> None:
        for trial in list(self._live.values()):
            if trial.trial_id in self._running:
                run = self._running[trial.trial_id]
                if run.then == "finish":
                    continue
                self._leave(trial)
            trial.stopped_by = "search"
            self._complete(trial, tell_scheduler=True)

    def _leave(self, trial: Trial, *, failed: bool = False) -> None:
        """Its process ends."""
        run = self._running.pop(trial.trial_id)
        self._lending.discard(trial.trial_id)
        trial.location = ""
        self._out.append(
            events.StopTrial(trial_id=trial.trial_id, attempt=run.attempt, failed=failed)
        )

    def _requeue(self, trial: Trial) -> None:
        """It starts again from its latest checkpoint, before trials that have not begun."""
        trial.location = ""  # where a kill has left it running
        trial.begin_at(trial.checkpoint_iteration)
        self._set(trial, Trial.PENDING)
        self._pending = {
            trial.trial_id: trial,
            **{key: other for key, other in self._pending.items() if key != trial.trial_id},
        }

    def _reset(self, trial: Trial) -> None:
        """It starts again from nothing."""
        fresh = Trial(
            trial_id=trial.trial_id,
            index=trial.index,
            trainable_name=trial.trainable_name,
            config=trial.config,
            evaluated_params=trial.evaluated_params,
            experiment_tag=trial.experiment_tag,
            placement_group_factory=trial.placement_group_factory,
            storage=trial.storage,
            checkpoint_config=self.rules.checkpoint_config,
            name=trial.custom_trial_name,
        )
        for entry in trial.checkpoints.registered:
            self._out.append(events.Delete(trial_id=trial.trial_id, checkpoint=entry.checkpoint))
        trial.__dict__.update(fresh.__dict__)
        self._live[trial.trial_id] = trial
        self._requeue(trial)

    def _take_up(self, trial: Trial, how: events.Resumption) -> None:
        """A trial that had ended goes on, or begins anew, if that is wanted."""
        if how == "SKIP":
            return
        if how == "RESTART":
            self._reset(trial)
        else:
            trial.exception, trial.error_text, trial.num_failures, trial.stopped_by = (
                None,
                "",
                0,
                "",
            )
            self._live[trial.trial_id] = trial
            self._requeue(trial)
        self.scheduler.on_trial_add(self, trial)

    def _set(self, trial: Trial, status: str) -> None:
        trial.status = status
        self._changed[trial.trial_id] = trial
        self._unstarted.discard(trial.trial_id)
        self._pending.pop(trial.trial_id, None)
        self._paused.pop(trial.trial_id, None)
        if status == Trial.PENDING:
            self._pending[trial.trial_id] = trial
        elif status == Trial.PAUSED:
            self._paused[trial.trial_id] = trial
        elif status in (Trial.TERMINATED, Trial.ERROR):
            self._live.pop(trial.trial_id, None)

    def _drop_reservation(self, trial: Trial) -> None:
        if self._reserving == trial.trial_id:
            self._reserving = None
            self._out.append(events.GiveBack(trial_id=trial.trial_id))

    def _register(
        self, trial: Trial, checkpoint: Checkpoint, metrics: Mapping[str, Any] | None = None
    ) -> None:
        surplus = trial.take_checkpoint(
            checkpoint, trial.last_result if metrics is None else metrics
        )
        self._notify("checkpoint", trial, checkpoint)
        self._out.append(events.Confirm(trial_id=trial.trial_id, checkpoint=checkpoint))
        for other in surplus:
            self._delete(trial.trial_id, other)

    def _delete(self, trial_id: str, checkpoint: Checkpoint) -> None:
        """Nobody needs it any more, unless it is just being copied for another trial."""
        if any(exploit.source == checkpoint for exploit in self._donating.values()):
            self._outdated.append((trial_id, checkpoint))
        else:
            self._out.append(events.Delete(trial_id=trial_id, checkpoint=checkpoint))

    def _end_donation(self, trial_id: str) -> _Exploit | None:
        """What a trial waits for has come, or is not wanted any more."""
        exploit = self._donating.pop(trial_id, None)
        outdated, self._outdated = self._outdated, []
        for donor_id, checkpoint in outdated:
            self._delete(donor_id, checkpoint)
        return exploit

    def _is_time_to_save(self, trial: Trial, result: Mapping[str, Any]) -> bool:
        frequency = self.rules.checkpoint_config.checkpoint_frequency
        return bool(result.get(SHOULD_CHECKPOINT)) or bool(
            frequency and trial.iteration % frequency == 0
        )

    def _has_checkpoint_of_now(self, trial: Trial) -> bool:
        return (
            trial.checkpoints.latest is not None and trial.checkpoint_iteration == trial.iteration
        )

    def _notify(self, hook: events.Hook, trial: Trial, subject: Any = None) -> None:
        self._out.append(events.Notify(hook=hook, trial_id=trial.trial_id, subject=subject))

    def _warn_once(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            self._out.append(events.Warn(text=text))

    def _write_scheduler_lines(self) -> None:
        drain: Callable[[], list[tuple[str, str]]] | None = getattr(
            self.scheduler, "drain_policy_log", None
        )
        lines = tuple(drain()) if drain is not None else ()
        if lines:
            self._out.append(events.WriteLines(lines=lines))

    def _is_outdated(self, event: Event) -> bool:
        """Whether it is about a start of a trial that is over."""
        if not isinstance(event, events.OF_A_START):
            return False
        run = self._running.get(event.trial_id)
        return run is None or run.attempt != event.attempt

    def _place_of(self, directory: str) -> StorageContext:
        experiment = self.rules.storage
        return StorageContext(
            experiment.experiment_fs_path, directory, experiment.storage_filesystem
        )


_HANDLERS: dict[type, Callable[[TuneMachine, Any], None]] = {
    events.Begin: TuneMachine._begin,
    events.Resumed: TuneMachine._resumed,
    events.Suggested: TuneMachine._suggested,
    events.NothingSuggested: TuneMachine._nothing_suggested,
    events.PlaceHeld: TuneMachine._place_held,
    events.PlaceRefused: TuneMachine._place_refused,
    events.TrialStarted: TuneMachine._started,
    events.TrialStepped: TuneMachine._stepped,
    events.TrialSaved: TuneMachine._saved,
    events.TrialFailed: TuneMachine._failed,
    events.NotReset: TuneMachine._not_reset,
    events.PlaceWanted: TuneMachine._place_wanted,
    events.PlaceFound: TuneMachine._place_found,
    events.Donated: TuneMachine._donated,
    events.Tick: TuneMachine._tick,
    events.TimeUp: TuneMachine._time_up,
}
