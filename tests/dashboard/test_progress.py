"""Progress and remaining time on the pages of runs."""

from pathlib import Path

import pytest

from syncline import runs
from syncline.dashboard.progress import progress_text, search_progress, training_progress
from syncline.runs import LocalFiles, RunDirectory
from syncline.runs.run_progress import Progress


def recorded(path: Path, *, config: object, reports: int, pid: int | None = None) -> runs.Run:
    now = [1000.0]
    with RunDirectory(LocalFiles(path), clock=lambda: now[0]) as record:
        record.write_run("a", {"train_config": config}, detailed=False)
        record.event("started")
        record.event("attempt", number=1, first_report=0, workers=[{"rank": 0}, {"rank": 1}])
        for number in range(reports):
            now[0] += 10
            for rank in (0, 1):
                record.report(number, rank, {"epoch": number // 5, "step": number, "loss": 1.0})
    return runs.open(path)


def test_epochs_are_counted_against_the_configuration(tmp_path: Path) -> None:
    run = recorded(tmp_path, config={"epochs": 4}, reports=10)
    progress = training_progress(run, 1100.0)
    assert progress == Progress(done=2, total=4, unit="epoch", left_s=100.0)
    assert progress_text(progress) == "50 % · epoch 2 of 4 · about 1 min 40 s left"


def test_steps_are_more_exact_than_epochs(tmp_path: Path) -> None:
    run = recorded(tmp_path, config={"epochs": 4, "max_steps": 1000}, reports=400)
    progress = training_progress(run, 5000.0)
    assert progress == Progress(done=400, total=1000, unit="step", left_s=6000.0)


@pytest.mark.parametrize("config", [{}, {"lr": 0.1}, None, [3]])
def test_without_an_end_in_the_configuration_nothing_is_claimed(
    tmp_path: Path, config: object
) -> None:
    assert training_progress(recorded(tmp_path, config=config, reports=3), 1100.0) is None


def test_an_ended_run_has_no_remaining_time(tmp_path: Path) -> None:
    recorded(tmp_path, config={"epochs": 4}, reports=10)
    with RunDirectory(LocalFiles(tmp_path), clock=lambda: 1200.0) as record:
        record.write_outcome("finished", started=1000.0)
    progress = training_progress(runs.open(tmp_path), 1300.0)
    assert progress is not None
    assert (progress.done, progress.left_s) == (2, None)


def test_a_search_counts_ended_trials() -> None:
    counts = {"TERMINATED": 5, "ERROR": 1, "RUNNING": 2}
    progress = search_progress(counts, 24, 100.0, 160.0)
    assert progress == Progress(done=6, total=24, unit="trial", left_s=180.0)
    assert search_progress({}, 24, 100.0, 160.0) == Progress(
        done=0, total=24, unit="trial", left_s=None
    )
    assert search_progress(counts, None, 100.0, 160.0) is None
