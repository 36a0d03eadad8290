"""The program of docs/failures.md, as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "failures.md"


@pytest.mark.processes
def test_the_program_runs_and_runs_on(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    script = tmp_path / "program.py"
    script.write_text(program)
    environment = {**os.environ, "SYNCLINE_STORAGE_PATH": str(tmp_path / "runs")}
    runs = [
        subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, check=False)
        for _ in range(2)
    ]
    assert [run.returncode for run in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    assert "data loader 1: epoch 3" in runs[1].stderr
    assert "goodput" in runs[0].stderr
