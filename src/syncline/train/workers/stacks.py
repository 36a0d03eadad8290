"""Where a training function is, as Python prints a stack: its own frames and what they call, not
what syncline runs it in.
"""

from __future__ import annotations

import sys
import threading
import traceback
from itertools import dropwhile

RUNNER = "_train"
"""The method that calls the training function: what is above it says nothing about the program."""
_THIS_PACKAGE = __file__.rpartition("stacks.py")[0]


def of_thread(thread: threading.Thread | None) -> str:
    """Of a thread of this process."""
    frame = sys._current_frames().get(thread.ident or 0) if thread is not None else None
    if frame is None:
        return "(its training function does not run)"
    frames = traceback.extract_stack(frame)
    inner = list(
        dropwhile(
            lambda each: each.name != RUNNER or not each.filename.startswith(_THIS_PACKAGE), frames
        )
    )[1:]
    return "".join(traceback.format_list(inner or frames))


def of_dump(dump: str) -> str:
    """Of the threads of another process, as `faulthandler` prints them, innermost frame first; that
    whose frames show the runner.
    """
    for thread in dump.split("\n\n"):
        lines = [line for line in thread.splitlines() if line.lstrip().startswith("File ")]
        place = next(
            (
                at
                for at, line in enumerate(lines)
                if line.endswith(f" in {RUNNER}") and _THIS_PACKAGE in line
            ),
            None,
        )
        if place:
            return "\n".join(reversed(lines[:place]))
    return dump
