"""Copied and deleted checkpoints, appended lines, and the clean-up of the experiment directory
after a kill.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from syncline.train.checkpoint import Checkpoint
from syncline.train.storage.context import StorageContext, checkpoint_dir_name
from syncline.tune.controller import events, experiment_files
from syncline.tune.controller.search_store import relocate
from syncline.tune.experiment.trial import Trial
from tests.tune.controller.simulation import Simulation, rules


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    """Return a search with an ended and a running trial, without files."""
    made = Simulation(
        rules=rules(storage=StorageContext(tmp_path, "search")),
        samples=2,
        cpus=1,
        step=lambda trial, iteration: {"score": 1.0},
    )
    made.begin()
    while not made.machine.trials[0].is_finished():
        made.go_on()
    return made


def commit(trial: Trial, index: int, text: str = "weights") -> Checkpoint:
    """Commit a checkpoint like a trial's process."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "below").mkdir()
        Path(directory, "below", "weights").write_text(text)
        name = checkpoint_dir_name(index)
        staged = trial.storage.stage(Checkpoint(directory), name, rank=0, token=f"1-{index}")
        return trial.storage.commit(name, [staged])


def names(trial: Trial) -> set[str]:
    return (
        {path.name for path in Path(trial.path).iterdir()} if Path(trial.path).exists() else set()
    )


def test_clean_up_deletes_leftovers_and_keeps_registered_checkpoints(
    simulation: Simulation,
) -> None:
    ended, running = simulation.machine.trials
    for trial in (ended, running):
        trial.record_checkpoint(commit(trial, 0), {"training_iteration": 1})
        commit(trial, 1)
        trial.storage.stage(
            trial.storage.checkpoint(checkpoint_dir_name(0)),
            checkpoint_dir_name(2),
            rank=0,
            token="killed",
        )
    before = names(ended)
    assert len(before) == 5, "two unconfirmed checkpoints, and a partial one"
    experiment_files.clean_up(simulation.machine, [])
    assert names(running) == {"checkpoint_000000"}
    assert names(ended) == before, "nothing can be at work there, so it is not looked at"
    experiment_files.clean_up(
        simulation.machine,
        [events.ConfirmCheckpoint(trial_id=ended.trial_id, checkpoint=ended.checkpoint)],
    )
    assert names(ended) == {"checkpoint_000000"}, "but the last thing before the kill was about it"


def test_halves_of_files_of_the_search_itself_go(simulation: Simulation, tmp_path: Path) -> None:
    search = tmp_path / "search"
    search.mkdir(exist_ok=True)
    (search / ".tmp-0123").write_bytes(b"half of trials.js")
    (search / "trials.json").write_bytes(b"{}")
    experiment_files.clean_up(simulation.machine, [])
    assert sorted(path.name for path in search.iterdir() if path.is_file()) == ["trials.json"]


def test_clean_up_carries_out_the_last_deletions_and_lines(
    simulation: Simulation, tmp_path: Path
) -> None:
    ended, running = simulation.machine.trials
    old = commit(ended, 0)
    Path(running.path, "run", "checkpoint_000000").mkdir(parents=True)
    (tmp_path / "search").rename(tmp_path / "moved")
    relocate(simulation.machine, StorageContext(tmp_path, "moved"))
    last = [
        events.DeleteCheckpoint(trial_id=ended.trial_id, checkpoint=old),
        events.DeleteCheckpoint(
            trial_id=running.trial_id,
            checkpoint=Checkpoint(
                f"{tmp_path}/search/{running.relative_logdir}/run/checkpoint_000000"
            ),
        ),
        events.AppendLines(
            lines=(("policy.txt", "one"), ("other.txt", "three"), ("policy.txt", "two"))
        ),
    ]
    (tmp_path / "moved" / "policy.txt").write_text("zero\none\n")
    for _ in range(2):
        experiment_files.clean_up(simulation.machine, last)
    assert "checkpoint_000000" not in names(ended)
    assert Path(running.path, "run", "checkpoint_000000").exists(), (
        "a trainer in a trial keeps its own"
    )
    assert (tmp_path / "moved" / "policy.txt").read_text() == "zero\none\ntwo\n"
    assert (tmp_path / "moved" / "other.txt").read_text() == "three\n"


def test_a_copy_is_whole_and_compared(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    donor, trial = simulation.machine.trials
    source = commit(donor, 3, "of the donor")
    commit(trial, 0, "of its own")
    copy = experiment_files.copy_verified(trial, source, 0)
    assert copy == trial.storage.checkpoint(checkpoint_dir_name(0))
    assert Path(copy.path, "below", "weights").read_text() == "of the donor"
    assert experiment_files.digest(copy) == experiment_files.digest(source)
    assert experiment_files.digest(copy) != experiment_files.digest(
        commit(trial, 1, "of the DONOR")
    )
    digests = iter(["a" * 64, "b" * 64])
    monkeypatch.setattr(experiment_files, "digest", lambda checkpoint: next(digests))
    with pytest.raises(
        OSError, match=r"checkpoint_000002' is a copy of .*storage is probably failing"
    ):
        experiment_files.copy_verified(trial, source, 2)
    assert "checkpoint_000002" not in names(trial)


def test_a_trainers_checkpoints_are_the_trainers(simulation: Simulation, tmp_path: Path) -> None:
    trial = simulation.machine.trials[0]
    inner = Checkpoint(str(Path(trial.path, "run", "checkpoint_000000")))
    outside = Checkpoint(str(tmp_path / "checkpoint_000000"))
    own = commit(trial, 0)
    for checkpoint in (inner, outside):
        Path(checkpoint.path).mkdir(parents=True)
    assert [experiment_files.is_own(trial, checkpoint) for checkpoint in (own, inner, outside)] == [
        True,
        False,
        False,
    ]
    for checkpoint in (own, inner, outside):
        experiment_files.delete(trial, checkpoint)
    assert [Path(checkpoint.path).exists() for checkpoint in (own, inner, outside)] == [
        False,
        True,
        True,
    ]


def test_a_checkpoint_that_cannot_be_deleted_is_told_of(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trial = simulation.machine.trials[0]
    own = commit(trial, 0)

    def refuse(self: StorageContext, checkpoint: Checkpoint) -> None:
        raise PermissionError(13, "not yours")

    monkeypatch.setattr(StorageContext, "delete", refuse)
    experiment_files.delete(trial, own)
    assert "cannot be deleted" in caplog.text
