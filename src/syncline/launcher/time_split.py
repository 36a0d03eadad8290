"""Split of a rank's time into computing, communicating, waiting for data and saving.

The script does not say what it does, so a thread of its process looks at the stack of the main
thread about ten times per second, and adds the time since its last look to the activity that it
sees. The sums are in memory that the launcher has created, so that it can read them after the
process has ended, and that is no open file of the script. Seen as communication are calls of
`torch.distributed`, and in training on CPUs a backward pass whose thread sleeps: gradients are
exchanged there, below Python. Seen as data is the time in a DataLoader of torch, and as saving that
in `torch.save`, safetensors and distributed checkpoints. Not covered: work of GPUs for which the
main thread does not wait, and other ways to read data.
"""

from __future__ import annotations

import _thread
import mmap
import os
import random
import struct
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Literal, TypeAlias

from syncline import system

Activity: TypeAlias = Literal["compute", "communication", "data", "report"]
PARTS: tuple[Activity, ...] = ("communication", "data", "report")
"""Activities with a sum; the rest of the time is computation. "report" is saving."""
LOOK_S = (0.05, 0.15)
"""Shortest and longest seconds between two looks, which are random so as not to meet steps."""
_SUMS = struct.Struct("=4d")  # the total, then `PARTS`
_LOADER = "/torch/utils/data/dataloader.py"
_SAVING = ("/torch/distributed/checkpoint/", "/safetensors/")
_SERIALIZATION = "/torch/serialization.py"
_COMMUNICATION = ("/torch/distributed/", "/torch/nn/parallel/")
_BACKWARD = "_engine_run_backward"
_SLEEPS = b"S"


# -- in the process of the script


def start(fd: int) -> None:
    """Begin to look at the main thread, which calls this; `fd` is that of a `TimeReader`."""
    sums = mmap.mmap(fd, _SUMS.size)
    # Not a `threading.Thread`: the script counts those.
    _thread.start_new_thread(_look, (sums, threading.get_ident()))


def _look(sums: mmap.mmap, main_thread: int) -> None:
    chance = random.Random()  # the script's own generator stays as it is
    spent = dict.fromkeys(PARTS, 0.0)
    began = last = time.monotonic()
    while True:
        time.sleep(chance.uniform(*LOOK_S))
        frame = sys._current_frames().get(main_thread)
        if frame is None:
            return
        seen = activity(frame)
        del frame  # it keeps the script's values
        now = time.monotonic()
        if seen != "compute":
            spent[seen] += now - last
        last = now
        _SUMS.pack_into(sums, 0, now - began, *spent.values())


def activity(frame: FrameType, sleeps: Callable[[], bool] = lambda: _sleeps()) -> Activity:
    """Return what the main thread does.

    Args:
        frame: Its innermost frame.
        sleeps: Returns True if it waits for something in the kernel.
    """
    innermost: FrameType = frame
    while _is_standard(innermost) and innermost.f_back is not None:
        innermost = innermost.f_back
    outer: FrameType | None = innermost
    found: Activity = "compute"
    while outer is not None:
        file = outer.f_code.co_filename
        if any(part in file for part in _SAVING) or (
            file.endswith(_SERIALIZATION) and "save" in outer.f_code.co_name
        ):
            return "report"
        if file.endswith(_LOADER):
            found = "data"
        outer = outer.f_back
    if found == "data":
        return found
    if any(part in innermost.f_code.co_filename for part in _COMMUNICATION):
        return "communication"
    if innermost.f_code.co_name == _BACKWARD and not _uses_cuda() and sleeps():
        return "communication"
    return "compute"


def _is_standard(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith("<frozen ") or ("/lib/python3" in file and "-packages/" not in file)


def _uses_cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _sleeps() -> bool:
    """Return True if the main thread waits in the kernel; False where that is unknown."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] == _SLEEPS
    except OSError:
        return False


# -- in the launcher


class TimeReader:
    """Memory for the sums of one process."""

    def __init__(self) -> None:
        self.fd = system.anonymous_file("syncline-times")
        """Descriptor for the process."""
        os.ftruncate(self.fd, _SUMS.size)

    def read(self) -> dict[str, float] | None:
        """Return the seconds as records have them; None before the first look."""
        total_s, *parts = _SUMS.unpack(os.pread(self.fd, _SUMS.size, 0))
        if not total_s:
            return None
        return {
            "total_s": total_s,
            **{f"{name}_s": s for name, s in zip(PARTS, parts, strict=True)},
        }

    def close(self) -> None:
        """Release the memory."""
        os.close(self.fd)
