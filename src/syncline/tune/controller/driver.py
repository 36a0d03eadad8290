"""`TuneController`: carries out what `TuneMachine` says, and tells it what happened.

One thread, that of `fit()`, runs the loop; engine threads only put into its queue. For each event,
in this order: the machine decides; callbacks are told (so that what they write down is there); the
event goes to the journal; the rest is done.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syncline import faults
from syncline.core import api
from syncline.core.error_frames import pack_error
from syncline.core.lifecycle import ensure_engine
from syncline.core.placement import PlacementGroup
from syncline.train.checkpoint import Checkpoint
from syncline.tune.callback import CallbackList
from syncline.tune.console.reporter import ProgressReporter
from syncline.tune.controller import events, upkeep
from syncline.tune.controller.events import Event, Instruction
from syncline.tune.controller.journal import SearchStore
from syncline.tune.controller.record import SearchRecord
from syncline.tune.controller.restore import snapshot
from syncline.tune.controller.state import TuneMachine
from syncline.tune.error import TuneError
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import EXPR_ERROR_FILE
from syncline.tune.search.search_algorithm import SearchAlgorithm
from syncline.tune.workers import messages
from syncline.tune.workers.messages import Outcome, TrialSpec
from syncline.tune.workers.places import Places
from syncline.tune.workers.pool import CLEAN_UP_S, ProcessPool, TrialProcess

logger = logging.getLogger("syncline")

LOOK_S = 0.5
"""How often the loop looks up when nothing happens: for the display, the time budget, and lines to
send.
"""


@dataclass(frozen=True, kw_only=True)
class SearchWays:
    """How a search treats its trials; what the machine need not know."""

    experiment_name: str
    """The search's name."""
    trainable: Any
    """The class, shipped, or a reference to that."""
    resources: Callable[[dict[str, Any]], PlacementGroupFactory]
    """What a trial with a configuration holds."""
    name_of: Callable[[Trial], str] | None = None
    """Gives trials their names."""
    directory_of: Callable[[Trial], str] | None = None
    """Gives trials the names of their directories."""
    reuse: bool = False
    """Whether processes serve several trials."""
    in_trial_directory: bool = False
    """Whether a trial's working directory is its own."""
    log_files: tuple[str, str] | None = None
    """Where what trials print is kept."""
    budget_s: float | None = None
    """How long the search may take."""
    first_checkpoint: Checkpoint | None = None
    """Where a trial begins that has no checkpoint of its own."""


@dataclass(frozen=True)
class _Stopped:
    """A process has cleaned up, or had time enough to; `attempt` says whose start it was."""

    trial_id: str
    attempt: int


@dataclass(frozen=True)
class _Held:
    """A place is reserved, unless it has been given back meanwhile."""

    trial_id: str
    place: PlacementGroup | None


@dataclass(frozen=True)
class _Asked:
    """A trainer inside a trial has asked for resources."""

    trial_id: str
    attempt: int
    place: PlacementGroup


@dataclass
class _Leaving:
    """A process that cleans up, and still holds its trial's place."""

    process: TrialProcess
    place_id: str
    deadline: float


@dataclass(frozen=True, kw_only=True)
class SearchEnd:
    """How a search ended."""

    problem: str | None
    """Why early, if it was; None at its end."""
    error: bytes | None
    """What `fail_fast` is to raise."""
    interrupted: bool = False
    """Somebody pressed Ctrl-C."""


