"""What runs in a trial's process when somebody looks at the trial: its stack, and a CPU profile."""

from __future__ import annotations

import tempfile
import threading
import traceback
from itertools import dropwhile
from pathlib import Path
from sys import _current_frames

from syncline.train.workers.profiling import cpu

FUNCTION_THREAD = "syncline-function"
TRIAL_THREAD = "syncline-trial"
_PACKAGE = str(Path(__file__).parents[2])


def stack() -> str:
    """Where the trainable is, as Python prints a stack, the innermost frame last; without what
    syncline runs it in.
    """
    threads = {thread.name: thread for thread in threading.enumerate()}
    thread = threads.get(FUNCTION_THREAD) or threads.get(TRIAL_THREAD)
    frame = _current_frames().get(thread.ident or 0) if thread is not None else None
    if frame is None:
        return "(its trainable does not run)"
    frames = traceback.extract_stack(frame)
    own = list(
        dropwhile(
            lambda each: each.filename.startswith(_PACKAGE) or each.filename == threading.__file__,
            frames,
        )
    )
    return "".join(traceback.format_list(own or frames))


def cpu_profile(seconds: float, afterwards_s: float) -> bytes:
    """A flame graph of this process over so many seconds, an SVG.

    Raises:
        ProfileError: py-spy is not there, may not look into this process, or saw nothing.
    """
    with tempfile.TemporaryDirectory(prefix="syncline-profile-") as directory:
        target = Path(directory) / "cpu.svg"
        cpu.record(seconds, afterwards_s, target)
        return target.read_bytes()
