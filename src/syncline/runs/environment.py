"""Facts about machine, program and processes for the record of a run.

`environment` returns cheap facts: it starts no process and imports nothing. `details`
takes longer (packages, git diff, hardware); it runs once per process, in a background thread.
Secrets are masked. `process_identity` and `is_process_alive` tell readers of a record whether the
process that wrote it still runs.
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
from typing import TYPE_CHECKING

from syncline import system
from syncline.optional import deferred
from syncline.runs.json_values import JsonObject
from syncline.runs.secrets import masked_code

if TYPE_CHECKING:
    import psutil
else:
    psutil = deferred("psutil")

_LIBRARIES = ("torch", "numpy", "pyarrow", "syncline")
MAX_DIFF_LENGTH = 200_000
"""Characters of a git diff that are kept."""
_GIT_LIMIT_S = 5.0


def environment(directory: str | os.PathLike[str] | None = None) -> JsonObject:
    """Return the Python version, imported libraries, machine, command line, and the git revision of
    `directory` (by default the working directory).
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
        "process": process_identity(os.getpid()),
        "program": sys.argv[0] if sys.argv else None,
        "arguments": masked_code(" ".join(sys.argv[1:])),
        "git_revision": git_revision(directory),
    }


@functools.cache
def details() -> JsonObject:
    """Return installed packages with versions, processor, memory in bytes, GPUs and git diff."""
    return {"packages": _packages(), "hardware": _hardware(), "git_diff": _git_diff(os.getcwd())}


def git_revision(directory: str | os.PathLike[str] | None = None) -> str | None:
    """Return the commit that is checked out in the repository around `directory`, read from its
    files; None if there is none.
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
    """Return the uncommitted changes; None outside a repository or without git."""
    program = shutil.which("git")
    if program is None or git_revision(directory) is None:
        return None
    # The repository is not trusted: run no programs that its configuration names, and ask for no
    # password.
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
    text = masked_code(done.stdout[:MAX_DIFF_LENGTH])
    return text + "\n(cut off here)\n" if len(done.stdout) > MAX_DIFF_LENGTH else text


def _packages() -> dict[str, str]:
    found: dict[str, str] = {}
    for directory in sys.path:
        try:
            names = os.listdir(directory or ".")
        except OSError:
            continue
        for name in names:
            # Directory names contain name and version; reading the metadata inside takes a hundred
            # times as long.
            stem, kind = os.path.splitext(name)
            package, _, version = stem.partition("-")
            if kind in (".dist-info", ".egg-info") and version:
                found.setdefault(package.replace("_", "-"), version.partition("-py")[0])
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _hardware() -> JsonObject:
    found: JsonObject = {
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


_STATE, _START = 0, 19
"""Fields of `/proc/PID/stat` after the program name: state, and start in ticks since boot."""


def process_identity(pid: int) -> str | None:
    """Return a text that identifies a process among all processes of all machines: boot ID, PID
    namespace and start time. PIDs are reused and clocks are set back, so neither is enough. None if
    the process does not exist or the system does not provide the values.
    """
    found = _seen(pid)
    return None if found is None else "/".join(found)


def is_process_alive(pid: int, marked: str | None, began_before: float) -> bool:
    """Return True if the process of a record is alive, or if it cannot be seen from here.

    Args:
        pid: Process ID.
        marked: Its `process_identity`; None in old records.
        began_before: Start of the record in seconds since the epoch; used without `marked`.
    """
    if marked is None:
        began = _began(pid)
        return began is not None and began <= began_before + 1.0
    if not system.IS_LINUX:
        return process_identity(pid) == marked
    boot, namespace, start = (*marked.split("/"), "", "")[:3]
    if boot == _boot() and namespace != _namespace():  # another container on this machine
        return True
    return _seen(pid) == (boot, namespace, start)


def _seen(pid: int) -> tuple[str, str, str] | None:
    if not system.IS_LINUX:
        began = _began(pid)
        return None if began is None else ("", "", f"{began:.2f}")
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[_STATE] in "ZX" else (_boot(), _namespace(), fields[_START])


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _began(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except (psutil.Error, ValueError, OverflowError):
        return None
