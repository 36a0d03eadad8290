"""CPU flame graph of this process, recorded by py-spy in a child process.

With `--nonblocking`, py-spy does not stop threads while it samples: the training keeps its speed,
and a few samples are lost. Waiting threads are not counted, except with Python 3.10, whose threads
py-spy cannot tell apart without stopping them. Not covered: child processes of the worker, such as
those of a DataLoader, and native frames.
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

from syncline.train.workers.profiling.profile_request import ProfileError, run_tool

RATE_HZ = 100
_TITLE = re.compile(r'(?P<tag><text id="title"[^>]*>)[^<]*')
_TOTAL = re.compile(r"<title>all \(([\d,]+) samples")
_WATCH = re.compile(
    r"<title>(?:RankWatch\._look|HangWatch\._sample|_look|_sample) "
    r"\(\S*(?:rank_watch|hang_watch)\.py:\d+\) \(([\d,]+) samples"
)
"""The outermost function of a thread that watches the worker, once in each of its samples."""
_REFUSED = re.compile("Permission [Dd]enied|Operation not permitted|EPERM")
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_PR_SET_PTRACER = 0x59616D61


def record(seconds: float, afterwards_s: float, target: Path, pid: int | None = None) -> None:
    """Sample for `seconds` and write the flame graph, an SVG, within `afterwards_s`.

    `pid` is another process of this user that permits inspection; by default this process.

    Raises:
        ProfileError: py-spy is not installed, has no permission, or recorded no samples.
    """
    pid = os.getpid() if pid is None else pid
    command = [_py_spy(), "record", "--pid", str(pid), "--rate", str(RATE_HZ)]
    command += ["--duration", str(max(1, round(seconds))), "--output", str(target)]
    command += ["--format", "flamegraph", "--threads", "--nonblocking"]
    try:
        with _children_may_trace():
            problem = run_tool(command, target, seconds + afterwards_s)
    except subprocess.TimeoutExpired:
        raise ProfileError(
            f"py-spy did not exit within {afterwards_s:g} s after sampling {seconds:g} s and was "
            "killed. Check whether the machine is overloaded"
        ) from None
    if problem is not None:
        raise ProfileError(explained(problem, seconds))
    svg = target.read_text()
    if shows_watch_only(svg):
        raise ProfileError(_waits(seconds))
    target.write_text(titled(svg, f"CPU time of process {pid} in {seconds:g} s"))


def titled(svg: str, title: str) -> str:
    """Return the flame graph with another title than its command line."""
    return _TITLE.sub(lambda found: found["tag"] + title, svg, count=1)


def shows_watch_only(svg: str) -> bool:
    """Return True if all samples of a flame graph are those of a thread that watches the worker."""
    total = _TOTAL.search(svg)
    own = sum(_samples(found[1]) for found in _WATCH.finditer(svg))
    return total is not None and own == _samples(total[1])


def _samples(text: str) -> int:
    return int(text.replace(",", ""))


def _waits(seconds: float) -> str:
    return (
        f"No thread of the process used the CPU in {seconds:g} s: it waits. `syncline stack` "
        "shows where"
    )


def explained(text: str, seconds: float) -> str:
    """Return cause and remedy for an error output of py-spy."""
    if "No stack counts found" in text:
        return _waits(seconds)
    last = text.splitlines()[-1].strip()
    if _REFUSED.search(text):
        return (
            f"py-spy has no permission to read the worker's process ({last}). A container needs "
            "the capability SYS_PTRACE (docker run --cap-add=SYS_PTRACE; in Kubernetes "
            "securityContext.capabilities.add: [SYS_PTRACE]), a machine "
            "`sysctl kernel.yama.ptrace_scope=1` or 0"
        )
    return f"py-spy failed: {last}"


def _py_spy() -> str:
    """Return the path of py-spy in this environment, which need not be activated."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if found is None:
        raise ProfileError(
            "CPU profiles need py-spy, which is not installed on the worker's node: "
            '`pip install "syncline[dashboard]"` there'
        )
    return found


@contextmanager
def _children_may_trace() -> Iterator[None]:
    """Let descendants of this process trace it during the block, if the kernel restricts it."""
    try:
        restricted = _PTRACE_SCOPE.read_text().strip() == "1"
    except OSError:  # a kernel without this restriction
        restricted = False
    if not restricted:
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    # Permission for this process includes its descendants, which need not exist yet.
    prctl(_PR_SET_PTRACER, ctypes.c_ulong(os.getpid()), 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_PTRACER, ctypes.c_ulong(0), 0, 0, 0)
