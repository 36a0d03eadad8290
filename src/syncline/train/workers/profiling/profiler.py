"""From the question for a profile to its file in the run directory, in the worker's process, on a
thread of the control channel.

Only one profile is taken at a time in a process: the tools would measure each other, and some
refuse to run twice.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from syncline.core.engine import current_engine
from syncline.runs.run_directory import PROFILES_DIRECTORY
from syncline.train.session import get_session
from syncline.train.workers.profiling import cpu_profile as cpu
from syncline.train.workers.profiling import memory_profile as memory
from syncline.train.workers.profiling.errors import ProfileError
from syncline.train.workers.profiling.profile_request import ProfileKind, ProfileRequest

_STEPS_MODULE = "syncline.train.workers.profiling.torch_trace"


class _Names:
    """Names of files: when, who and what; never the same twice from one process."""

    def __init__(self) -> None:
        self._last = ""
        self._again = 0

    def next(self, rank: int, ending: str, now_s: float) -> str:
        """`20261122-101500-rank-0-cpu.svg`, the time being this machine's."""
        stem = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(now_s))}-rank-{rank}"
        name = f"{stem}-{ending}"
        self._again = self._again + 1 if name == self._last else 0
        self._last = name
        return f"{stem}-again-{self._again}-{ending}" if self._again else name


_names = _Names()
_busy = threading.Lock()


def take_profile(request: ProfileRequest) -> str:
    """Take a profile of this process, put it into the run directory and return the file's path
    there.

    Raises:
        ProfileError: The tool is not there or may not look into the process, there was nothing to
            see, or another profile is being taken.
        OSError: The file cannot be written.
    """
    session = get_session()
    if not _busy.acquire(blocking=False):
        raise ProfileError(
            f"rank {session.world_rank} is being profiled already: ask again when that profile is there"
        )
    try:
        name = (
            f"{PROFILES_DIRECTORY}/{_names.next(session.world_rank, request.ending, time.time())}"
        )
        # In the session's directory, where nothing stays if the process is killed meanwhile.
        with tempfile.TemporaryDirectory(
            prefix="profile-", dir=current_engine().session_directory
        ) as directory:
            target = Path(directory) / f"profile-{request.ending}"
            problem = _record(request, target)
            session.storage.files.write(name, target.read_bytes())
        if problem is not None:
            raise ProfileError(f"{problem}. What was recorded until then is in {name}")
        return name
    finally:
        _busy.release()


def _record(request: ProfileRequest, target: Path) -> str | None:
    """Fill the file; gives back why it is not all that was asked for, if it is not. ProfileError
    where there is nothing.
    """
    if request.kind is ProfileKind.CPU:
        cpu.record(request.seconds, request.afterwards_s, target)
    elif request.kind is ProfileKind.MEMORY:
        memory.record(request.seconds, request.afterwards_s, target)
    elif "torch" not in sys.modules:
        raise ProfileError(
            "the training function has not imported torch, so there are no steps to trace: take a CPU profile instead"
        )
    else:
        record_steps: Callable[[int, float, Path], str | None] = importlib.import_module(
            _STEPS_MODULE
        ).record
        return record_steps(request.steps, request.seconds, target)
    return None


def prepare() -> None:
    """Before the training function starts, in its thread: have the steps of optimizers noticed,
    where torch is there already.

    Later, from another thread, it might meet an optimizer that is just calling its hooks.
    """
    if "torch" in sys.modules:
        with suppress(ImportError):  # a torch that has no such hooks trains as well
            importlib.import_module(_STEPS_MODULE).notice_steps()
