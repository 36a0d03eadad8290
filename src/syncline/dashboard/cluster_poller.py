"""Polls a cluster through a separate process while a visitor views the cluster page.

`snapshot` returns the latest snapshot without waiting. The process (`cluster_probe`) starts with
the first call and exits after a period without calls. The pause between two requests grows with the
time of an answer, which limits the load on the head node.
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
from syncline.core.host import ray_node_runs_here
from syncline.dashboard.engine_snapshots import UNREADABLE, EngineSnapshot, engine_snapshot

ANSWER_S = 60.0
"""Seconds that the process may take to connect or to answer."""
PAUSE_S = 2.0
"""Minimum seconds between an answer and the next request."""
PAUSES_PER_ANSWER = 5.0
"""Minimum pause as a multiple of the time that the answer took."""
AGAIN_S = 15.0
"""Seconds before the next attempt after a failure."""
IDLE_S = 60.0
"""Seconds without a visitor after which the process exits."""
MAX_ANSWER_LENGTH = 64 << 20
_READ_BYTES = 1 << 16
_ENDING_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    """State of a cluster at one moment."""

    address: str
    """Address used to connect."""
    engine: EngineSnapshot | None
    """Latest snapshot, or None."""
    problem: str | None = None
    """Reason why the cluster cannot be queried now; `engine` is then outdated."""


class ProbeError(RuntimeError):
    """The cluster cannot be queried; the message gives the reason."""


class Probe:
    """The probe process. For one thread."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**settings.inherited_environment(), "PYTHONUNBUFFERED": "1"},
        )

    def ask(self, limit_s: float) -> Any:
        """Return the next answer. ProbeError if none arrives within `limit_s` or it failed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        except OSError:
            pass  # the process has ended; its output may contain a last answer
        try:
            answer = json.loads(self._line(time.monotonic() + limit_s))
        except ValueError as error:
            raise ProbeError(f"The probe process sent invalid JSON: {error}") from error
        if isinstance(answer, dict) and "failed" in answer:
            raise ProbeError(str(answer["failed"]))
        return answer

    def close(self) -> None:
        """Stop the process; kill it if it does not exit in time."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
        except OSError:
            pass  # the process has ended
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def kill(self) -> None:
        """Kill the process."""
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
                raise ProbeError("The cluster did not answer in time.")
            chunk = os.read(fd, _READ_BYTES)
            if not chunk:
                raise ProbeError(
                    "The probe process has ended; Ray terminates it when its cluster is gone."
                )
            received += chunk
            if len(received) > MAX_ANSWER_LENGTH:
                raise ProbeError(f"The answer exceeds {MAX_ANSWER_LENGTH} bytes.")
        return bytes(received)


class ClusterPoller:
    """Poller of one cluster. Thread-safe."""

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
        """`is_there`: returns False while there is no cluster to query."""
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
        self._latest: ClusterSnapshot | None = ClusterSnapshot(address=address, engine=None)

    def snapshot(self) -> ClusterSnapshot | None:
        """Return the latest snapshot without waiting, or None without a cluster."""
        with self._lock:
            self._looked = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="dashboard-cluster", daemon=True
                )
                self._thread.start()
            return self._latest

    def _run(self) -> None:
        while self._is_needed():
            if not self._is_there():
                self._publish(None)
            else:
                self._poll()
            self._pause(self._again_s)

    def _poll(self) -> None:
        """Query until an error occurs or no visitor is left."""
        engine: EngineSnapshot | None = None
        try:
            probe = Probe(self._command)
        except OSError as error:
            self._publish_engine(None, f"The probe process cannot be started: {error}")
            return
        try:
            while self._is_needed():
                asked = time.monotonic()
                engine = engine_snapshot(probe.ask(self._answer_s))
                self._publish_engine(engine)
                self._pause(max(self._pause_s, PAUSES_PER_ANSWER * (time.monotonic() - asked)))
        except ProbeError as error:
            probe.kill()
            self._publish_engine(engine, str(error))
        except UNREADABLE as error:
            self._publish_engine(engine, f"Its answers cannot be parsed: {error!r}")
        finally:
            probe.close()

    def _publish_engine(self, engine: EngineSnapshot | None, problem: str | None = None) -> None:
        self._publish(ClusterSnapshot(address=self._address, engine=engine, problem=problem))

    def _publish(self, look: ClusterSnapshot | None) -> None:
        with self._lock:
            self._latest = look

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_idle():
            time.sleep(min(0.2, seconds))

    def _is_idle(self) -> bool:
        return time.monotonic() - self._looked > self._idle_s

    def _is_needed(self) -> bool:
        """Return False to end the thread; the next `snapshot` starts a new one."""
        with self._lock:
            if not self._is_idle():
                return True
            self._thread = None
            self._latest = ClusterSnapshot(address=self._address, engine=None)
            return False


@lru_cache(maxsize=8)
def shared_poller(address: str | None) -> ClusterPoller:
    """Return the shared poller of the cluster at an address, or of a cluster on this machine."""
    if address:
        return ClusterPoller(address)
    return ClusterPoller("auto", is_there=ray_node_runs_here)
