"""Hang watch of a training function: a thread that samples the training thread ten times a second.

A rank that waits for others in a collective operation uses no CPU time. It counts as stalled if two
samples show the same CPU time and a stack through `torch.distributed` or a backward pass (whose
gradients `DistributedDataParallel` reduces). Libraries that wait actively (NCCL) have a watchdog of
their own, whose errors end the rank. The watch also feeds the `ThreadMeter`, ends its windows at
the same times on all ranks, and formats the stack of the training function.
"""

from __future__ import annotations

import inspect
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import dropwhile
from types import FrameType

from syncline.diagnosis.observation import WINDOW_S
from syncline.diagnosis.thread_states import ThreadMeter, ThreadSource, frames_of, thread_source
from syncline.train.workers.messages import Stalled
from syncline.train.workers.worker_session import WorkerSession

SAMPLE_INTERVAL_S = 0.1
REPORT_INTERVAL_S = 5.0
"""Interval of reports about step times and resource usage."""
FIRST_REPORT_S = 1.0
"""Time of the first of these reports; early, as the start of a run is often watched."""
NOTICE_S = 30.0
"""Seconds after which a rank counts as stalled in lists."""
WARN_S = 60.0
"""Longest time until a warning is sent."""
WARN_STEPS = 20
"""Median steps after which a warning is sent, if that is earlier."""
SHORTEST_WARN_S = 10.0
"""Shortest time of that: ranks often wait while another one evaluates or saves."""
WARN_AFTER = 0.1
"""Fraction of the limit after which a warning is sent in any case."""
FAIL_AFTER = 0.9
"""Fraction of the limit after which the attempt fails. Below 1, because the operation would
otherwise time out first, with an error that names no rank.
"""

RUNNER = "_train"
"""Method of `TrainWorker` that calls the training function. Frames outside of it are not shown."""
_BARRIER = inspect.unwrap(WorkerSession.barrier).__code__
_THIS_PACKAGE = __file__.rpartition("hang_watch.py")[0]


@dataclass(frozen=True)
class ThreadSample:
    """State of a thread at one moment."""

    cpu_s: float
    """CPU time of the thread."""
    in_collective: bool
    """True if the thread is in a collective operation."""
    in_barrier: bool = False
    """True if this is one of the session, whose limit the controller keeps."""


class HangDetector:
    """Turns samples of a thread into messages. Pure.

    Args:
        limit_s: Longest time in one collective operation.
        median_step_s: Returns the median time between two reports; None if it is not known yet.
    """

    def __init__(
        self, limit_s: float, median_step_s: Callable[[], float | None] = lambda: None
    ) -> None:
        self._limit_s = limit_s
        self._median_step_s = median_step_s
        self._last: ThreadSample | None = None
        self._since_s = 0.0
        self._is_noticed = False
        self._has_warned = False

    def update(self, sample: ThreadSample, now_s: float) -> Stalled | None:
        """Add a sample; return a message, if any. Over the limit, each sample leads to one."""
        if sample != self._last or not sample.in_collective:
            was_noticed, self._is_noticed, self._has_warned = self._is_noticed, False, False
            self._last, self._since_s = sample, now_s
            return Stalled(seconds=0.0) if was_noticed else None
        seconds = now_s - self._since_s
        if seconds >= FAIL_AFTER * self._limit_s and not sample.in_barrier:
            self._is_noticed = self._has_warned = True
            return Stalled(seconds=seconds, warns=True, over_limit=True)
        if not self._has_warned and seconds >= self._warn_after_s:
            self._is_noticed = self._has_warned = True
            return Stalled(seconds=seconds, warns=True)
        if not self._is_noticed and seconds >= NOTICE_S:
            self._is_noticed = True
            return Stalled(seconds=seconds)
        return None

    @property
    def _warn_after_s(self) -> float:
        limit_s = min(WARN_S, WARN_AFTER * self._limit_s)
        step_s = self._median_step_s()
        return (
            limit_s if step_s is None else min(limit_s, max(SHORTEST_WARN_S, WARN_STEPS * step_s))
        )


