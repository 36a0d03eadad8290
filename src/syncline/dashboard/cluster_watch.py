"""Looks at a cluster again and again, in a thread and through a process of its own, for as long as
somebody looks at the page.

A look never waits: it gives what is known. The process (`cluster_probe`) is started with the first
look, asked with pauses that grow with the time that an answer takes, so that the cluster's head has
little to do, and ended when nobody has looked for a while.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from syncline import settings
from syncline.core.presence import cluster_runs_here
from syncline.dashboard.engines import UNREADABLE, EngineLook, described

ANSWER_S = 60.0
"""How long the process may take to connect, or to answer."""
PAUSE_S = 2.0
"""Between an answer and the next question, at least."""
PAUSES_PER_ANSWER = 5.0
"""Pauses are at least so many times as long as the answer took."""
AGAIN_S = 15.0
"""Before the next try where the cluster could not be asked."""
IDLE_S = 60.0
"""The process ends when nobody has looked for so long."""
LONGEST_ANSWER = 64 << 20
_READ_BYTES = 1 << 16
_ENDING_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ClusterLook:
    """A cluster at one moment."""

    address: str
    """As it was looked for."""
    engine: EngineLook | None
    """None where nothing is known (yet)."""
    problem: str | None = None
    """Why it cannot be asked now; `engine`, if there is one, is then from before."""


class ProbeError(RuntimeError):
    """The cluster could not be asked; the text says why."""


class Probe:
    """The process that is asked. For one thread."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**settings.inherited_environment(), "PYTHONUNBUFFERED": "1"},
        )

    def ask(self, limit_s: float) -> Any:
        """The next answer. ProbeError where none comes within `limit_s`, or it is an error."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it has ended, maybe with a last word
        try:
            answer = json.loads(self._line(time.monotonic() + limit_s))
        except ValueError as error:
            raise ProbeError(
                f"the process that asks it said what cannot be read: {error}"
            ) from error
        if isinstance(answer, dict) and "failed" in answer:
            raise ProbeError(str(answer["failed"]))
        return answer

    def close(self) -> None:
        """End the process: politely, and by force if that takes too long."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
        except OSError:
            pass  # it has ended
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def _line(self, deadline: float) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        poller = select.poll()
        poller.register(fd, select.POLLIN | select.POLLHUP)
        received = bytearray()
        while not received.endswith(b"\n"):
            rest_s = deadline - time.monotonic()
            if rest_s <= 0 or not poller.poll(rest_s * 1000):
                raise ProbeError("the cluster did not answer in time")
            chunk = os.read(fd, _READ_BYTES)
            if not chunk:
                raise ProbeError(
                    "the process that asks it has ended, as Ray ends those whose cluster is gone"
                )
            received += chunk
            if len(received) > LONGEST_ANSWER:
                raise ProbeError(f"its answer is longer than {LONGEST_ANSWER} bytes")
        return bytes(received)


class ClusterWatch:
    """What is known of one cluster. Thread safe."""

    def __init__(
        self,
        address: str,
        *,
        command: Sequence[str] | None = None,
        is_there: Callable[[], bool] = lambda: True,
        idle_s: float = IDLE_S,
        pause_s: float = PAUSE_S,
        again_s: float = AGAIN_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`is_there`: whether to ask at all; where it says no, there is no cluster to look at."""
        self._address = address
        self._command = command or (
            sys.executable,
            "-m",
            "syncline.dashboard.cluster_probe",
            address,
        )
        self._is_there = is_there
        self._idle_s = idle_s
        self._pause_s = pause_s
        self._again_s = again_s
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._looked = 0.0
        self._latest: ClusterLook | None = ClusterLook(address=address, engine=None)

    def look(self) -> ClusterLook | None:
        """What is known now, without waiting; None where there is no cluster."""
        with self._lock:
            self._looked = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="dashboard-cluster", daemon=True
                )
                self._thread.start()
            return self._latest

    def _run(self) -> None:
        while self._is_wanted():
            if not self._is_there():
                self._know(None)
            else:
                self._follow()
            self._rest(self._again_s)

    def _follow(self) -> None:
        """Ask until that goes wrong, or nobody looks any more."""
        engine: EngineLook | None = None
        try:
            probe = Probe(self._command)
        except OSError as error:
            self._know(
                ClusterLook(
                    address=self._address,
                    engine=None,
                    problem=f"no process could be started that asks it: {error}",
                )
            )
            return
        try:
            while self._is_wanted():
                asked = time.monotonic()
                engine = described(probe.ask(self._answer_s))
                self._know(ClusterLook(address=self._address, engine=engine))
                self._rest(max(self._pause_s, PAUSES_PER_ANSWER * (time.monotonic() - asked)))
        except ProbeError as error:
            probe.kill()
            self._know(ClusterLook(address=self._address, engine=engine, problem=str(error)))
        except UNREADABLE as error:
            self._know(
                ClusterLook(
                    address=self._address,
                    engine=engine,
                    problem=f"its answers cannot be read: {error!r}",
                )
            )
        finally:
            probe.close()

    def _know(self, look: ClusterLook | None) -> None:
        with self._lock:
            self._latest = look

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_idle():
            time.sleep(min(0.2, seconds))

    def _is_idle(self) -> bool:
        return time.monotonic() - self._looked > self._idle_s

    def _is_wanted(self) -> bool:
        """Whether to go on; if not, the next look starts a new thread."""
        with self._lock:
            if not self._is_idle():
                return True
            self._thread = None
            self._latest = ClusterLook(address=self._address, engine=None)
            return False


@lru_cache(maxsize=8)
def watch_of(address: str | None) -> ClusterWatch:
    """The watch that all visitors share: of the cluster at an address, or of the one that may run
    on this machine.
    """
    if address:
        return ClusterWatch(address)
    return ClusterWatch("auto", is_there=cluster_runs_here)
