"""What the tests of the documentation share: the blocks of pages, and running them as a reader
would.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
RUN_ALL = """
import runpy, sys

for path in sys.argv.pop(1).split(":"):
    print("#", path, flush=True)
    runpy.run_path(path, run_name="__main__")
"""


def page(name: str) -> str:
    """The text of a page: "index", or "README"."""
    return (ROOT / "README.md" if name == "README" else DOCS / f"{name}.md").read_text(
        encoding="utf-8"
    )


def page_names() -> list[str]:
    """Every page with text, the README too; pages of the API are made of docstrings."""
    return ["README", *sorted(path.stem for path in DOCS.glob("*.md"))]


def blocks(text: str, language: str, title: str | None = None) -> list[str]:
    """The blocks of a language; with `title`, those that have it."""
    found = re.findall(
        rf"^```{language}(?: title=\"(.*?)\")?\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL
    )
    return [block for block_title, block in found if title is None or block_title == title]


def run(
    program: str, folder: Path, *arguments: str, timeout_s: float = 170, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, as it ends."""
    script = folder / "program.py"
    script.write_text(program, encoding="utf-8")
    return _python([str(script), *arguments], folder, timeout_s, variables)


def run_all(
    programs: Sequence[Path | str], folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Files, and texts that are written to files first, one after the other in one process: each
    would otherwise pay for its imports again.

    `arguments` are what they see in `sys.argv`. All must end well.
    """
    paths = []
    for number, program in enumerate(programs):
        path = program if isinstance(program, Path) else folder / f"program_{number}.py"
        if isinstance(program, str):
            path.write_text(program, encoding="utf-8")
        paths.append(str(path))
    done = _python(["-c", RUN_ALL, ":".join(paths), *arguments], folder, 170, variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def _python(
    arguments: Sequence[str], folder: Path, timeout_s: float, variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=folder,
    )
