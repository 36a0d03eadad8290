"""The README's program runs as written, and its commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def code_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.promise
@pytest.mark.processes
def test_program_runs_as_written(tmp_path: Path) -> None:
    (program,) = code_blocks("python")
    script = tmp_path / "program.py"
    script.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "'epoch': 4" in done.stdout


def test_every_make_target_it_names_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    commands = "\n".join([*code_blocks("bash"), *re.findall(r"`([^`\n]+)`", prose)])
    named = set(re.findall(r"\bmake ([a-z][a-z-]*)", commands))
    assert {"demo", "test", "bench"} <= named
    missing = [
        target
        for target in sorted(named)
        if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
    ]
    assert missing == []
