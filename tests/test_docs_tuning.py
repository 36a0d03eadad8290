"""The programs of docs/tuning.md run as written, and so does examples/tune_vit.py, on a few images.

One process runs several programs, because each would otherwise pay for its imports again; only those that need torch are apart.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
RUN_ALL = """
import runpy, sys

for path in sys.argv.pop(1).split(":"):
    print("#", path)
    runpy.run_path(path, run_name="__main__")
"""


def run_all(programs: list[Path | str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Files, and texts that are written to files first; `arguments` are what they see in `sys.argv`."""
    paths = []
    for number, program in enumerate(programs):
        path = program if isinstance(program, Path) else folder / f"program_{number}.py"
        if isinstance(program, str):
            path.write_text(program, encoding="utf-8")
        paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, ":".join(paths), *arguments],
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT / "examples")},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.processes
def test_programs_without_torch_run_as_written(tmp_path: Path) -> None:
    programs = [program for program in PROGRAMS if "import torch" not in program]
    (going_on,) = (program for program in programs if "Tuner.can_restore" in program)
    done = run_all([*programs, going_on], tmp_path)
    assert re.findall(r"^\d+ trials", done.stdout, flags=re.MULTILINE) == ["4 trials", "6 trials", "6 trials", "8 trials"]
    assert {path.name for path in tmp_path.glob("*.html")} == {"learning_curves.html", "parallel_coordinates.html"}
    assert len(list(tmp_path.glob("syncline_results/*/train_*/weights.txt"))) == 4


@pytest.mark.processes
def test_programs_with_torch_run_as_written(tmp_path: Path) -> None:
    programs = [program for program in PROGRAMS if "import torch" in program]
    assert len(programs) == 1
    few = ["--rows", "128", "--trials", "2", "--epochs", "1"]
    done = run_all([*programs, ROOT / "examples" / "tune_vit.py"], tmp_path, *few)
    assert re.search(r"^best: {.*checkpoint_000000$", done.stdout, flags=re.MULTILINE)
    assert (tmp_path / "syncline_results" / "tune_vit" / "learning_curves.html").exists()
