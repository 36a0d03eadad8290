"""A search without processes: the instructions of syncline's controller are carried out immediately
in this thread.

Searcher, scheduler and controller are the real ones; a function returns the result of a step.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from bench.programs.tune.searches import METRIC, MODE
from syncline.core.error_frames import pack_error
from syncline.train.storage.context import StorageContext, checkpoint_dir_name
from syncline.tune.config import CheckpointConfig
from syncline.tune.controller import events
from syncline.tune.controller.events import Event, Instruction, SearchRules
from syncline.tune.controller.state import TuneMachine
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers.trial_scheduler import TrialScheduler
from syncline.tune.search.search_algorithm import Suggestion
from syncline.tune.stopper import make_stopper
from syncline.tune.workers import messages

ONE_CPU = PlacementGroupFactory([{"CPU": 1}])
KILLED = pack_error(RuntimeError("killed"))


class Search(Protocol):
    """The methods of a search algorithm that the simulation calls."""

    def next_trial(self, trial_id: str) -> Suggestion | None: ...
    def is_finished(self) -> bool: ...
    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None: ...
    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None: ...


class SimulatedSearch:
    """One search.

    Args:
        search: Suggests configurations.
        scheduler: Stops trials.
        loss: Loss of a configuration after n steps (from 1); None if the process dies.
        steps: Number of steps after which a trial ends.
        cpus: Number of concurrent trials; their results arrive in random order.
        saves_every: Steps between checkpoints; 0 for none.
    """

    def __init__(
        self,
        search: Search,
        scheduler: TrialScheduler,
        loss: Callable[[dict[str, Any], int], float | None],
        *,
        steps: int,
        cpus: int = 1,
        saves_every: int = 0,
    ) -> None:
        scheduler.set_search_properties(METRIC, MODE)
        rules = SearchRules(
            trainable_name="trial",
            is_function=False,
            storage=StorageContext("/unused", "search"),
            trial_prefix="t",
            metric=METRIC,
            strict_metrics=True,
            max_concurrent=float("inf"),
            max_failures=float("inf"),
            fail_fast=False,
            checkpoint_config=CheckpointConfig(
                checkpoint_frequency=saves_every, checkpoint_at_end=False, num_to_keep=1
            ),
        )
        self.machine = TuneMachine(rules, scheduler, make_stopper({"training_iteration": steps}))
        self.events = self.failures = self.checkpoints = 0
        self._search, self._loss, self._cpus = search, loss, cpus
        self._random = random.Random(0)
        self._iterations: dict[str, int] = {}
        self._running: list[Event] = []
        self._reserving: str | None = None
        self._held: set[str] = set()
        self._ended = False

    def run(self) -> list[Trial]:
        """Run the search to the end; return all trials."""
        self._handle(events.SearchStarted(total_resources={"CPU": self._cpus}))
        while not self._ended:
            index = self._random.randrange(len(self._running))
            self._running[index], self._running[-1] = self._running[-1], self._running[index]
            self._handle(self._running.pop())
        return self.machine.trials

    def _handle(self, event: Event) -> None:
        """Handle an event, and the suggestions and reservations that follow from it."""
        pending = [event]
        while pending:
            self.events += 1
            happened = self.machine.with_stopper_verdict(pending.pop())
            for instruction in self.machine.handle(happened):
                if isinstance(instruction, events.AskSearcher):
                    pending.append(self._suggest(instruction.trial_id))
                elif (answer := self._carry_out(instruction)) is not None:
                    self._running.append(answer)
            if self._reserving is not None and len(self._held) < self._cpus:
                self._held.add(self._reserving)
                pending.append(events.ResourcesReserved(trial_id=self._reserving))
                self._reserving = None

    def _suggest(self, trial_id: str) -> Event:
        suggestion = None if self._search.is_finished() else self._search.next_trial(trial_id)
        if suggestion is None:
            return events.NoSuggestion(finished=self._search.is_finished())
        return events.TrialSuggested(
            trial_id=trial_id,
            config=suggestion.config,
            evaluated_params=suggestion.evaluated_params,
            tag=suggestion.tag,
            factory=ONE_CPU,
            name=None,
            directory=trial_id,
        )

    def _carry_out(self, do: Instruction) -> Event | None:
        """Return the event that follows from an instruction, if any."""
        match do:
            case events.ReserveResources():
                self._reserving = do.trial_id
            case events.ReleaseResources() | events.StopTrial():
                self._held.discard(do.trial_id)
                self._reserving = None if self._reserving == do.trial_id else self._reserving
            case events.StartTrial():
                self._iterations[do.trial_id] = do.progress.get("training_iteration", 0)
                return events.TrialStarted(
                    trial_id=do.trial_id, attempt=do.attempt, location="here:1", now=1.0
                )
            case events.RunCommand(command=messages.Step()):
                return self._step(do)
            case events.RunCommand(command=messages.Save(checkpoint_index=index)):
                self.checkpoints += 1
                saved = self._trial(do.trial_id).storage.checkpoint(checkpoint_dir_name(index))
                return events.TrialSaved(trial_id=do.trial_id, attempt=do.attempt, checkpoint=saved)
            case events.ReportResult():
                self._search.on_trial_result(do.trial_id, dict(do.result))
            case events.ReportCompletion():
                self._search.on_trial_complete(
                    do.trial_id, dict(do.result) if do.result is not None else None, do.error
                )
            case events.EndSearch():
                self._ended = True
        return None

    def _step(self, do: events.RunCommand) -> Event:
        self._iterations[do.trial_id] += 1
        iteration = self._iterations[do.trial_id]
        loss = self._loss(self._trial(do.trial_id).config, iteration)
        if loss is None:
            self.failures += 1
            return events.TrialFailed(
                trial_id=do.trial_id, attempt=do.attempt, error=KILLED, text="RuntimeError: killed"
            )
        result = {METRIC: loss, "training_iteration": iteration, "time_total_s": float(iteration)}
        return events.TrialStepped(
            trial_id=do.trial_id, attempt=do.attempt, result=result, checkpoint=None, ended=False
        )

    def _trial(self, trial_id: str) -> Trial:
        trial = self.machine.get_trial(trial_id)
        assert trial is not None, trial_id
        return trial
