"""Whether the cluster is still there: a program that waits for one that is gone gets an error
instead of waiting, or being ended, by Ray.

Ray ends a program whose cluster's head has not answered for a minute, and one that touches an
object after the node of its machine died, without a word on the terminal. `Health` decides (pure),
`Watch` looks every few seconds, and ends what waits.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import psutil

from syncline import settings
from syncline.core.cluster import head as heads
from syncline.core.cluster.head import Head
from syncline.exceptions import LocalRayletDiedError

Result = TypeVar("Result")

LOOK_EVERY_S = 1.0
WAIT_SLICE_S = 4.0
"""How long a wait goes on until it asks whether the cluster is still there."""
HEAD_SILENT_S = 5.0
"""How long the head may be silent until the program's user is told."""
BEFORE_RAY_S = 15.0
"""How long before Ray ends the program it gets an error, which leaves it time to end by itself."""
RAYS_PATIENCE_S = 60.0
"""How long Ray waits for a head by default."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was seen at one time."""

    at: float
    """When, in seconds of any steady clock."""
    node_lives: bool
    """Whether the node of this machine runs."""
    head_answers: bool


class Health:
    """What becomes of a cluster, as one look after another tells. Not thread safe."""

    def __init__(self, address: str, patience_s: float) -> None:
        self.lost: str | None = None
        """Why the cluster is gone, for this program; None while it is not."""
        self._address = address
        self._patience_s = patience_s
        self._silent_since: float | None = None
        self._is_told = False

    def see(self, look: Look) -> str | None:
        """What to tell the program's user of it, if anything."""
        if self.lost is not None:
            return None
        if not look.node_lives:
            return self._lose(
                "the node of this machine, through which this program was connected, has died"
            )
        if look.head_answers:
            came_back, self._silent_since, self._is_told = self._is_told, None, False
            return (
                f"the head of the cluster at {self._address!r} answers again" if came_back else None
            )
        self._silent_since = look.at if self._silent_since is None else self._silent_since
        silent_s = look.at - self._silent_since
        if silent_s >= self._patience_s:
            return self._lose(f"its head has not answered for {silent_s:.0f} s")
        if silent_s >= HEAD_SILENT_S and not self._is_told:
            self._is_told = True
            return f"the head of the cluster at {self._address!r} does not answer: waiting {self._patience_s - silent_s:.0f} s more for it"
        return None

    def _lose(self, why: str) -> str:
        self.lost = (
            f"the cluster at {self._address!r} is lost: {why}. What ran there, and what was not fetched yet, is gone. "
            f"Call `shutdown()`, then `init()` on a cluster that runs."
        )
        return self.lost


class Guard:
    """How a process waits for Ray, and what it asks before it uses it. This one knows nothing of
    losses: Ray ends its own workers.
    """

    def check(self) -> None:
        """LocalRayletDiedError where the cluster is lost."""

    def patiently(
        self,
        attempt: Callable[[float | None], Result],
        arrived: Callable[[], bool],
        timeout_s: float | None,
    ) -> Result | None:
        """What `attempt`, which waits for as many seconds as it is told, comes to in `timeout_s`;
        None is for nothing.

        `arrived` says whether what it waits for is there and needs only be fetched.
        """
        return attempt(timeout_s)

    def close(self) -> None:
        """The process uses the cluster no more."""


class Watch(Guard):
    """Watches the cluster of a program, in a thread that ends with `close`. Thread safe."""

    def __init__(
        self, health: Health, look: Callable[[], Look], tell: Callable[[str], None]
    ) -> None:
        """`tell` shows a line to the program's user."""
        self._health = health
        self._look = look
        self._tell = tell
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="syncline-watch", daemon=True).start()

    def check(self) -> None:
        """LocalRayletDiedError where the cluster is lost."""
        if self._health.lost is not None:
            raise LocalRayletDiedError(self._health.lost)

    def patiently(
        self,
        attempt: Callable[[float | None], Result],
        arrived: Callable[[], bool],
        timeout_s: float | None,
    ) -> Result | None:
        """As `Guard` does, in slices, so that a loss ends it. Fetching is not cut: it would begin
        anew each time.
        """
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self.check()
            rest_s = max(0.0, deadline - time.monotonic())
            result = attempt(min(rest_s, WAIT_SLICE_S))
            if result is not None or rest_s <= WAIT_SLICE_S:
                return result
            self.check()
            if arrived():
                return attempt(None if timeout_s is None else max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_EVERY_S):
            message = self._health.see(self._look())
            if message is not None and not self._closed.is_set():
                self._tell(message)


def watch(head: Head, node_id: str, tell: Callable[[str], None]) -> Watch:
    """A watch over the cluster that this program is connected to, through the node `node_id` of
    this machine.
    """
    rays_patience_s = float(
        settings.environment("RAY_gcs_rpc_server_reconnect_timeout_s") or RAYS_PATIENCE_S
    )
    node = _Node(node_id)

    def look() -> Look:
        return Look(at=time.monotonic(), node_lives=node.lives(), head_answers=heads.answers(head))

    return Watch(
        Health(head.address, max(rays_patience_s - BEFORE_RAY_S, rays_patience_s / 2)), look, tell
    )


class _Node:
    """The process of this machine's node, which is looked for once."""

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._process: psutil.Process | None = None
        self._was_looked_for = False

    def lives(self) -> bool:
        """True also where the process cannot be seen from here."""
        if not self._was_looked_for:
            self._was_looked_for = True
            self._process = next(
                (process for process in psutil.process_iter(["cmdline"]) if self._is_mine(process)),
                None,
            )
        return self._process is None or (
            self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
        )

    def _is_mine(self, process: psutil.Process) -> bool:
        return f"--node_id={self._node_id}" in (process.info["cmdline"] or ())
