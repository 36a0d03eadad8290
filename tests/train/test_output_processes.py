"""Output of workers on the program's terminal: labels, completeness, order."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.testing import run_program

pytestmark = pytest.mark.processes

TRAINING = """
import sys
from syncline import train

def loop():
    rank = train.get_context().get_world_rank()
    print("first", rank)
    for step in range(2000):
        print(f"rank {rank} step {step}")
    print("unfinished", rank, end="")

train.DataParallelTrainer(
    loop,
    scaling_config=train.ScalingConfig(num_workers=int(sys.argv[2])),
    run_config=train.RunConfig(name="run", storage_path=sys.argv[1]),
).fit()
print("after fit")
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_all_output_of_the_ranks_is_shown_before_fit_returns(tmp_path: Path, workers: int) -> None:
    with run_program(TRAINING, str(tmp_path), str(workers)) as program:
        lines = program.wait().check().stdout.splitlines()
    assert lines.pop() == "after fit"
    for rank in range(workers):
        expected = [
            f"first {rank}",
            *(f"rank {rank} step {step}" for step in range(2000)),
            f"unfinished {rank}",
        ]
        of_rank = [line for line in lines if line.startswith(f"[rank {rank}] ")]
        assert of_rank == [f"[rank {rank}] {text}" for text in expected]
        log = (tmp_path / "run" / "logs" / f"rank-{rank}.log").read_text()
        assert log == "\n".join(expected)
    assert len(lines) == workers * 2002


SEARCH = """
import sys
from syncline import tune

def objective(config):
    print("of trial", config["x"])
    tune.report({"loss": config["x"]})
    print("unfinished", end="")

tune.Tuner(
    objective,
    param_space={"x": tune.grid_search([1, 2])},
    tune_config=tune.TuneConfig(reuse_actors=sys.argv[2] == "reuse", max_concurrent_trials=1),
    run_config=tune.RunConfig(name="search", storage_path=sys.argv[1], verbose=0),
).fit()
print("after fit")
"""


@pytest.mark.parametrize("processes", ["reuse", "fresh"])
def test_output_of_trials_is_labelled_and_kept(tmp_path: Path, processes: str) -> None:
    with run_program(SEARCH, str(tmp_path), processes) as program:
        lines = program.wait().check().stdout.splitlines()
    assert lines.pop() == "after fit"
    logs = sorted((tmp_path / "search" / "logs").glob("*.log"))
    assert [log.read_text() for log in logs] == ["of trial 1\nunfinished", "of trial 2\nunfinished"]
    assert sorted(lines) == sorted(
        f"[objective_{log.stem}] {text}"
        for number, log in enumerate(logs, start=1)
        for text in (f"of trial {number}", "unfinished")
    )
