"""How a rank's training thread spends its time: `ThreadMeter`, which the hang watch feeds.

Exact on Linux, from counters: time on a core, time runnable without a core (`schedstat`), garbage
collection (`gc.callbacks`). Sampled ten times a second: waiting for data, for other ranks, for the
disk, and sleeping. Elsewhere psutil tells the time on a core, and waits for a core or for a disk
are not distinguished from computing. Not covered: other threads of the rank, its data loader's
processes, and work on a GPU.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from syncline import system
from syncline.optional import deferred
from syncline.records import dataclass

if TYPE_CHECKING:
    import psutil
else:
    psutil = deferred("psutil")

State = Literal["running", "disk", "sleeping", "unknown"]
_STATES: Mapping[str, State] = {"R": "running", "D": "disk", "S": "sleeping"}
_NS = 1e-9
_COLLECTIVE_MODULES = (
    "torch.distributed.distributed_c10d",
    "torch.distributed._functional_collectives",
)
_LOADERS = (
    "torch.utils.data",
    "torchdata.",
    "datasets.",
    "syncline.data.",
    "syncline.train.torch.prepared_loader",
)
_MOST_LINES = 64
DISK_SHARE = 0.15
"""Share of the samples of a line in uninterruptible sleep, from which on all of its time counts as
time of the disk: a read also copies, and waits for a core after each block, if cores are busy.
"""
RUNNING_SHARE = 0.1
"""Share of the time between two looks on a core, from which on a thread counts as running where the
system does not tell its state.
"""


class Scheduled(NamedTuple):
    """Times that the system's scheduler counts, in seconds since the thread began."""

    cpu_s: float = 0.0
    """On a core."""
    delay_s: float = 0.0
    """Runnable, but without a core."""


@dataclass(slots=True)
class _Line:
    """Samples of one line of the program since the last observation."""

    samples: int = 0
    running_s: float = 0.0
    disk_s: float = 0.0

    @property
    def read_s(self) -> float:
        """Seconds of `running_s` that belong to reads."""
        shown_s = self.running_s + self.disk_s
        return self.running_s if 0 < DISK_SHARE * shown_s <= self.disk_s else 0.0


@dataclass(frozen=True, kw_only=True)
class ThreadTimes:
    """Seconds that a training thread has spent, each since its training function began."""

    cpu_s: float = 0.0
    """On a core, for any activity; 0 where it is unknown."""
    running_s: float = 0.0
    """On a core or runnable, outside of collective operations and data loaders."""
    contention_s: float = 0.0
    """Runnable, but without a core."""
    collection_s: float = 0.0
    """In garbage collection."""
    data_s: float = 0.0
    """In data loaders."""
    disk_s: float = 0.0
    """In uninterruptible sleep, as a rule for a disk, and running in the same lines."""
    sleeping_s: float = 0.0
    """Asleep outside of collective operations and data loaders."""
    communication_s: float = 0.0
    """In collective operations that do not overlap with computation."""

    def minus(self, other: ThreadTimes) -> ThreadTimes:
        """Return the times since `other`."""
        return ThreadTimes(
            **{name: value - getattr(other, name) for name, value in vars(self).items()}
        )


class CollectionMeter:
    """Measures the garbage collections of this process from `start` on."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def start(self) -> None:
        """Begin to measure."""
        if self._on_collection not in gc.callbacks:
            gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        """End the measurement."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._began


