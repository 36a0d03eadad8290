"""The programs of docs/failures.md, as they stand there."""

from pathlib import Path

import pytest

from tests.docs.page_programs import blocks, page, run


@pytest.mark.long
@pytest.mark.processes
def test_the_program_runs_and_runs_on(tmp_path: Path) -> None:
    program, *_ = blocks(page("failures"), "python")
    runs = [run(program, tmp_path, SYNCLINE_STORAGE_PATH=str(tmp_path / "runs")) for _ in range(2)]
    assert [done.returncode for done in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    assert "data loader 1: epoch 3" in runs[1].stderr
    assert "goodput" in runs[0].stderr


@pytest.mark.long
@pytest.mark.processes
def test_the_programs_with_snapshots_run(tmp_path: Path) -> None:
    for program in blocks(page("failures"), "python")[1:]:
        done = run(program, tmp_path, SYNCLINE_STORAGE_PATH=str(tmp_path / "runs"))
        assert done.returncode == 0, done.stderr
