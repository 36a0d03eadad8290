"""Python stacks of the workers, taken from outside.

A worker that runs a Python script writes them itself when it is signalled, even while C code holds
its interpreter (`core.embedded.stack_dump`). Other programs are read by py-spy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from syncline.core.embedded import stack_dump
from syncline.runs.outliers import NO_ANSWER

_RUNNER = "script_process.py"
_FUNCTIONS = ("run_as_main", "call_pickled")
_PY_SPY_S = 10.0
_MOST_AT_ONCE = 16


def stacks(pids: Mapping[int, int]) -> dict[int, str]:
    """Return the stack of each rank's main thread, outermost frame first, by rank."""
    found = own_stacks(pids)
    return {rank: found[rank] or _by_py_spy(pid) for rank, pid in pids.items()}


def own_stacks(pids: Mapping[int, int]) -> dict[int, str]:
    """Return the stacks that the workers write themselves; empty texts for the others."""
    if not pids:
        return {}
    with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(pids))) as pool:
        return dict(zip(pids, pool.map(_own_stack, pids.values()), strict=True))


def _own_stack(pid: int) -> str:
    dump = stack_dump.take(pid)
    return "" if dump is None else script_stack(dump)


def script_stack(dump: str) -> str:
    """Return the stack of the thread that runs the script, without the launcher's frames.

    Args:
        dump: Stacks of all threads as printed by `faulthandler`, innermost frame first.
    """
    frames: list[str] = []
    for thread in dump.split("\n\n"):
        frames = [line for line in thread.splitlines() if line.lstrip().startswith("File ")]
        for number, line in enumerate(frames):
            if _RUNNER in line and line.rpartition(" in ")[2] in _FUNCTIONS:
                return "\n".join(reversed(frames[:number])) or NO_ANSWER
    return "\n".join(reversed(frames)) or dump  # a stack too deep to be printed whole


def _by_py_spy(pid: int) -> str:
    beside = Path(sys.executable).with_name("py-spy")
    tool = str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if tool is None:
        return f'{NO_ANSWER} (`pip install "syncline[dashboard]"` installs py-spy, which can look)'
    try:
        done = subprocess.run(
            [tool, "dump", "--nonblocking", "--pid", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PY_SPY_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return NO_ANSWER
    return done.stdout.strip() or NO_ANSWER
