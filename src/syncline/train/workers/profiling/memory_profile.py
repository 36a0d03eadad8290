"""A memory profile of this process by memray: what all threads together held when they held most,
by the lines that had asked for it.

It sees what is asked for while it looks; memory from before does not show, nor does a GPU's. What
is kept meanwhile is a sum for each stack, so it stays small however much is going on. Python code
runs noticeably slower while memray looks, and as before afterwards.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from pathlib import Path

from syncline.train.workers.profiling.errors import ProfileError


def record(seconds: float, afterwards_s: float, target: Path) -> None:
    """ThreadSample for so long and write the flame graph, an HTML page that needs nothing from elsewhere.

    Raises:
        ProfileError: memray is not there, watches this process already, or could not draw.
    """
    seen = target.with_name("allocations.bin")
    _watch(seconds, seen)
    command = [
        sys.executable,
        "-m",
        "memray",
        "flamegraph",
        "--no-web",
        "--force",
        "--output",
        str(target),
        str(seen),
    ]
    try:
        # In a process of its own: it takes seconds of CPU time, which would be taken from the
        # training's interpreter.
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=afterwards_s,
        )
    except subprocess.TimeoutExpired:
        raise ProfileError(
            f"memray had not drawn its flame graph after {afterwards_s:g} s, and was ended: look for less time"
        ) from None
    if done.returncode != 0 or not target.exists():
        said = (done.stderr or done.stdout).strip()
        raise ProfileError(
            f"memray could not draw its flame graph: {said.splitlines()[-1] if said else 'it said nothing'}"
        )


def _watch(seconds: float, seen: Path) -> None:
    try:
        memray = importlib.import_module("memray")
    except ImportError as error:
        raise ProfileError(
            f"memory profiles need memray, which cannot be imported where the worker runs ({error}): "
            '`pip install "syncline[dashboard]"` there'
        ) from error
    try:
        tracker = memray.Tracker(
            destination=memray.FileDestination(seen),
            file_format=memray.FileFormat.AGGREGATED_ALLOCATIONS,
        )
        with tracker:
            time.sleep(seconds)
    except RuntimeError as error:
        raise ProfileError(
            f"memray cannot watch the worker: {error}. It may be that the program uses memray itself"
        ) from error
