"""Facts about the machine and the program, for the record of a run. Only what is cheap: no process is started and nothing is imported."""

from __future__ import annotations

import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

_LIBRARIES = ("torch", "numpy", "pyarrow", "syncline")


def environment(directory: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Python, libraries that are imported, machine, command line, and the git revision of `directory` (the working directory if None)."""
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in _LIBRARIES}
    return {
        "python": platform.python_version(),
        "libraries": {name: str(version) for name, version in versions.items() if version is not None},
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "cpus": os.cpu_count(),
        "pid": os.getpid(),
        "program": sys.argv[0] if sys.argv else None,
        "git_revision": git_revision(directory),
    }


def git_revision(directory: str | os.PathLike[str] | None = None) -> str | None:
    """The commit that is checked out in the repository around `directory`, read from its files; None where that cannot be told."""
    try:
        start = Path(directory if directory is not None else os.getcwd()).resolve()
        for folder in (start, *start.parents):
            git = folder / ".git"
            if git.is_dir():
                return _head(git)
    except OSError:
        return None
    return None


def _head(git: Path) -> str | None:
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head or None
    name = head.removeprefix("ref: ")
    loose = git / name
    if loose.is_file():
        return loose.read_text().strip() or None
    packed = git / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), None)
