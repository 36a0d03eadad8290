"""Trace of the next optimizer steps by `torch.profiler`, in a format for Perfetto.

A hook that all optimizers call after a step starts the trace, marks the steps ("step 1", …) and
ends it, in the training thread. The trace has the operators of every thread, and GPU kernels if
CUDA is used. If no more steps occur, the requesting thread ends it. The program must not use
`torch.profiler` at the same time. Python frames are not recorded, as this would slow down the steps
many times.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function

from syncline.train.workers.profiling.profile_request import ProfileError


class StepTrace:
    """One trace. The training thread calls `stepped`, the requesting thread calls `finish`.

    Args:
        steps: Number of steps to record.
        options: Options of `torch.profiler` as returned by `_all_threads`.
    """

    def __init__(self, steps: int, options: Any) -> None:
        self._wanted = steps
        self._options = options
        self._lock = threading.Lock()
        self._profiler: profile | None = None
        self._runs = False
        self._mark: record_function | None = None
        self._optimizer: object = None  # the one whose steps count
        self.error: Exception | None = None
        """Error of the profiler; it does not affect the training."""
        self.steps = 0
        """Complete steps recorded."""
        self.ended = threading.Event()
        """Set when all steps are recorded, or after an error."""

    def stepped(self, optimizer: object) -> None:
        """Record a step of an optimizer. Only steps of the first optimizer seen count."""
        with self._lock:
            if self.ended.is_set():
                return
            try:
                self._record(optimizer)
            except Exception as error:
                self.error = error
                self.ended.set()

    def _record(self, optimizer: object) -> None:
        if self._profiler is None:
            self._optimizer = optimizer
            self._profiler = profile(
                activities=_activities(), record_shapes=True, experimental_config=self._options
            )
            self._profiler.start()
            self._runs = True
        elif optimizer is self._optimizer:
            self.steps += 1
            if self._mark is not None:
                self._mark.__exit__(None, None, None)
        else:
            return
        if self.steps == self._wanted:
            self._stop()
            self.ended.set()
        else:
            self._mark = record_function(f"step {self.steps + 1}")
            self._mark.__enter__()  # type: ignore[no-untyped-call]

    def finish(self) -> profile | None:
        """End the trace, complete or not; return None if nothing was recorded."""
        with self._lock:
            self.ended.set()
            self._optimizer = None
            try:
                self._stop()
            except Exception as error:
                self.error = self.error or error
            return self._profiler if self.error is None else None

    def _stop(self) -> None:
        if self._runs and self._profiler is not None:
            self._runs = False
            self._profiler.stop()


class _Hook:
    """Hook that optimizers call after a step."""

    def __init__(self) -> None:
        self.trace: StepTrace | None = None
        self.is_registered = False

    def __call__(self, optimizer: object, args: object, kwargs: object) -> None:
        if self.trace is not None:
            self.trace.stepped(optimizer)


_hook = _Hook()


def notice_steps() -> None:
    """Register the hook for all optimizers. It stays and costs less than a microsecond per step."""
    if not _hook.is_registered:
        _hook.is_registered = True
        register_optimizer_step_post_hook(_hook)


def record(steps: int, limit_s: float, target: Path) -> str | None:
    """Trace `steps` steps and write them to `target`, whose name ends with `.json.gz`.

    Returns:
        The reason for fewer steps; None if complete.

    Raises:
        ProfileError: There was no step within `limit_s` seconds, or the profiler failed.
    """
    trace = StepTrace(steps, _all_threads())
    notice_steps()
    _hook.trace = trace
    try:
        trace.ended.wait(limit_s)
    finally:
        _hook.trace = None
        profiler = trace.finish()
    if trace.error is not None:
        raise ProfileError(
            f"`torch.profiler` could not trace the steps ({trace.error}). The program may use "
            "it itself"
        ) from trace.error
    if profiler is None:
        raise ProfileError(
            f"No optimizer of `torch.optim` made a step in {limit_s:g} s. If the rank hangs, "
            "`syncline stack` shows where; if a step takes longer, increase `--seconds`; if it "
            "uses no such optimizer, take a CPU profile"
        )
    profiler.export_chrome_trace(str(target))
    if trace.steps < steps:
        return f"only {trace.steps} of {steps} steps were made in {limit_s:g} s"
    return None


def _activities() -> list[ProfilerActivity]:
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        activities.append(ProfilerActivity.CUDA)
    return activities


def _all_threads() -> Any:
    """Return the option for a trace of all threads that any thread may end."""
    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except (AttributeError, TypeError):
        raise ProfileError(
            f"Traces need torch 2.7 or newer, and the worker has {torch.__version__}"
        ) from None
