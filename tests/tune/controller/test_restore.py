"""A restored search equals the original for every position of snapshot and kill, also after its
directory was moved.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from pyarrow.fs import LocalFileSystem
from simulation import Simulation, rules

from syncline import tune
from syncline.train.storage.context import ArrowFiles, StorageContext
from syncline.tune.callback import Callback, CallbackList
from syncline.tune.controller import events
from syncline.tune.controller.events import Event, Instruction
from syncline.tune.controller.search_store import (
    SearchStore,
    load_trials,
    relocate,
    restore,
    snapshot,
)
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers import AsyncHyperBandScheduler
from syncline.tune.search import BasicVariantGenerator, Searcher
from syncline.tune.search.search_algorithm import SearchAlgorithm
from syncline.tune.search.search_generator import SearchGenerator

SPACE = {"x": tune.uniform(0, 1)}


class Climber(Searcher):
    """Searcher whose suggestions depend on everything it was told, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, float]] = []

    def set_search_properties(
        self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
    ) -> bool:
        return True

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {
            "x": sum(place * score for place, (_, score) in enumerate(self.told, 1)) % 1
            + len(self.told)
        }

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.told.append((trial_id, result["score"]))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self.told.append((trial_id, -1.0 if result is None else result["score"] / 3))

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_bytes(pickle.dumps(self.told))

    def restore(self, checkpoint_path: str) -> None:
        self.told = pickle.loads(Path(checkpoint_path).read_bytes())


class Counter(Callback):
    """Callback whose count is part of the snapshot."""

    def __init__(self) -> None:
        self.results = 0

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        self.results += 1

    def get_state(self) -> dict[str, Any]:
        return {"results": self.results}

    def set_state(self, state: dict[str, Any]) -> None:
        self.results = state["results"]


class Searching(Simulation):
    """Simulation with a searcher and a snapshot after each event."""

    def prepare(self, search: SearchAlgorithm) -> Searching:
        self.search = search
        self.states: list[bytes] = []
        search.configure("score", "max", SPACE, self.samples)
        return self

    def take(self, event: Event) -> None:
        super().take(event)
        # `take` goes on to what the searcher says: one state for all that was written down.
        self.states += [self.state()] * (len(self.journal) - len(self.states))

    def carry_out(self, do: Instruction) -> Event | None:
        if isinstance(do, events.ReportResult):
            self.search.on_trial_result(do.trial_id, dict(do.result))
        elif isinstance(do, events.ReportCompletion):
            self.search.on_trial_complete(
                do.trial_id, dict(do.result) if do.result else None, do.error
            )
        return super().carry_out(do)

    def suggest(self, trial_id: str) -> Event:
        suggestion = None if self.search.is_finished() else self.search.next_trial(trial_id)
        if suggestion is None:
            return events.NoSuggestion(finished=self.search.is_finished())
        given = super().suggest(trial_id)
        assert isinstance(given, events.TrialSuggested)
        return events.TrialSuggested(
            **{
                **vars(given),
                "config": suggestion.config,
                "evaluated_params": suggestion.evaluated_params,
            }
        )

    def state(self) -> bytes:
        return snapshot(self.machine, self.search, CallbackList([]))


SEARCHES: dict[str, Callable[[], SearchAlgorithm]] = {
    "random": lambda: BasicVariantGenerator(random_state=3),
    "learning": lambda: SearchGenerator(Climber()),
}


def configured(kind: str) -> SearchAlgorithm:
    search = SEARCHES[kind]()
    search.configure("score", "max", SPACE, 6)
    return search


def facts(machine: Any, search: SearchAlgorithm) -> list[Any]:
    """Return the state that determines the rest of the search."""
    trials = [
        (
            trial.trial_id,
            trial.status,
            trial.config,
            trial.iteration,
            trial.last_result,
            trial.num_failures,
            str(trial.checkpoint),
        )
        for trial in machine.trials
    ]
    suggestion = None if search.is_finished() else search.next_trial("next")
    return [trials, machine.iteration, machine.ended, suggestion.config if suggestion else None]


