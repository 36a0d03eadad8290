"""Memory profile of this process by memray: allocations of all threads at peak usage, by source
line.

Only allocations during the profile are recorded, and no GPU memory. The recording has one sum per
stack, so it stays small. Python code is noticeably slower during the profile.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from syncline.train.workers.profiling.profile_request import ProfileError, run_tool


def record(seconds: float, afterwards_s: float, target: Path) -> None:
    """Record for `seconds` and write the flame graph, a self-contained HTML page.

    Raises:
        ProfileError: memray is not installed, already records this process, or failed.
    """
    seen = target.with_name("allocations.bin")
    _watch(seconds, seen)
    command = [sys.executable, "-m", "memray", "flamegraph", "--no-web", "--force"]
    try:
        # In a separate process, since it takes seconds of CPU time.
        problem = run_tool([*command, "--output", str(target), str(seen)], target, afterwards_s)
    except subprocess.TimeoutExpired:
        raise ProfileError(
            f"memray did not write its flame graph within {afterwards_s:g} s and was killed. "
            "Profile for less time"
        ) from None
    if problem is not None:
        raise ProfileError(f"memray could not write its flame graph: {problem.splitlines()[-1]}")


def _watch(seconds: float, seen: Path) -> None:
    try:
        import memray  # optional
    except ImportError as error:
        raise ProfileError(
            f"Memory profiles need memray, which cannot be imported on the worker's node "
            f"({error}): "
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
            f"memray cannot record the worker: {error}. The program may use memray itself"
        ) from error
