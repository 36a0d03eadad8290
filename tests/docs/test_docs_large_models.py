"""The programs of docs/large_models.md run as written."""

from pathlib import Path

import pytest

from tests.docs.page_programs import blocks, page, run

PROGRAMS = blocks(page("large_models"), "python")


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.parametrize("program", PROGRAMS, ids=["shortest", "sharded", "meshes", "backend"])
def test_program_of_the_page_runs_as_written(program: str, tmp_path: Path) -> None:
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
