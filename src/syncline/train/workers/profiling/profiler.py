"""Takes profiles in the worker's process, on a thread of the control channel.

A process takes only one profile at a time: the tools would measure each other, and some refuse to
run twice.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from syncline.core.engine import current_engine
from syncline.runs.run_directory import PROFILES_DIRECTORY
from syncline.train.session import get_session
from syncline.train.workers.profiling import cpu_profile as cpu
from syncline.train.workers.profiling import memory_profile as memory
from syncline.train.workers.profiling.profile_request import (
    ProfileError,
    ProfileKind,
    ProfileRequest,
)

_taken: Counter[str] = Counter()
"""Number of profiles by name without `-again-…`."""
_busy = threading.Lock()


def take_profile(request: ProfileRequest) -> str:
    """Take a profile of this process; return the path of its file in the run directory.

    Raises:
        ProfileError: The tool is not there or may not look into the process, there was nothing to
            see, or another profile is being taken.
        OSError: The file cannot be written.
    """
    session = get_session()
    if not _busy.acquire(blocking=False):
        raise ProfileError(
            f"Rank {session.world_rank} is being profiled. Try again after that profile"
        )
    try:
        name = f"{PROFILES_DIRECTORY}/{_file_name(session.world_rank, request.ending)}"
        # The session directory is deleted even if the process is killed meanwhile.
        with tempfile.TemporaryDirectory(
            prefix="profile-", dir=current_engine().session_directory
        ) as directory:
            target = Path(directory) / f"profile-{request.ending}"
            problem = _record(request, target)
            session.storage.files.write(name, target.read_bytes())
        if problem is not None:
            raise ProfileError(f"{problem}. The recorded part is in {name}")
        return name
    finally:
        _busy.release()


def _file_name(rank: int, ending: str) -> str:
    """Return a unique name such as `20261122-101500-rank-0-cpu.svg`, in local time."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-rank-{rank}"
    again = _taken[f"{stem}-{ending}"]
    _taken[f"{stem}-{ending}"] += 1
    return f"{stem}-again-{again}-{ending}" if again else f"{stem}-{ending}"


def _record(request: ProfileRequest, target: Path) -> str | None:
    """Write the file; return the reason if it is incomplete.

    Raises:
        ProfileError: There is nothing to write.
    """
    if request.kind is ProfileKind.CPU:
        cpu.record(request.seconds, request.afterwards_s, target)
    elif request.kind is ProfileKind.MEMORY:
        memory.record(request.seconds, request.afterwards_s, target)
    elif "torch" not in sys.modules:
        raise ProfileError(
            "The training function has not imported torch, so there are no steps to trace. Take a "
            "CPU profile instead"
        )
    else:
        from syncline.train.workers.profiling import torch_trace  # loads torch

        return torch_trace.record(request.steps, request.seconds, target)
    return None


def prepare() -> None:
    """Register the hook for optimizer steps if torch is imported.

    Called in the training thread before the training function starts: later, another thread might
    register it while an optimizer is calling its hooks.
    """
    if "torch" in sys.modules:
        with suppress(ImportError):  # older versions of torch do not have these hooks
            from syncline.train.workers.profiling import torch_trace  # loads torch

            torch_trace.notice_steps()
