"""A trace of the next steps by `torch.profiler`, from one step of an optimizer to another, in a
form that Perfetto opens.

A hook that all optimizers call after a step starts it, marks the steps ("step 1", …) and ends it,
in the thread that trains; it records every thread's operators, and the GPU's where CUDA is in use.
Where the steps stop coming, the thread that asked ends it. A program may not profile itself with
`torch.profiler` at the same time. Python frames are not recorded: that would slow the steps down
many times.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function

from syncline.train.workers.profiling.errors import ProfileError


class StepTrace:
    """One trace. `stepped` is called in the thread that trains, `finish` by the one that asked."""

    def __init__(self, steps: int, options: Any) -> None:
        """`options`: `torch.profiler`'s, as `_of_all_threads` makes them."""
        self._wanted = steps
        self._options = options
        self._lock = threading.Lock()
        self._profiler: profile | None = None
        self._runs = False
        self._mark: record_function | None = None
        self._beat: Any = None
        self.error: Exception | None = None
        """What went wrong, which the training is not to suffer from."""
        self.steps = 0
        """Whole steps recorded so far."""
        self.ended = threading.Event()
        """All steps are recorded, or something went wrong."""

    def stepped(self, optimizer: object) -> None:
        """An optimizer has made a step. The first one seen sets the beat: where there are several,
        the others' do not count.
        """
        with self._lock:
            if self.ended.is_set():
                return
            try:
                self._take(optimizer)
            except Exception as error:
                self.error = error
                self.ended.set()

    def _take(self, optimizer: object) -> None:
        if self._profiler is None:
            self._beat = optimizer
            self._profiler = profile(
                activities=_activities(), record_shapes=True, experimental_config=self._options
            )
            self._profiler.start()
            self._runs = True
        elif optimizer is self._beat:
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
        """End it, whether or not all steps are there; None where nothing was recorded."""
        with self._lock:
            self.ended.set()
            self._beat = None
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
    """What optimizers call."""

    def __init__(self) -> None:
        self.trace: StepTrace | None = None
        self.is_registered = False

    def __call__(self, optimizer: object, args: object, kwargs: object) -> None:
        if self.trace is not None:
            self.trace.stepped(optimizer)


_hook = _Hook()


def notice_steps() -> None:
    """Have all optimizers call the hook from now on; it stays, and costs less than a microsecond a
    step.
    """
    if not _hook.is_registered:
        _hook.is_registered = True
        register_optimizer_step_post_hook(_hook)


def record(steps: int, limit_s: float, target: Path) -> str | None:
    """Trace so many steps and write them to `target`, whose name ends with `.json.gz`.

    Returns:
        Why it is fewer steps, if it is.

    Raises:
        ProfileError: There was no step within `limit_s` seconds, or the profiler refused.
    """
    trace = StepTrace(steps, _of_all_threads())
    notice_steps()
    _hook.trace = trace
    try:
        trace.ended.wait(limit_s)
    finally:
        _hook.trace = None
        profiler = trace.finish()
    if trace.error is not None:
        raise ProfileError(
            f"`torch.profiler` could not trace the steps ({trace.error}): does the program profile itself?"
        ) from trace.error
    if profiler is None:
        raise ProfileError(
            f"no optimizer of `torch.optim` made a step in {limit_s:g} s, and a trace goes from one step to another: if the rank is stuck, "
            "`syncline stack` shows where; if a step takes longer, give more `--seconds`; if it uses no such optimizer, take a CPU profile"
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


def _of_all_threads() -> Any:
    """The option with which a trace covers all threads and may be ended from any."""
    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except (AttributeError, TypeError):
        raise ProfileError(
            f"traces need torch 2.7 or newer, and the worker has {torch.__version__}"
        ) from None