class HangWatch:
    """Samples one thread until it ends.

    Args:
        hang_limit_s: Longest time in one collective operation.
        median_step_s: See `HangDetector`.
        on_stall: Called with messages of the detector.
        on_interval: Called every few seconds.
        on_window: Called with the number of each window at its end, and with the meter's thread
            still running. All are called on the thread of the watch.
        has_gpu: See `ThreadMeter`.
    """

    def __init__(
        self,
        *,
        hang_limit_s: float,
        median_step_s: Callable[[], float | None] = lambda: None,
        on_stall: Callable[[Stalled], None],
        on_interval: Callable[[], None],
        on_window: Callable[[int], None] = lambda number: None,
        has_gpu: bool = False,
    ) -> None:
        self._detector = HangDetector(hang_limit_s, median_step_s)
        self._on_stall = on_stall
        self._on_interval = on_interval
        self._on_window = on_window
        self.meter = ThreadMeter(has_gpu=has_gpu)
        """How the thread spends its time."""

    def follow(self, thread: threading.Thread) -> None:
        """Start to sample a running thread."""
        threading.Thread(
            target=self._sample, args=(thread,), name="syncline-hang-watch", daemon=True
        ).start()

    def _sample(self, thread: threading.Thread) -> None:
        assert thread.ident is not None, "the thread has started"
        last = time.monotonic()
        next_report = last + FIRST_REPORT_S
        window = int(time.time() // WINDOW_S)
        source = thread_source(thread.native_id or 0)
        self.meter.collections.start()
        while True:
            left_s = (window + 1) * WINDOW_S - time.time()
            thread.join(min(SAMPLE_INTERVAL_S, max(0.001, left_s)))
            if not thread.is_alive():  # its CPU clock does not exist any more
                self.meter.collections.stop()
                source.close()
                return
            now = time.monotonic()
            sample = self._look(thread.ident, source, now - last, now)
            message = self._detector.update(sample, now)
            if message is not None:
                self._on_stall(message)
            if now >= next_report:
                next_report = now + REPORT_INTERVAL_S
                self._on_interval()
            if int(time.time() // WINDOW_S) != window:
                window = int(time.time() // WINDOW_S)
                self._on_window(window)
            last = now

    def _look(self, thread: int, source: ThreadSource, seconds: float, now: float) -> ThreadSample:
        """Return a sample, and add it to the meter.

        The frames of the thread are released immediately: they keep the values of functions that
        have returned meanwhile, such as tensors.
        """
        # The thread may run during these calls, but not while its frames are looked at.
        state, scheduled = source.state(), source.scheduled()
        frames = frames_of(thread)
        in_barrier = is_in_barrier(frames)
        self.meter.add(frames, state, seconds, scheduled, in_barrier=in_barrier)
        in_collective = in_barrier or is_in_collective(frames)
        return ThreadSample(_cpu_s(thread, now), in_collective, in_barrier)


def is_in_collective(frames: Iterable[FrameType]) -> bool:
    """Return True if a stack goes through `torch.distributed` or a backward pass."""
    return any(
        is_communicating(each) or each.f_code.co_name == "_engine_run_backward" for each in frames
    )


def is_in_barrier(frames: Iterable[FrameType]) -> bool:
    """Return True if a stack goes through a barrier of the session."""
    return any(each.f_code is _BARRIER for each in frames)


def is_communicating(frame: FrameType) -> bool:
    """Return True if a frame is in `torch.distributed`."""
    return str(frame.f_globals.get("__name__", "")).startswith("torch.distributed")


def thread_stack(thread: threading.Thread | None) -> str:
    """Return the stack of a training thread of this process, from the training function on."""
    frame = sys._current_frames().get(thread.ident or 0) if thread is not None else None
    if frame is None:
        return "(the training function is not running)"
    frames = traceback.extract_stack(frame)
    inner = list(
        dropwhile(
            lambda each: each.name != RUNNER or not each.filename.startswith(_THIS_PACKAGE), frames
        )
    )[1:]
    return "".join(traceback.format_list(inner or frames))


def dumped_stack(dump: str) -> str:
    """Return the stack of the training thread of another process, outermost frame first.

    Args:
        dump: Stacks of all its threads as printed by `faulthandler`, innermost frame first.
    """
    for thread in dump.split("\n\n"):
        lines = [line for line in thread.splitlines() if line.lstrip().startswith("File ")]
        runner = next(
            (
                position
                for position, line in enumerate(lines)
                if line.endswith(f" in {RUNNER}") and _THIS_PACKAGE in line
            ),
            None,
        )
        if runner:
            return "\n".join(reversed(lines[:runner]))
    return dump


def _cpu_s(thread: int, otherwise: float) -> float:
    """Return the CPU time of a thread; `otherwise` on platforms without thread clocks."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return otherwise
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