@pytest.mark.parametrize("kind", list(SEARCHES))
def test_a_search_is_as_it_was_wherever_the_kill_came(kind: str, tmp_path: Path) -> None:
    def step(trial: Trial, iteration: int) -> dict[str, Any]:
        if trial.index == 2 and iteration == 3 and trial.num_failures == 0:
            raise RuntimeError("once")
        return {"score": trial.config["x"] + iteration, "saves": iteration % 2 == 0}

    simulation = Searching(
        rules=rules(max_failures=1),
        scheduler=AsyncHyperBandScheduler(max_t=5, grace_period=2, reduction_factor=2),
        samples=6,
        cpus=2,
        step=step,
    ).prepare(SEARCHES[kind]())
    simulation.run()
    journal, states = simulation.journal, simulation.states
    assert len(simulation.machine.trials) == 6
    whole = [
        at for at in range(1, len(journal)) if states[at] is not states[at - 1]
    ]  # what follows at once has no state of its own
    for number, kill in enumerate(whole):
        taken = whole[number // 2]
        directory = tmp_path / str(kill)
        directory.mkdir()
        store = SearchStore(ArrowFiles(LocalFileSystem(), str(directory)))
        store.snapshot(states[taken - 1])
        for event in journal[taken:kill]:
            store.append(event)
        store.close()
        search = configured(kind)
        machine, _ = restore(
            SearchStore(ArrowFiles(LocalFileSystem(), str(directory))), search, CallbackList([])
        )
        expected = cloudpickle.loads(states[kill - 1])
        reference = configured(kind)
        reference.set_state(expected["search"])
        assert facts(machine, search) == facts(expected["machine"], reference)


def kept_search(directory: Path) -> Searching:
    """Return one of two trials with checkpoints in a directory."""
    storage = StorageContext(directory, "search")
    Path(storage.experiment_fs_path).mkdir(parents=True)
    simulation = Searching(
        rules=rules(storage=storage),
        samples=2,
        step=lambda trial, iteration: {"score": 1.0, "saves": True},
    )
    simulation.prepare(BasicVariantGenerator())
    simulation.run()
    store = SearchStore(storage.files)
    store.snapshot(simulation.states[10])
    for event in simulation.journal[11:]:
        store.append(event)
    store.close()
    return simulation


def test_trials_are_read_from_wherever_the_directory_lies_now(tmp_path: Path) -> None:
    kept_search(tmp_path / "before")
    (tmp_path / "after").mkdir()
    moved = (tmp_path / "before" / "search").rename(tmp_path / "after" / "other")
    trials = load_trials(f"{moved}/")
    assert [trial.status for trial in trials] == ["TERMINATED", "TERMINATED"]
    for trial in trials:
        assert trial.path == str(moved / trial.relative_logdir)
        assert str(trial.checkpoint.path).startswith(f"{moved}/{trial.relative_logdir}/checkpoint_")
    assert not list(moved.rglob("search-000002.pkl")), "reading writes nothing"


def test_a_checkpoint_that_lies_outside_stays_where_it_is(tmp_path: Path) -> None:
    simulation = kept_search(tmp_path)
    trial = simulation.machine.trials[0]
    trial.record_checkpoint(tune.Checkpoint("/elsewhere/checkpoint"), {})
    relocate(simulation.machine, StorageContext(tmp_path, "renamed"))
    assert trial.checkpoint.path == "/elsewhere/checkpoint"
    assert trial.path == str(tmp_path / "renamed" / trial.relative_logdir)


def test_a_directory_without_a_search_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}.*has no search.json"):
        load_trials(str(tmp_path))


def test_states_of_callbacks_are_restored(tmp_path: Path) -> None:
    simulation = kept_search(tmp_path)
    counter = Counter()
    counter.results = 7
    store = SearchStore(ArrowFiles(LocalFileSystem(), str(tmp_path)))
    store.snapshot(snapshot(simulation.machine, simulation.search, CallbackList([counter])))
    again = Counter()
    search = BasicVariantGenerator()
    search.configure("score", "max", SPACE, 2)
    restore(
        SearchStore(ArrowFiles(LocalFileSystem(), str(tmp_path))), search, CallbackList([again])
    )
    assert again.results == 7
