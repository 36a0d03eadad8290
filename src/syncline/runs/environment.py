"""Facts about the machine and the program, for the record of a run.

`environment` has those that are cheap: no process is started and nothing is imported. `details` has
those that take a moment (packages, what git says was changed, hardware), once per process, and is
called beside the run. Secrets are masked.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from syncline.runs import processes
from syncline.runs.secrets import masked_code

_LIBRARIES = ("torch", "numpy", "pyarrow", "syncline")
LONGEST_DIFF = 200_000
"""Characters of a difference that are kept."""
_GIT_LIMIT_S = 5.0


def environment(directory: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Python, libraries that are imported, machine, command line, and the git revision of
    `directory` (the working directory if None).
    """
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in _LIBRARIES}
    return {
        "python": platform.python_version(),
        "libraries": {
            name: str(version) for name, version in versions.items() if version is not None
        },
        "platform": platform.platform(),
        "hostname": socket.gethostname(),
        "cpus": os.cpu_count(),
        "pid": os.getpid(),
        "process": processes.mark(os.getpid()),
        "program": sys.argv[0] if sys.argv else None,
        "arguments": masked_code(" ".join(sys.argv[1:])),
        "git_revision": git_revision(directory),
    }


@functools.cache
def details() -> dict[str, Any]:
    """Installed packages with their versions, the processor, memory in bytes, GPUs, and what
    differs from the git revision.
    """
    return {"packages": _packages(), "hardware": _hardware(), "git_diff": _git_diff(os.getcwd())}


def git_revision(directory: str | os.PathLike[str] | None = None) -> str | None:
    """The commit that is checked out in the repository around `directory`, read from its files;
    None where that cannot be told.
    """
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


def _git_diff(directory: str) -> str | None:
    """Changes that are not committed; None outside of a repository, and without git."""
    program = shutil.which("git")
    if program is None or git_revision(directory) is None:
        return None
    # Neither programs that a repository's configuration names nor a question for a password: it is
    # only to be read.
    command = [
        program,
        "-c",
        "core.fsmonitor=false",
        "diff",
        "HEAD",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
    ]
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            timeout=_GIT_LIMIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            errors="replace",
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    text = masked_code(done.stdout[:LONGEST_DIFF])
    return text + "\n(cut off here)\n" if len(done.stdout) > LONGEST_DIFF else text


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for directory in sys.path:
        try:
            names = os.listdir(directory or ".")
        except OSError:
            continue
        for name in names:
            # The names of these directories say both; reading what lies in them would take a
            # hundred times as long.
            stem, kind = os.path.splitext(name)
            package, _, version = stem.partition("-")
            if kind in (".dist-info", ".egg-info") and version:
                found.setdefault(package.replace("_", "-"), version.partition("-py")[0])
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _hardware() -> dict[str, Any]:
    found: dict[str, Any] = {
        "machine": platform.machine(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
    }
    try:
        found["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        pass
    gpus = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    if gpus:
        found["gpus"] = [_gpu_model(path) for path in gpus]
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def _gpu_model(path: Path) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return "unknown"
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("Model")), "unknown"
    )
