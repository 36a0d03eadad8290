"""A CPU flame graph of this process, drawn by py-spy in a child process that looks into this one's
memory.

`--nonblocking`: py-spy stops no thread while it looks, so the training runs on at its pace, and of
many samples a few are lost. Threads that wait are not counted. Not covered: processes that the
worker has started, such as those of a DataLoader, and native frames.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from syncline.train.workers.profiling.errors import ProfileError

RATE_HZ = 100
_TITLE = re.compile(r'(?P<tag><text id="title"[^>]*>)[^<]*')
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_PR_SET_PTRACER = 0x59616D61


def record(seconds: float, afterwards_s: float, target: Path) -> None:
    """ThreadSample for so long and write the flame graph, an SVG.

    Raises:
        ProfileError: py-spy is not there, may not look into this process, or saw nothing.
    """
    command = [
        _py_spy(),
        "record",
        "--pid",
        str(os.getpid()),
        "--duration",
        str(max(1, round(seconds))),
        "--rate",
        str(RATE_HZ),
    ]
    command += ["--format", "flamegraph", "--threads", "--nonblocking", "--output", str(target)]
    try:
        with _children_may_look():
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds + afterwards_s,
            )
    except subprocess.TimeoutExpired:
        raise ProfileError(
            f"py-spy had not ended {afterwards_s:g} s after the {seconds:g} s that it was to look, and was ended: see whether the machine "
            "is overloaded"
        ) from None
    if done.returncode != 0 or not target.exists():
        raise ProfileError(explained(done.stderr or done.stdout, seconds))
    target.write_text(
        titled(target.read_text(), f"CPU time of process {os.getpid()} in {seconds:g} s")
    )


def titled(svg: str, title: str) -> str:
    """The flame graph under another heading than the command line with which it was made."""
    return _TITLE.sub(lambda found: found["tag"] + title, svg, count=1)


def explained(said: str, seconds: float) -> str:
    """What py-spy said where it failed, as cause and remedy."""
    text = said.strip()
    if "No stack counts found" in text:
        return f"no thread of the process used the CPU in {seconds:g} s, so there is nothing to draw: it waits. `syncline stack` shows where"
    last = text.splitlines()[-1].strip() if text else "it said nothing"
    if any(
        refusal in text
        for refusal in (
            "Permission denied",
            "Permission Denied",
            "Operation not permitted",
            "EPERM",
        )
    ):
        return (
            f"py-spy may not look into the worker's process ({last}): a container needs the right to (docker run --cap-add=SYS_PTRACE; in "
            "Kubernetes securityContext.capabilities.add: [SYS_PTRACE]), and a machine `sysctl kernel.yama.ptrace_scope=1`, or 0"
        )
    return f"py-spy failed: {last}"


def _py_spy() -> str:
    """The program of this environment, whether or not that is activated."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if found is None:
        raise ProfileError(
            'CPU profiles need py-spy, which is not installed where the worker runs: `pip install "syncline[dashboard]"` there'
        )
    return found


@contextmanager
def _children_may_look() -> Iterator[None]:
    """Where only ancestors may look into a process, let descendants of this one do so, until the
    block ends.
    """
    try:
        restricted = _PTRACE_SCOPE.read_text().strip() == "1"
    except OSError:  # a kernel without such rules
        restricted = False
    if not restricted:
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    # With this process as the one that may, its descendants may: the child need not exist yet.
    prctl(_PR_SET_PTRACER, ctypes.c_ulong(os.getpid()), 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(0), 0, 0, 0)
