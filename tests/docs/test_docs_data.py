"""The programs of docs/data.md run as written."""

from pathlib import Path

import pytest

from tests.docs.page_programs import blocks, page, run_all


@pytest.mark.processes
def test_programs_of_the_page_run_as_written(tmp_path: Path) -> None:
    programs = blocks(page("data"), "python")
    assert len(programs) >= 3
    run_all(programs, tmp_path)
