"""`RunningTrials`: the trials that run at the moment, for other threads than the search's;
`TrialSamples`: what their processes use; `RecordUpkeep`: the thread that sees to all of that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import psutil

from syncline.runs import RunDirectory
from syncline.runs.usage import Sampler

SAMPLE_EVERY_S = 5.0
"""How often the process of each running trial is looked at. Trials that are shorter cost
nothing.
"""
WRITE_EVERY_S = 1.0
"""How often is written what was collected, where nothing happens that would have it written
sooner.
"""
_OF_HOST = ("host_cpu_percent", "host_memory_percent")


@dataclass(frozen=True, kw_only=True)
class RunningTrial:
    """A trial in its process."""

    trial_id: str
    """Id in the search."""
    name: str
    """What people call it."""
    attempt: int
    """Which of its starts this is, from 1, since the search was started."""
    host: str
    """The machine's name, or its address where that is all that is known."""
    pid: int
    """The process."""
    is_here: bool
    """Whether it is one of this machine."""


class RunningTrials:
    """Who runs. May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, RunningTrial] = {}
        self._attempts: dict[str, int] = {}

    def put(self, trial_id: str, name: str, *, host: str, pid: int, is_here: bool) -> None:
        """A trial runs in that process now."""
        with self._lock:
            attempt = self._attempts[trial_id] = self._attempts.get(trial_id, 0) + 1
            self._running[trial_id] = RunningTrial(
                trial_id=trial_id, name=name, attempt=attempt, host=host, pid=pid, is_here=is_here
            )

    def discard(self, trial_id: str) -> None:
        """It does not run any more, if it did."""
        with self._lock:
            self._running.pop(trial_id, None)

    def all(self) -> list[RunningTrial]:
        """Those that run, in the order in which they started."""
        with self._lock:
            return list(self._running.values())

    def get(self, trial_id: str) -> RunningTrial | None:
        """One of them; None if it does not run."""
        with self._lock:
            return self._running.get(trial_id)


class _Samples(Protocol):
    def sample(self) -> dict[str, Any]: ...


class TrialSamples:
    """Samples trials that run on this machine, one look at a time.

    Args:
        record: Where samples go.
        running: Whom to look at.
        sampler: Makes what looks at a process.
    """

    def __init__(
        self,
        record: RunDirectory,
        running: RunningTrials,
        sampler: Callable[[int], _Samples] = Sampler,
    ) -> None:
        self._record = record
        self._running = running
        self._sampler = sampler
        self._samplers: dict[tuple[str, int], _Samples] = {}

    def look(self) -> None:
        """Look once at every trial. OSError where samples cannot be written."""
        before, self._samplers = self._samplers, {}
        host: dict[str, Any] = {}
        for trial in self._running.all():
            if not trial.is_here:
                continue
            key = (trial.trial_id, trial.attempt)
            try:
                sampler = before.get(key) or self._sampler(trial.pid)
                usage = sampler.sample()
            except psutil.Error:  # it has just ended
                continue
            # One's look at the machine begins where another's has ended: what the first has seen
            # counts.
            host = host or {name: usage[name] for name in _OF_HOST if name in usage}
            self._samplers[key] = sampler
            self._record.sample(trial.trial_id, trial.attempt, trial.pid, {**usage, **host})


class RecordUpkeep:
    """A thread beside the search that sees to its record: writes what was collected, samples,
    uploads.

    Args:
        write: Writes what was collected.
        write_state: Writes how far the search is.
        look: Samples.
        upload: Sends what only lies on this machine.
    """

    def __init__(
        self,
        *,
        write: Callable[[], None],
        write_state: Callable[[], None],
        look: Callable[[], None],
        upload: Callable[[], None],
    ) -> None:
        self._write = write
        self._write_state = write_state
        self._look = look
        self._upload = upload
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="syncline-record", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, and write what is left."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        self._write()
        self._write_state()

    def _work(self) -> None:
        self._write_state()
        look_at = time.monotonic() + SAMPLE_EVERY_S
        while not self._end.wait(WRITE_EVERY_S):
            self._write()
            if time.monotonic() < look_at:
                continue
            look_at = time.monotonic() + SAMPLE_EVERY_S
            self._write_state()
            try:
                self._look()
                self._upload()
            except OSError:  # who writes says so; uploads are tried again
                continue
