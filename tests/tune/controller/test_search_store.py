"""`SearchStore`: everything written before a kill is read once, wherever the kill came. A restored
search equals the original for every position of snapshot and kill, also after its directory was
moved.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import cloudpickle
import fsspec
import pytest
from pyarrow.fs import FileSystem, LocalFileSystem

from syncline import faults, tune
from syncline.train.storage.context import ArrowFiles, StorageContext
from syncline.tune.callback import Callback, CallbackList
from syncline.tune.controller import events, search_store
from syncline.tune.controller.events import Event, Instruction
from syncline.tune.controller.search_store import (
    FIRST_SNAPSHOT_EVENTS,
    SearchStore,
    load_trials,
    relocate,
    restore,
    snapshot,
)
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.experiment.trial import Trial
from syncline.tune.schedulers import AsyncHyperBandScheduler
from syncline.tune.search import BasicVariantGenerator, Searcher
from syncline.tune.search.search_algorithm import SearchAlgorithm
from syncline.tune.search.search_generator import SearchGenerator
from syncline.tune.stopper import TimeoutStopper
from tests.train.storage.remote_filesystems import in_memory
from tests.tune.controller.simulation import Simulation, rules


@pytest.fixture(params=["local", "elsewhere"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> ArrowFiles:
    if request.param == "local":
        return ArrowFiles(FileSystem.from_uri(tmp_path.as_uri())[0], str(tmp_path))
    return ArrowFiles(in_memory(), "bucket/search")


def result(number: int) -> events.TrialStepped:
    return events.TrialStepped(
        trial_id="t_0", attempt=1, result={"step": number}, checkpoint=None, ended=False
    )


def read(files: ArrowFiles) -> tuple[bytes, list[Any]]:
    state, happened = SearchStore(files).load()
    return state, list(happened)


def names(files: ArrowFiles) -> set[str]:
    if files.local_path is not None:
        return set(os.listdir(files.local_path))
    return {Path(path).name for path in fsspec.filesystem("memory").store}


def test_there_is_no_search_before_the_first_snapshot(files: ArrowFiles) -> None:
    store = SearchStore(files)
    assert not store.exists()
    with pytest.raises(FileNotFoundError, match="holds no search"):
        store.load()
    store.snapshot(b"state")
    assert SearchStore(files).exists()
    assert read(files) == (b"state", [])


def test_events_come_back_in_their_order_after_the_latest_snapshot(files: ArrowFiles) -> None:
    store = SearchStore(files)
    store.snapshot(b"first")
    for number in range(5):
        store.append(result(number))
    store.flush()
    assert read(files) == (b"first", [result(number) for number in range(5)])
    store.snapshot(b"second")
    store.append(result(5))
    store.close()
    assert read(files) == (b"second", [result(5)])
    assert len([name for name in names(files) if name.startswith(("search-", "journal-"))]) == 2, (
        "earlier generations are deleted"
    )


def test_values_of_classes_from_the_main_program_are_restored(files: ArrowFiles) -> None:
    class Own:
        def __eq__(self, other: object) -> bool:
            return type(other).__name__ == "Own"

        def __hash__(self) -> int:
            return 0

    store = SearchStore(files)
    store.snapshot(b"")
    suggested = events.TrialSuggested(
        trial_id="t_0",
        config={"f": lambda x: x + 1},
        evaluated_params={},
        tag="",
        factory=PlacementGroupFactory([{"CPU": 1}]),
        name=None,
        directory="t_0",
    )
    store.append(suggested)
    store.append(
        events.TrialStepped(
            trial_id="t_0", attempt=1, result={"own": Own()}, checkpoint=None, ended=False
        )
    )
    store.close()
    _, (first, second) = read(files)
    assert first.config["f"](1) == 2
    assert second.result == {"own": Own()}


@pytest.mark.parametrize(
    ("point", "state", "kept"),
    [("tune.before_pointer", b"first", 3), ("tune.after_pointer", b"second", 0)],
)
def test_a_kill_while_a_snapshot_is_taken(
    point: str, state: bytes, kept: int, files: ArrowFiles
) -> None:
    store = SearchStore(files)
    store.snapshot(b"first")
    for number in range(3):
        store.append(result(number))
    store.flush()
    faults.configure(f"{point}=raise")
    try:
        with pytest.raises(faults.FaultInjected):
            store.snapshot(b"second")
    finally:
        faults.configure("")
    for _ in range(2):  # the next start is killed there, too
        store = SearchStore(files)
        found, happened = store.load()
        assert (found, len(list(happened))) == (state, kept)
        faults.configure("tune.before_pointer=raise")
        try:
            with pytest.raises(faults.FaultInjected):
                store.snapshot(b"third")
        finally:
            faults.configure("")
    store = SearchStore(files)
    list(store.load()[1])
    store.snapshot(b"third")
    assert read(files) == (b"third", [])
    assert len([name for name in names(files) if name.startswith(("search-", "journal-"))]) == 1, (
        "nothing of the killed ones is left"
    )


def test_a_line_that_a_kill_has_cut_short_does_not_count(tmp_path: Path) -> None:
    files = ArrowFiles(FileSystem.from_uri(tmp_path.as_uri())[0], str(tmp_path))
    store = SearchStore(files)
    store.snapshot(b"state")
    for number in range(3):
        store.append(result(number))
    store.close()
    path = tmp_path / "journal-000001.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    assert read(files) == (b"state", [result(0), result(1)])


def test_elsewhere_lines_are_sent_in_pieces_after_some_seconds_or_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(search_store, "SEND_BYTES", 2000)
    files = ArrowFiles(in_memory(), "bucket/search")
    store = SearchStore(files, clock=lambda: now[0])
    store.snapshot(b"state")
    store.append(result(0))
    assert read(files) == (b"state", []), "a kill loses it"
    now[0] += search_store.SEND_EVERY_S
    store.append(result(1))
    assert read(files) == (b"state", [result(0), result(1)])
    sent = len(names(files))
    for number in range(2, 30):
        store.append(result(number))
    assert sent < len(names(files)) < sent + 28, "several events travel together"
    store.close()
    assert read(files)[1] == [result(number) for number in range(30)]


def test_a_snapshot_is_wanted_when_the_journal_has_become_as_long_as_what_was_before(
    tmp_path: Path,
) -> None:
    files = ArrowFiles(FileSystem.from_uri(tmp_path.as_uri())[0], str(tmp_path))
    store = SearchStore(files)
    store.snapshot(b"")
    taken = []
    for number in range(10_000):
        store.append(result(number))
        if store.wants_snapshot:
            taken.append(number + 1)
            store.snapshot(b"")
    assert taken[0] == FIRST_SNAPSHOT_EVENTS
    assert [round(later / earlier, 1) for earlier, later in pairwise(taken)] == [2.0]
    store.close()
    again = SearchStore(files)
    assert len(list(again.load()[1])) == 10_000 - taken[-1]
    assert not again.wants_snapshot
    assert json.loads((tmp_path / "search.json").read_text())["events"] == taken[-1]


def test_an_event_that_does_not_fit_on_the_disk_leaves_the_journal_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = ArrowFiles(FileSystem.from_uri(tmp_path.as_uri())[0], str(tmp_path))
    store = SearchStore(files)
    store.snapshot(b"state")
    store.append(result(0))
    write, room = os.write, [5]

    def full(descriptor: int, data: bytes) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: room.pop()])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            store.append(result(1))
    store.append(result(2))
    store.close()
    assert read(files)[1] == [result(0), result(2)]
    assert pickle.loads(pickle.dumps(result(2))) == result(2)


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
        # `take` also handles the answer of the searcher: these events share a state.
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
    ]  # immediate consequences have no separate state
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


def test_a_restore_counts_the_time_since_the_snapshot(tmp_path: Path) -> None:
    simulation = Searching(
        stopper=TimeoutStopper(100, clock=lambda: 0.0),
        samples=1,
        step=lambda trial, iteration: {"score": 1.0, "timestamp": 1000 + 10 * iteration},
    )
    simulation.prepare(BasicVariantGenerator())
    files = ArrowFiles(LocalFileSystem(), str(tmp_path))
    store = SearchStore(files)
    store.snapshot(simulation.state())
    simulation.take(events.SearchStarted(total_resources={"CPU": 1}, time_s=1002.5))
    while simulation.machine.iteration < 4:
        simulation.go_on()
    for event in simulation.journal:
        store.append(event)
    store.close()
    search = BasicVariantGenerator()
    search.configure("score", "max", SPACE, 1)
    machine, _ = restore(SearchStore(files), search, CallbackList([]))
    assert isinstance(machine.stopper, TimeoutStopper)
    assert machine.stopper.remaining_s == pytest.approx(100 - 37.5, abs=1)


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
