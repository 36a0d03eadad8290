"""The programs of docs/tracking.md run as written. The libraries of the trackers are played by
modules that note what is called.
"""

import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.event_files import curves

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "tracking.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
PLAYED = """
import os


class Played:
    def __init__(self, path):
        self._path = path

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Played(f"{self._path}.{name}")

    def __call__(self, *arguments, **named):
        with open(os.environ["PLAYED_CALLS"], "a") as file:
            file.write(f"{self._path} {arguments} {named}\\n")
        return Played(f"{self._path}()")

    def __repr__(self):
        return self._path


def __getattr__(name):
    return getattr(Played(__name__), name)
"""
MODULES = ("wandb", "mlflow", "mlflow/entities", "mlflow/exceptions", "comet_ml", "comet_ml/config")
RUN_ALL = """
import runpy, sys

for path in sys.argv.pop(1).split(":"):
    print("#", path)
    runpy.run_path(path, run_name="__main__")
"""


@pytest.mark.long
@pytest.mark.processes
def test_programs_run_as_written(tmp_path: Path) -> None:
    for name in MODULES:
        is_package = any(other.startswith(f"{name}/") for other in MODULES)
        path = tmp_path / "played" / (f"{name}/__init__.py" if is_package else f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLAYED, encoding="utf-8")
    paths = []
    for number, program in enumerate(PROGRAMS):
        paths.append(tmp_path / f"program_{number}.py")
        paths[-1].write_text(program, encoding="utf-8")
    played = {
        "PYTHONPATH": str(tmp_path / "played"),
        "PLAYED_CALLS": str(tmp_path / "calls"),
        "WANDB_API_KEY": "key",
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL, ":".join(map(str, paths))],
        env={**os.environ, "HOME": str(tmp_path), **played},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(paths) == 5
    runs = tmp_path / "syncline_results"
    assert {tag: len(points) for tag, points in curves(runs / "with_a_board").items()} == {
        "loss": 20,
        "eval/top1": 20,
    }
    assert sorted(path.name for path in (runs / "tracked" / "trackers").iterdir()) == [
        "comet-my-project.json",
        "mlflow-my-experiment.json",
        "weights-biases-my-project.json",
    ]
    documented = re.findall(
        r"`([^` ]+)`",
        (ROOT / "docs" / "dashboard.md")
        .read_text(encoding="utf-8")
        .partition("## The files of a run directory")[2],
    )
    for path in (runs / "tracked").iterdir():
        assert any(fnmatch(path.name, pattern.rstrip("/")) for pattern in documented), path.name
    calls = (tmp_path / "calls").read_text().splitlines()
    begun = [call for call in calls if call.startswith("wandb.init ")]
    groups = [re.search(r"'group': ([^,}]+)", call)[1] for call in begun if "'mode'" not in call]
    assert groups == ["None", "'search'", "'search'", "'own_tracking'"]
    assert len([call for call in begun if "'mode': 'disabled'" in call]) == 1
    # Five reports of the program with callbacks, three of each of two trials, three of rank 0's
    # own, and of the one that does nothing.
    assert len([call for call in calls if call.startswith("wandb.init().log ")]) == 5 + 6 + 3 + 3
    assert (
        len([call for call in calls if call.startswith("comet_ml.Experiment().log_metrics ")]) == 5
    )
    assert len([call for call in calls if call.startswith("mlflow.log_metric ")]) == 3
    assert "printed begins at step 0 with {'lr': 0.1}" in done.stdout
    assert "ended with {'accuracy': 0.5}" in done.stdout
