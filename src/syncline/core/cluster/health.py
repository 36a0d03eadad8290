"""Detection of a lost cluster: waits then fail instead of hanging or being killed by Ray.

Ray ends a program whose cluster's head has not answered for a minute, and a program that touches an
object after the node of its machine died, without a message. `ClusterHealth` decides (pure),
`ConnectionMonitor` checks every second and makes waits fail.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import psutil

from syncline import settings
from syncline.core.cluster import head as heads
from syncline.core.cluster.head import Head
from syncline.exceptions import LocalRayletDiedError

Result = TypeVar("Result")

CHECK_INTERVAL_S = 1.0
WAIT_SLICE_S = 4.0
"""Longest part of a wait without a check of the cluster."""
WARN_AFTER_S = 5.0
"""Seconds of the head's silence before the user is warned."""
BEFORE_RAY_S = 15.0
"""Seconds before Ray would end the program at which the cluster counts as lost."""
RAY_TIMEOUT_S = 60.0
"""Ray's default time to wait for the head."""


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """Result of one check."""

    at: float
    """Time of the check in seconds of a monotonic clock."""
    node_lives: bool
    """True if the node of this machine runs."""
    head_answers: bool


class ClusterHealth:
    """Health of a cluster over successive checks. Not thread safe."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self.lost: str | None = None
        """Message that the cluster is lost to this program; None while it is not."""
        self._address = address
        self._timeout_s = timeout_s
        self._silent_since: float | None = None
        self._has_warned = False

    def update(self, check: HealthCheck) -> str | None:
        """Apply a check and return a message for the user, if any."""
        if self.lost is not None:
            return None
        if not check.node_lives:
            return self._lose(
                "the node of this machine, through which this program was connected, has died"
            )
        if check.head_answers:
            recovered, self._silent_since, self._has_warned = self._has_warned, None, False
            return (
                f"the head of the cluster at {self._address!r} answers again" if recovered else None
            )
        self._silent_since = check.at if self._silent_since is None else self._silent_since
        silent_s = check.at - self._silent_since
        if silent_s >= self._timeout_s:
            return self._lose(f"its head has not answered for {silent_s:.0f} s")
        if silent_s >= WARN_AFTER_S and not self._has_warned:
            self._has_warned = True
            return (
                f"the head of the cluster at {self._address!r} does not answer: "
                f"waiting {self._timeout_s - silent_s:.0f} s more for it"
            )
        return None

    def _lose(self, why: str) -> str:
        self.lost = (
            f"the cluster at {self._address!r} is lost: {why}. Its tasks, actors and unfetched "
            f"objects are gone. Call `shutdown()`, then `init()` on a running cluster."
        )
        return self.lost


class Connection:
    """Waits of a process on Ray, without monitoring. Used in workers, which Ray ends itself."""

    def check(self) -> None:
        """Raise LocalRayletDiedError if the cluster is lost."""

    def wait(
        self,
        attempt: Callable[[float | None], Result],
        arrived: Callable[[], bool],
        timeout_s: float | None,
    ) -> Result | None:
        """Return the result of `attempt`, or None if there is none within `timeout_s`.

        Args:
            attempt: Waits for the given seconds (None: without a limit); None means no result yet.
            arrived: Returns True if the result exists and only needs to be fetched.
            timeout_s: Seconds to wait; None to wait without a limit.
        """
        return attempt(timeout_s)

    def close(self) -> None:
        """Stop monitoring."""


class ConnectionMonitor(Connection):
    """Monitors a driver's cluster in a thread until `close`. Thread safe."""

    def __init__(
        self, health: ClusterHealth, probe: Callable[[], HealthCheck], notify: Callable[[str], None]
    ) -> None:
        """`notify` shows a line to the user."""
        self._health = health
        self._probe = probe
        self._notify = notify
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="syncline-monitor", daemon=True).start()

    def check(self) -> None:
        """See `Connection.check`."""
        if self._health.lost is not None:
            raise LocalRayletDiedError(self._health.lost)

    def wait(
        self,
        attempt: Callable[[float | None], Result],
        arrived: Callable[[], bool],
        timeout_s: float | None,
    ) -> Result | None:
        """Wait in slices, so that the loss of the cluster ends the wait.

        A fetch is not sliced, because each slice would start it anew.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self.check()
            remaining_s = max(0.0, deadline - time.monotonic())
            result = attempt(min(remaining_s, WAIT_SLICE_S))
            if result is not None or remaining_s <= WAIT_SLICE_S:
                return result
            self.check()
            if arrived():
                return attempt(None if timeout_s is None else max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(CHECK_INTERVAL_S):
            message = self._health.update(self._probe())
            if message is not None and not self._closed.is_set():
                self._notify(message)


def monitor(head: Head, node_id: str, notify: Callable[[str], None]) -> ConnectionMonitor:
    """Monitor the cluster that this program is connected to through the local node `node_id`."""
    ray_timeout_s = float(
        settings.environment("RAY_gcs_rpc_server_reconnect_timeout_s") or RAY_TIMEOUT_S
    )

    def probe() -> HealthCheck:
        return HealthCheck(
            at=time.monotonic(), node_lives=_node_lives(node_id), head_answers=heads.answers(head)
        )

    timeout_s = max(ray_timeout_s - BEFORE_RAY_S, ray_timeout_s / 2)
    return ConnectionMonitor(ClusterHealth(head.address, timeout_s), probe, notify)


def _node_lives(node_id: str) -> bool:
    """Return True if the process of this machine's node runs or is not visible from here."""
    process = _node_process(node_id)
    return process is None or (process.is_running() and process.status() != psutil.STATUS_ZOMBIE)


@lru_cache(maxsize=1)
def _node_process(node_id: str) -> psutil.Process | None:
    for process in psutil.process_iter(["cmdline"]):
        if f"--node_id={node_id}" in (process.info["cmdline"] or ()):
            return process
    return None