class ThreadMeter:
    """Accumulates `ThreadTimes` from samples. Pure except `CollectionMeter`.

    Args:
        has_gpu: True if the thread may wait for a GPU, so that sleep in a backward pass is not
            communication.
    """

    def __init__(self, *, has_gpu: bool = False) -> None:
        self.collections = CollectionMeter()
        self.has_gpu = has_gpu
        """See the constructor; may change."""
        self._sampled: dict[str, float] = defaultdict(float)
        self._first: Scheduled | None = None
        self._scheduled = Scheduled()
        self._lines: dict[str, _Line] = defaultdict(_Line)
        self._read_s = 0.0  # running in lines that read, until the last observation

    def add(
        self,
        frames: Sequence[FrameType],
        state: State,
        seconds: float,
        scheduled: Scheduled,
        *,
        in_barrier: bool = False,
    ) -> None:
        """Add a sample.

        Args:
            frames: Frames of the thread, innermost first.
            state: State of the thread.
            seconds: Time since the last sample.
            scheduled: Time of the thread on a core and in its queue.
            in_barrier: True in a barrier of the session.
        """
        place = "barrier" if in_barrier else self._place(frames, state)
        self._sampled[place] += seconds
        self._first = self._first or scheduled
        self._scheduled = scheduled
        if place in ("running", "sleeping", "disk"):
            self._add_line(_line(frames), place, seconds)

    def _add_line(self, name: str, place: str, seconds: float) -> None:
        if len(self._lines) >= _MOST_LINES and name not in self._lines:
            usual = sorted(self._lines.items(), key=lambda item: -item[1].samples)
            self._lines = defaultdict(_Line, usual[: _MOST_LINES // 2])
        line = self._lines[name]
        line.samples += 1
        if place == "running":
            line.running_s += seconds
        elif place == "disk":
            line.disk_s += seconds

    def _place(self, frames: Sequence[FrameType], state: State) -> str:
        if state == "disk":
            return "disk"
        if is_waiting_for_ranks(frames, state, has_gpu=self.has_gpu):
            return "communication"
        if any(_module(each).startswith(_LOADERS) for each in frames):
            return "data"
        return "sleeping" if state == "sleeping" else "running"

    @property
    def communication_s(self) -> float:
        """Seconds in collective operations of the framework, to about one sample interval."""
        return self._sampled["communication"]

    def times(self) -> ThreadTimes:
        """Return the times so far."""
        sampled, first = dict(self._sampled), self._first or self._scheduled
        read_s = self._read_s + sum(line.read_s for line in self._lines.values())
        return ThreadTimes(
            cpu_s=self._scheduled.cpu_s - first.cpu_s,
            running_s=sampled.get("running", 0.0) - read_s,
            contention_s=self._scheduled.delay_s - first.delay_s,
            collection_s=self.collections.seconds,
            data_s=sampled.get("data", 0.0),
            disk_s=sampled.get("disk", 0.0) + read_s,
            sleeping_s=sampled.get("sleeping", 0.0),
            communication_s=sampled.get("communication", 0.0) + sampled.get("barrier", 0.0),
        )

    def take_line(self) -> str:
        """Return the program's most frequent line since the last call, as "f (train.py:12)"."""
        lines, self._lines = self._lines, defaultdict(_Line)
        self._read_s += sum(line.read_s for line in lines.values())
        return max(lines, key=lambda name: lines[name].samples, default="")


def is_waiting_for_ranks(frames: Sequence[FrameType], state: State, *, has_gpu: bool) -> bool:
    """Return True if a thread, given by its frames, is in a collective operation.

    In a backward pass, gradients are reduced in C++: a thread that sleeps there waits for ranks,
    unless it waits for a GPU.
    """
    for depth, frame in enumerate(frames):
        module = _module(frame)
        if module.startswith(_COLLECTIVE_MODULES) or (
            depth == 0 and module.startswith("torch.distributed.") and state != "running"
        ):
            return True
        if frame.f_code.co_name == "_engine_run_backward":
            return state == "sleeping" and not has_gpu
        if module.partition(".")[0] != "torch":
            return False
    return False


def frames_of(thread: int) -> list[FrameType]:
    """Return the frames of a running thread, innermost first; empty if it is not running.

    The thread may run meanwhile. CPython 3.11 then sometimes returns another object as a frame's
    caller; such a stack is cut there.
    """
    frames = []
    frame = sys._current_frames().get(thread)
    while isinstance(frame, FrameType):
        frames.append(frame)
        frame = frame.f_back
    return frames


class ThreadFiles:
    """Files of the system about a thread of this process, kept open.

    For a thread without such files, the state is "unknown" and the times are 0.
    """

    def __init__(self, native_id: int) -> None:
        self._stat = _opened(f"/proc/self/task/{native_id}/stat")
        self._schedstat = _opened(f"/proc/self/task/{native_id}/schedstat")

    def state(self) -> State:
        """Return the state of the thread."""
        data = _content(self._stat)
        place = data.rfind(b")") + 2
        return _STATES.get(data[place : place + 1].decode(), "unknown")

    def scheduled(self) -> Scheduled:
        """Return the times that the scheduler has counted."""
        fields = _content(self._schedstat).split()
        if len(fields) < 2:
            return Scheduled()
        return Scheduled(int(fields[0]) * _NS, int(fields[1]) * _NS)

    def close(self) -> None:
        """Close the files."""
        for file in (self._stat, self._schedstat):
            if file is not None:
                os.close(file)


class ThreadTimer:
    """State and times of a thread of this process, where there are no `ThreadFiles`.

    psutil tells how long the thread was on a core, from which its state follows: it is "running" or
    "sleeping", never "disk". On macOS only the main thread is known: psutil numbers the threads
    there, and the main thread is the first. Other threads have the state "unknown", and no times.

    Args:
        native_id: The thread's identifier.
        clock: Returns monotonic seconds.
        cpu_s: Returns the seconds on a core by thread, in the order of creation.
    """

    def __init__(
        self,
        native_id: int,
        clock: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], Mapping[int, float]] = lambda: _cpu_s_by_thread(),
    ) -> None:
        self._native_id = native_id
        self._is_main = native_id == threading.main_thread().native_id
        self._clock = clock
        self._read = cpu_s
        self._last: tuple[float, float] | None = None  # time, CPU time

    def state(self) -> State:
        """Return the state of the thread since the last call."""
        found, now, before = self._read(), self._clock(), self._last
        first = next(iter(found.values()), None) if self._is_main else None
        cpu_s = found.get(self._native_id, first)
        self._last = None if cpu_s is None else (now, cpu_s)
        if before is None or cpu_s is None:
            return "unknown"
        is_running = cpu_s - before[1] >= RUNNING_SHARE * (now - before[0])
        return "running" if is_running else "sleeping"

    def scheduled(self) -> Scheduled:
        """Return the time on a core at the last call of `state`."""
        return Scheduled() if self._last is None else Scheduled(cpu_s=self._last[1])

    def close(self) -> None:
        """Release nothing: there is no file."""


ThreadSource: TypeAlias = ThreadFiles | ThreadTimer


def thread_source(native_id: int) -> ThreadSource:
    """Return what this system offers to learn state and times of a thread of this process."""
    return ThreadFiles(native_id) if system.IS_LINUX else ThreadTimer(native_id)


def _cpu_s_by_thread() -> dict[int, float]:
    try:
        threads = psutil.Process().threads()
    except psutil.Error:
        return {}
    return {each.id: each.user_time + each.system_time for each in threads}


def _opened(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _content(file: int | None) -> bytes:
    try:
        return b"" if file is None else os.pread(file, 256, 0)
    except OSError:  # the thread has ended
        return b""


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _line(frames: Sequence[FrameType]) -> str:
    """Return the innermost line outside of libraries."""
    own = (each for each in frames if not _is_library(each.f_code.co_filename))
    frame = next(own, frames[0] if frames else None)
    if frame is None:
        return ""
    return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"


def _is_library(path: str) -> bool:
    return "/site-packages/" in path or "/lib/python3" in path or path.startswith("<")
