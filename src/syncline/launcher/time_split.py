"""Split of a rank's time into computing, communicating, waiting for data and saving.

The activity is derived from the stack of the script's main thread, which `rank_watch` reads. These
count as communication: calls of `torch.distributed`, and in training on CPUs a backward pass whose
thread sleeps, because gradients are exchanged there, below Python. Time in a DataLoader of torch
counts as data, and time in `torch.save`, safetensors and distributed checkpoints as saving. Not
covered: work of GPUs for which the main thread does not wait, and other ways to read data.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from types import FrameType
from typing import Literal, TypeAlias

Activity: TypeAlias = Literal["compute", "communication", "data", "report"]
PARTS: tuple[Activity, ...] = ("communication", "data", "report")
"""Activities with a sum; the rest of the time is computation. "report" is saving."""
_LOADER = "/torch/utils/data/dataloader.py"
_SAVING = ("/torch/distributed/checkpoint/", "/safetensors/")
_SERIALIZATION = "/torch/serialization.py"
_COMMUNICATION = ("/torch/distributed/", "/torch/nn/parallel/")
_BACKWARD = "_engine_run_backward"


def activity(frames: Sequence[FrameType], *, sleeps: bool, has_gpu: bool) -> Activity:
    """Return the activity of a thread.

    Args:
        frames: Its frames, innermost first; at least one.
        sleeps: True if it waits for something in the kernel.
        has_gpu: True if it may wait for a GPU.
    """
    own = list(dropwhile(_is_standard, frames)) or [frames[-1]]
    found: Activity = "compute"
    for frame in own:
        file = frame.f_code.co_filename
        if any(part in file for part in _SAVING) or (
            file.endswith(_SERIALIZATION) and "save" in frame.f_code.co_name
        ):
            return "report"
        if file.endswith(_LOADER):
            found = "data"
    if found == "data":
        return found
    innermost = own[0].f_code
    if any(part in innermost.co_filename for part in _COMMUNICATION):
        return "communication"
    if innermost.co_name == _BACKWARD and not has_gpu and sleeps:
        return "communication"
    return "compute"


def _is_standard(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith("<frozen ") or ("/lib/python3" in file and "-packages/" not in file)
