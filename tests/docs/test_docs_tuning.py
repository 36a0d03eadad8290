"""The programs of docs/tuning.md run as written, and so does examples/tune_vit.py, on a few
images.
"""

import re
from pathlib import Path

import pytest

from tests.docs.page_programs import ROOT, blocks, page, run_all

PROGRAMS = blocks(page("tuning"), "python")


@pytest.mark.processes
def test_programs_without_torch_run_as_written(tmp_path: Path) -> None:
    programs = [program for program in PROGRAMS if "import torch" not in program]
    (going_on,) = (program for program in programs if "Tuner.can_restore" in program)
    done = run_all([*programs, going_on], tmp_path)
    assert re.findall(r"^\d+ trials", done.stdout, flags=re.MULTILINE) == [
        "4 trials",
        "6 trials",
        "6 trials",
        "8 trials",
    ]
    assert {path.name for path in tmp_path.glob("*.html")} == {
        "learning_curves.html",
        "parallel_coordinates.html",
    }
    assert len(list(tmp_path.glob("syncline_results/*/train_*/weights.txt"))) == 4


@pytest.mark.long
@pytest.mark.processes
def test_programs_with_torch_run_as_written(tmp_path: Path) -> None:
    programs = [program for program in PROGRAMS if "import torch" in program]
    assert len(programs) == 1
    few = ["--rows", "128", "--trials", "2", "--epochs", "1"]
    done = run_all(
        [*programs, ROOT / "examples" / "tune_vit.py"],
        tmp_path,
        *few,
        PYTHONPATH=str(ROOT / "examples"),
    )
    assert re.search(r"^best: {.*checkpoint_000000$", done.stdout, flags=re.MULTILINE)
    assert (tmp_path / "syncline_results" / "tune_vit" / "learning_curves.html").exists()