class TuneController:
    """Runs one search to its end. Used once, from one thread."""

    def __init__(
        self,
        *,
        machine: TuneMachine,
        search: SearchAlgorithm,
        ways: SearchWays,
        callbacks: CallbackList,
        reporter: ProgressReporter | None,
        store: SearchStore,
        record: SearchRecord,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._machine = machine
        self._search = search
        self._ways = ways
        self._callbacks = callbacks
        self._reporter = reporter
        self._store = store
        self._record = record
        self._clock = clock
        self._wall = wall
        machine.search_alg = search
        engine = ensure_engine()
        on_one_machine = (
            len([node for node in api.nodes() if node["Alive"]]) == 1 and not engine.may_grow
        )
        self._queue: queue.SimpleQueue[Event | _Stopped | _Held | _Asked] = queue.SimpleQueue()
        self._next_events: deque[Event | _Stopped | _Held | _Asked] = deque()
        self._places = Places(held=lambda trial_id, place: self._queue.put(_Held(trial_id, place)))
        self._pool = ProcessPool(ways.trainable, reuse=ways.reuse, on_one_machine=on_one_machine)
        self._processes: dict[str, TrialProcess] = {}
        self._leaving: dict[tuple[str, int], _Leaving] = {}
        self._untidy: set[str] = (
            set()
        )  # trials whose process was ended while it may have been saving
        self._heard = ""  # the trial that the event at hand is about
        self._in_event = False  # if an error or an interrupt ends that early, what was written down counts, not what is in memory
        self._directories = {trial.relative_logdir for trial in machine.trials}
        self._end: SearchEnd | None = None
        self._deadline = clock() + ways.budget_s if ways.budget_s is not None else None
        self._look_at = 0.0
        self._do: dict[type, Callable[[Any], None]] = {
            events.AskSearcher: self._ask_searcher,
            events.TellResult: lambda do: self._search.on_trial_result(
                do.trial_id, dict(do.result)
            ),
            events.TellComplete: self._tell_complete,
            events.Reserve: self._reserve,
            events.GiveBack: lambda do: self._places.give_back(do.trial_id),
            events.StartTrial: self._start,
            events.StepTrial: lambda do: self._command(
                do, messages.Step(checkpoint_index=do.checkpoint_index, collect_s=do.collect_s)
            ),
            events.SaveTrial: lambda do: self._command(
                do, messages.Save(checkpoint_index=do.checkpoint_index)
            ),
            events.StopTrial: self._stop,
            events.Lend: self._lend,
            events.LetGoOn: lambda do: self._command(do, messages.GoOn()),
            events.Donate: self._donate,
            events.Confirm: self._confirm,
            events.Delete: lambda do: upkeep.delete(self._trial(do.trial_id), do.checkpoint),
            events.WriteLines: lambda do: upkeep.write_lines(self._machine.rules.storage, do.lines),
            events.Warn: lambda do: logger.warning("%s", do.text),
            events.LookAgain: lambda do: (
                None
            ),  # `_next` looks again when nothing has happened for a while
            events.End: self._finish,
        }

    def run(self, first: Event) -> SearchEnd:
        """Search until the end, the time budget, an error, or an interrupt. `first`: Begin, or
        Resumed.

        Raises:
            TuneError: The search cannot go on, or cannot be kept.
        """
        try:
            self._take(first)
            self._record.changes(self._machine.trials)
            while self._end is None:
                self._take(self._next())
            self._await_leaving()
            return self._end
        except KeyboardInterrupt:
            return SearchEnd(problem="it was interrupted", error=None, interrupted=True)
        finally:
            self._close()

    def actor_of(self, trial_id: str) -> Any:
        """The actor in which a trial runs; None if it does not. From any thread."""
        process = self._processes.get(trial_id)
        return process.actor if process is not None else None

    # -- the loop

    def _next(self) -> Event | _Stopped | _Held | _Asked:
        """What has happened; while nothing does, the display is kept up to date."""
        while True:
            self._look()
            if self._next_events:
                return self._next_events.popleft()
            if self._deadline is not None and self._clock() >= self._deadline:
                self._deadline = None
                return events.TimeUp()
            try:
                return self._queue.get(timeout=LOOK_S)
            except queue.Empty:
                self._store.flush()
                if self._machine.waits_for_searcher:
                    return events.Tick()

    def _look(self, done: bool = False) -> None:
        """Show how things are, and end those that take too long to clean up."""
        now = self._clock()
        if now >= self._look_at or done:
            self._look_at = now + LOOK_S / 5
            if self._reporter is not None and self._reporter.should_report(
                self._machine.trials, done
            ):
                self._reporter.report(self._machine.trials, done, self._usage())
            for key, leaving in list(self._leaving.items()):
                if now >= leaving.deadline:
                    self._next_events.append(_Stopped(*key))

    def _take(self, happened: Event | _Stopped | _Held | _Asked) -> None:
        if isinstance(happened, _Stopped):
            self._stopped(happened)
            return
        if isinstance(happened, _Asked):
            self._asked(happened)
            return
        if isinstance(happened, _Held):
            if happened.place != self._places.of(happened.trial_id):
                return
            self._places.has_come(happened.trial_id)
            happened = events.PlaceHeld(trial_id=happened.trial_id)
        self._heard = getattr(happened, "trial_id", "")
        self._in_event = True
        instructions = self._machine.handle(happened)
        rest: list[Instruction] = []
        for instruction in instructions:
            if isinstance(instruction, events.Notify):
                self._notify(instruction)
            else:
                rest.append(instruction)
        faults.reach("tune.before_journal")
        self._keep(lambda: self._store.append(happened))
        self._record.changes(self._machine.drain_changed())
        faults.reach("tune.after_journal")
        for instruction in rest:
            self._do[type(instruction)](instruction)
            faults.reach("tune.after_instruction")
        self._in_event = False
        if self._store.wants_snapshot:
            self._snapshot()

    def _snapshot(self) -> None:
        self._keep(
            lambda: self._store.snapshot(snapshot(self._machine, self._search, self._callbacks))
        )

    def _keep(self, write: Callable[[], None]) -> None:
        """TuneError where the state of the search cannot be written down: without it, a restored
        search would train again.
        """
        try:
            write()
        except OSError as error:
            path = self._machine.rules.storage.experiment_fs_path
            raise TuneError(
                f"the state of the search cannot be written to {path!r} ({error.strerror or error}), so the search has ended; what was "
                f"written before is kept. Free some room, or see to what else is wrong there, and go on with `Tuner.restore({path!r}, …)`."
            ) from error

    def _close(self) -> None:
        """Whatever runs is ended, nothing is held any more, what is collected is written."""
        for process in (
            *self._processes.values(),
            *(leaving.process for leaving in self._leaving.values()),
        ):
            self._pool.end(process)
        self._processes.clear()
        self._leaving.clear()
        while not self._queue.empty():
            happened = self._queue.get()
            if isinstance(happened, _Asked):
                self._asked(happened)
        self._places.close()
        self._pool.close()
        for trial_id in sorted(self._untidy):
            self._tidy(self._trial(trial_id))
        self._look(done=True)
        self._callbacks.on_experiment_end(trials=self._machine.trials)
        if self._reporter is not None:
            self._reporter.close()
        if not self._in_event:
            self._snapshot()
        self._keep(self._store.close)

    def _await_leaving(self) -> None:
        """Trainables that clean up have time to."""
        while self._leaving:
            try:
                happened = self._queue.get(timeout=LOOK_S)
            except queue.Empty:
                self._look()
                happened = self._next_events.popleft() if self._next_events else None  # type: ignore[assignment]
            if isinstance(happened, _Stopped):
                self._stopped(happened)
            elif isinstance(happened, _Asked):
                self._asked(happened)

    # -- instructions

    def _ask_searcher(self, do: events.AskSearcher) -> None:
        suggestion = None if self._search.is_finished() else self._search.next_trial(do.trial_id)
        if suggestion is None:
            self._next_events.append(events.NothingSuggested(finished=self._search.is_finished()))
            return
        draft = self._draft(
            do.trial_id, suggestion.config, suggestion.evaluated_params, suggestion.tag
        )
        self._next_events.append(
            events.Suggested(
                trial_id=do.trial_id,
                config=suggestion.config,
                evaluated_params=suggestion.evaluated_params,
                tag=suggestion.tag,
                factory=draft.placement_group_factory,
                name=draft.custom_trial_name,
                directory=self._directory_of(draft),
            )
        )
        self._pool.prepare_for(draft.placement_group_factory)

    def _draft(
        self, trial_id: str, config: dict[str, Any], params: dict[str, Any], tag: str
    ) -> Trial:
        """The trial as the functions that name trials get to see it."""
        rules = self._machine.rules
        draft = Trial(
            trial_id=trial_id,
            index=len(self._machine.trials),
            trainable_name=rules.trainable_name,
            config=config,
            evaluated_params=params,
            experiment_tag=tag,
            placement_group_factory=self._ways.resources(config),
            storage=rules.storage,
            checkpoint_config=rules.checkpoint_config,
        )
        if self._ways.name_of is not None:
            draft.custom_trial_name = str(self._ways.name_of(draft))
        return draft

    def _directory_of(self, draft: Trial) -> str:
        wanted = (
            str(self._ways.directory_of(draft))
            if self._ways.directory_of is not None
            else draft.name
        )
        directory = wanted.replace("/", "_").strip() or draft.trial_id
        if directory in self._directories:  # a program may give several trials one name
            directory = f"{directory}_{draft.trial_id}"
        self._directories.add(directory)
        return directory

    def _tell_complete(self, do: events.TellComplete) -> None:
        self._search.on_trial_complete(
            do.trial_id, dict(do.result) if do.result is not None else None, do.error
        )

    def _reserve(self, do: events.Reserve) -> None:
        try:
            self._places.reserve(do.trial_id, do.factory)
        except ValueError as error:
            self._next_events.append(
                events.PlaceRefused(
                    trial_id=do.trial_id, error=pack_error(error), text=f"ValueError: {error}"
                )
            )

    def _start(self, do: events.StartTrial) -> None:
        trial = self._trial(do.trial_id)
        if trial.local_path is not None:
            os.makedirs(trial.local_path, exist_ok=True)
        self._tidy(trial)
        spec = TrialSpec(
            trial_id=trial.trial_id,
            trial_name=trial.name,
            experiment_name=self._ways.experiment_name,
            experiment_tag=trial.experiment_tag,
            config=trial.config,
            storage=trial.storage,
            resources=trial.placement_group_factory,
            checkpoint=do.checkpoint or self._ways.first_checkpoint,
            progress=do.progress,
            in_trial_directory=self._ways.in_trial_directory,
            log_files=self._ways.log_files,
        )
        place = self._places.of(trial.trial_id)
        try:
            process = self._pool.take(trial.placement_group_factory, place)
            process.attempt = do.attempt
            self._processes[trial.trial_id] = process
            self._pool.start(process, spec, self._hear(trial.trial_id, do.attempt))
        except (TypeError, ValueError) as error:  # the configuration cannot be pickled
            self._queue.put(
                events.TrialFailed(
                    trial_id=trial.trial_id,
                    attempt=do.attempt,
                    error=pack_error(error),
                    text=f"{type(error).__name__}: {error}",
                )
            )

    def _tidy(self, trial: Trial) -> None:
        if trial.trial_id in self._untidy:
            self._untidy.discard(trial.trial_id)
            upkeep.discard_unknown(trial)

    def _command(
        self, do: events.StepTrial | events.SaveTrial | events.LetGoOn, command: messages.Command
    ) -> None:
        process = self._processes.get(do.trial_id)
        if process is not None:
            self._pool.run(process, command, self._hear(do.trial_id, do.attempt))

    def _hear(
        self, trial_id: str, attempt: int
    ) -> Callable[[Outcome | None, BaseException | None], None]:
        """What turns an outcome into an event."""

        def hear(outcome: Outcome | None, error: BaseException | None) -> None:
            self._queue.put(self._event_of(trial_id, attempt, outcome, error))

        return hear

    def _event_of(
        self, trial_id: str, attempt: int, outcome: Outcome | None, error: BaseException | None
    ) -> Event | _Asked:
        who: dict[str, Any] = {"trial_id": trial_id, "attempt": attempt}
        if error is not None:
            return events.TrialFailed(
                **who, error=pack_error(error), text=f"{type(error).__name__}: {error}"
            )
        if isinstance(outcome, messages.Started):
            return events.TrialStarted(**who, location=outcome.location, now=self._wall())
        if isinstance(outcome, messages.Stepped):
            return events.TrialStepped(
                **who,
                result=outcome.result,
                checkpoint=outcome.checkpoint,
                ended=outcome.ended,
                earlier=outcome.earlier,
            )
        if isinstance(outcome, messages.Saved):
            return events.TrialSaved(**who, checkpoint=outcome.checkpoint)
        if isinstance(outcome, messages.WantsPlace):
            return events.PlaceWanted(**who)
        if isinstance(outcome, messages.AskedForPlace):
            return _Asked(trial_id, attempt, outcome.place)
        if isinstance(outcome, messages.HasPlace):
            return events.PlaceFound(**who)
        if isinstance(outcome, messages.NotReset):
            self._pool.stop_reusing()
            return events.NotReset(**who)
        assert isinstance(outcome, messages.Failed), outcome
        return events.TrialFailed(**who, error=outcome.error, text=outcome.text)

    def _stop(self, do: events.StopTrial) -> None:
        """A function's process ends at once; a class may clean up first, or be used again."""
        process = self._processes.pop(do.trial_id, None)
        if process is None:  # the engine refused to start one
            self._places.give_back(do.trial_id)
            return
        if do.failed or do.trial_id != self._heard:
            self._untidy.add(do.trial_id)
        if do.failed or (self._machine.rules.is_function and not self._ways.reuse):
            self._pool.end(process)
            self._places.give_back(do.trial_id)
            return
        key, place_id = (do.trial_id, do.attempt), f"{do.trial_id} {do.attempt}"
        self._places.set_apart(do.trial_id, place_id)
        self._leaving[key] = _Leaving(process, place_id, self._clock() + CLEAN_UP_S)
        self._pool.run(
            process, messages.Stop(), lambda outcome, error: self._queue.put(_Stopped(*key))
        )

    def _stopped(self, event: _Stopped) -> None:
        leaving = self._leaving.pop((event.trial_id, event.attempt), None)
        if leaving is None:
            return
        if self._clock() >= leaving.deadline or not self._pool.keep(leaving.process):
            self._pool.end(leaving.process)
        self._places.give_back(leaving.place_id)

    def _asked(self, event: _Asked) -> None:
        """What a trainer inside a trial reserves ends with the trial, which does not get to give it
        back.
        """
        process = self._processes.get(event.trial_id)
        if process is None or process.attempt != event.attempt:
            ensure_engine().remove_placement_group(event.place.id)
            return
        self._places.adopt(event.trial_id, event.place)
        self._pool.run(process, messages.GoOn(), self._hear(event.trial_id, event.attempt))

    def _lend(self, do: events.Lend) -> None:
        self._places.lend(do.trial_id)
        process = self._processes[do.trial_id]
        self._pool.run(process, messages.GoOn(), self._hear(do.trial_id, do.attempt))

    def _donate(self, do: events.Donate) -> None:
        trial = self._trial(do.trial_id)

        def copy() -> None:
            try:
                checkpoint = upkeep.copy_verified(trial, do.source, do.checkpoint_index)
                self._queue.put(events.Donated(trial_id=do.trial_id, checkpoint=checkpoint))
            except OSError as error:
                logger.warning(
                    "%s keeps its own weights: the checkpoint %s cannot be copied: %s",
                    trial,
                    do.source.path,
                    error,
                )
                self._queue.put(
                    events.Donated(trial_id=do.trial_id, checkpoint=None, problem=str(error))
                )

        threading.Thread(target=copy, name="syncline-donate", daemon=True).start()

    def _confirm(self, do: events.Confirm) -> None:
        trial = self._trial(do.trial_id)
        if upkeep.is_own(trial, do.checkpoint):
            trial.storage.confirm(do.checkpoint)

    def _finish(self, do: events.End) -> None:
        self._end = SearchEnd(problem=do.problem, error=do.error)

    # -- telling

    def _notify(self, do: events.Notify) -> None:
        trial = self._trial(do.trial_id)
        where: dict[str, Any] = {
            "iteration": self._machine.iteration,
            "trials": self._machine.trials,
            "trial": trial,
        }
        if do.hook == "result":
            self._record.result(trial, do.subject)
            self._callbacks.on_trial_result(**where, result=do.subject)
        elif do.hook == "checkpoint":
            self._callbacks.on_checkpoint(**where, checkpoint=do.subject)
            self._callbacks.on_trial_save(**where)
        elif do.hook == "start":
            self._callbacks.on_trial_start(**where)
        elif do.hook == "restore":
            self._callbacks.on_trial_start(**where)
            self._callbacks.on_trial_restore(**where)
        elif do.hook == "complete":
            if trial.num_failures:  # it went on, and has ended well
                trial.storage.files.delete(EXPR_ERROR_FILE)
            self._callbacks.on_trial_complete(**where)
        elif do.hook == "recover":
            self._write_error(trial)
            self._record.failure(trial, goes_on=True)
            self._callbacks.on_trial_recover(**where)
        else:
            self._write_error(trial)
            self._record.failure(trial, goes_on=False)
            self._callbacks.on_trial_error(**where)

    def _write_error(self, trial: Trial) -> None:
        text = f"Failure # {max(trial.num_failures, 1)} (occurred at {time.strftime('%Y-%m-%d_%H-%M-%S')})\n{trial.error_text}\n\n"
        trial_files = trial.storage.files
        trial_files.write(
            EXPR_ERROR_FILE, (trial_files.read(EXPR_ERROR_FILE) or b"") + text.encode()
        )

    def _usage(self) -> str:
        """A line about the machines."""
        total, used = self._machine.total_resources, self._places.in_use
        parts = [
            f"{used.get(name, 0.0):g}/{amount:g} {name}s"
            for name, amount in total.items()
            if name in ("CPU", "GPU")
        ]
        return f"Logical resource usage: {', '.join(parts)}"

    def _trial(self, trial_id: str) -> Trial:
        trial = self._machine.get_trial(trial_id)
        assert trial is not None, trial_id
        return trial
