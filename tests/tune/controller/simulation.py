"""Simulation of a search without processes: carries out the instructions of `TuneMachine` in an
order chosen by the test.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from syncline.core.error_frames import pack_error
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import StorageContext, checkpoint_dir_name
from syncline.tune.config import CheckpointConfig
from syncline.tune.controller import events
from syncline.tune.controller.events import Event, Instruction, SearchRules
from syncline.tune.controller.state import TuneMachine
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers.trial_scheduler import ControllerView, FIFOScheduler, TrialScheduler
from syncline.tune.stopper import Stopper, make_stopper
from syncline.tune.workers.messages import Save, Step

T = TypeVar("T")

ONE_CPU = PlacementGroupFactory([{"CPU": 1}])
StepFunction = Callable[[Trial, int], dict[str, Any]]
"""Returns the result of a trial in an iteration, from 1."""


def rules(**changes: Any) -> SearchRules:
    """Return rules for a class trainable in a directory that is never created."""
    settings: dict[str, Any] = {
        "trainable_name": "train",
        "is_function": False,
        "storage": StorageContext("/nowhere", "search"),
        "trial_prefix": "t",
        "metric": "score",
        "strict_metrics": True,
        "max_concurrent": float("inf"),
        "max_failures": 0,
        "fail_fast": False,
        "checkpoint_config": CheckpointConfig(checkpoint_at_end=False),
    }
    return SearchRules(**(settings | changes))


@dataclass
class Simulation:
    """Driver, searcher and trials of a simulated search."""

    rules: SearchRules = field(default_factory=rules)
    scheduler: TrialScheduler = field(default_factory=FIFOScheduler)
    stopper: Stopper = field(default_factory=lambda: make_stopper({"training_iteration": 5}))
    samples: int = 4
    cpus: int = 2
    step: StepFunction = lambda trial, iteration: {"score": float(iteration + trial.index)}
    concurrency_of_searcher: float = float("inf")

    def __post_init__(self) -> None:
        self.scheduler.set_search_properties(
            "score" if self.scheduler.metric is None else None, "max"
        )
        self.machine = TuneMachine(self.rules, self.scheduler, self.stopper)
        self.waiting: list[Event] = []
        """Events that are not handled yet."""
        self.journal: list[Event] = []
        self.done: list[Instruction] = []
        self.iterations: dict[str, int] = {}
        self.held: dict[str, PlacementGroupFactory] = {}
        self.reserving: events.ReserveResources | None = None
        self.suggested = 0
        self.most_at_once = 0
        self.steps: list[tuple[str, int]] = []
        """(trial, iteration) of every trained step."""
        self.ended: events.EndSearch | None = None

    def begin(self) -> None:
        self.take(events.SearchStarted(total_resources={"CPU": self.cpus}))

    def run(self, choose: random.Random | None = None, limit: int = 100_000) -> None:
        """Run to the end; handle events in order, or in the order that `choose` draws."""
        if not self.journal:
            self.begin()
        for _ in range(limit):
            if self.ended is not None:
                return
            self.go_on(choose)
        raise AssertionError(f"no end after {limit} events: {self.machine.trials}")

    def go_on(self, choose: random.Random | None = None) -> None:
        """Handle one event."""
        if not self.waiting:
            assert self.machine.waits_for_searcher, (
                f"nothing happens any more: {self.machine.trials}"
            )
            self.take(events.Tick())
            return
        self.take(self.waiting.pop(choose.randrange(len(self.waiting)) if choose else 0))

    def take(self, event: Event) -> None:
        """Handle an event and its immediate consequences."""
        now = [event]
        while now:
            happened = now.pop(0)
            happened = self.machine.with_stopper_verdict(happened)
            self.journal.append(happened)
            for instruction in self.machine.handle(happened):
                self.done.append(instruction)
                answer = self.carry_out(instruction)
                if isinstance(answer, (events.TrialSuggested, events.NoSuggestion)):
                    now.append(answer)
                elif answer is not None:
                    self.waiting.append(answer)
            self._grant()

    def carry_out(self, do: Instruction) -> Event | None:
        """Carry out an instruction and return the resulting event, if any."""
        if isinstance(do, events.AskSearcher):
            return self.suggest(do.trial_id)
        if isinstance(do, events.ReserveResources):
            self.reserving = do
        elif isinstance(do, (events.ReleaseResources, events.LendResources)):
            self.held.pop(do.trial_id, None)
            if self.reserving is not None and self.reserving.trial_id == do.trial_id:
                self.reserving = None
        elif isinstance(do, events.StartTrial):
            self.iterations[do.trial_id] = (
                do.progress.get("training_iteration", 0) if do.checkpoint else 0
            )
            return events.TrialStarted(
                trial_id=do.trial_id, attempt=do.attempt, location="here:1", now=1.0
            )
        elif isinstance(do, events.RunCommand):
            if isinstance(do.command, Step):
                return self.train(do, do.command)
            if isinstance(do.command, Save):
                return events.TrialSaved(
                    trial_id=do.trial_id,
                    attempt=do.attempt,
                    checkpoint=self.checkpoint(do.trial_id, do.command.checkpoint_index),
                )
        elif isinstance(do, events.StopTrial):
            self.held.pop(do.trial_id, None)
        elif isinstance(do, events.CopyCheckpoint):
            return events.CheckpointCopied(
                trial_id=do.trial_id, checkpoint=self.checkpoint(do.trial_id, do.checkpoint_index)
            )
        elif isinstance(do, events.EndSearch):
            self.ended = do
        return None

    def suggest(self, trial_id: str) -> Event:
        if self.suggested >= self.samples:
            return events.NoSuggestion(finished=True)
        if len(self.machine.get_live_trials()) >= self.concurrency_of_searcher:
            return events.NoSuggestion(finished=False)
        self.suggested += 1
        return events.TrialSuggested(
            trial_id=trial_id,
            config={"x": self.suggested},
            evaluated_params={"x": self.suggested},
            tag=f"{self.suggested}_x={self.suggested}",
            factory=ONE_CPU,
            name=None,
            directory=trial_id,
        )

    def train(self, do: events.RunCommand, command: Step) -> Event:
        trial = self.trial(do.trial_id)
        self.iterations[do.trial_id] += 1
        iteration = self.iterations[do.trial_id]
        self.steps.append((do.trial_id, iteration))
        try:
            result = self.step(trial, iteration)
        except RuntimeError as error:
            return events.TrialFailed(
                trial_id=do.trial_id,
                attempt=do.attempt,
                error=pack_error(error),
                text=f"RuntimeError: {error}",
            )
        result = {"training_iteration": iteration, "time_total_s": float(iteration), **result}
        checkpoint = (
            self.checkpoint(do.trial_id, command.checkpoint_index)
            if result.pop("saves", False)
            else None
        )
        ended = result.pop("ended", False)
        return events.TrialStepped(
            trial_id=do.trial_id,
            attempt=do.attempt,
            result=result,
            checkpoint=checkpoint,
            ended=ended,
        )

    def checkpoint(self, trial_id: str, index: int) -> Checkpoint:
        return self.trial(trial_id).storage.checkpoint(checkpoint_dir_name(index))

    def trial(self, trial_id: str) -> Trial:
        trial = self.machine.get_trial(trial_id)
        assert trial is not None
        return trial

    def restart(self, **resume: Any) -> None:
        """Continue after a kill of the program."""
        self.waiting, self.held, self.reserving, self.ended = [], {}, None, None
        how = {"finished": "SKIP", "unfinished": "RESUME", "errored": "SKIP"} | resume
        self.take(events.SearchResumed(total_resources={"CPU": self.cpus}, **how))

    def _grant(self) -> None:
        used = sum(factory.required_resources.get("CPU", 0) for factory in self.held.values())
        if (
            self.reserving is None
            or used + self.reserving.factory.required_resources.get("CPU", 0) > self.cpus
        ):
            return
        self.held[self.reserving.trial_id] = self.reserving.factory
        self.most_at_once = max(self.most_at_once, len(self.held))
        self.waiting.append(events.ResourcesReserved(trial_id=self.reserving.trial_id))
        self.reserving = None

    def commands(self, kind: type[T]) -> list[T]:
        """Return the commands of a class so far."""
        return [
            do.command
            for do in self.done
            if isinstance(do, events.RunCommand) and isinstance(do.command, kind)
        ]

    def kinds(self) -> list[str]:
        """Return the names of the instructions so far."""
        return [type(do).__name__ for do in self.done]


class Choosy(FIFOScheduler):
    """Scheduler that makes each given decision once."""

    def __init__(self, decisions: dict[tuple[int, int], str] | None = None) -> None:
        super().__init__()
        self.decisions = decisions or {}
        self.completed: list[int] = []

    def on_trial_result(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> str:
        return self.decisions.pop((trial.index, result["training_iteration"]), self.CONTINUE)

    def on_trial_complete(
        self, tune_controller: ControllerView, trial: Trial, result: dict[str, Any]
    ) -> None:
        self.completed.append(trial.index)


def failing(at: int, times: int) -> Any:
    """Return a step that raises at iteration `at` of trial 0, `times` times."""
    left = [times]

    def step(trial: Trial, iteration: int) -> dict[str, Any]:
        if trial.index == 0 and iteration == at and left[0]:
            left[0] -= 1
            raise RuntimeError("no more memory")
        return {"score": 1.0, "saves": iteration == 2}

    return step


def statuses(search: Simulation) -> list[str]:
    return [trial.status for trial in search.machine.trials]
