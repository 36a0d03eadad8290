"""The programs of docs/large_models.md run as written."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "large_models.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.processes
@pytest.mark.parametrize("program", PROGRAMS, ids=["sharded", "meshes", "backend"])
def test_program_of_the_page_runs_as_written(program: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=150, check=False, stdin=subprocess.DEVNULL, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
