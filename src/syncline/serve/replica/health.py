"""`LoopWatchdog`: a thread that notices when a handler blocks the event loop of a replica.

A blocked loop is busy, not ill: the watchdog logs which request blocks it, and at which line. The
controller restarts the replica only if the loop does not turn for `health_check_timeout_s`. A
constructor runs in the same thread; it is reported when it takes unusually long.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from syncline.records import dataclass
from syncline.serve.replica.dispatcher import OngoingCall
from syncline.serve.replica.user_frames import is_library

logger = logging.getLogger("syncline.serve")

BLOCKED_S = 1.0
"""Seconds without a turn after which a loop is reported as blocked."""
CONSTRUCTOR_S = 30.0
"""Seconds after which a constructor that has not returned is reported."""
_RUNNER = "syncline/serve/replica/process.py"
"""File of the function that runs the loop."""
_LOOKS_PER_LIMIT = 4
_LONGEST_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Blockage:
    """Code that blocks a thread."""

    line: str
    """File, line and function of the innermost frame of user code, or of any code."""
    call: OngoingCall | None
    """The request that the code handles; None outside of one."""
    is_user_code: bool
    """False if no frame of user code is on the stack: the process may just get no CPU time."""


class LoopWatchdog:
    """Watches one loop from a daemon thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, *, limit_s: float = BLOCKED_S
    ) -> None:
        """`name` is the replica's, for log lines."""
        self._loop = loop
        self._name = name
        self._limit_s = limit_s
        self._thread_id = threading.get_ident()
        self._stopped = threading.Event()
        self._turned = threading.Event()
        self._constructs = False
        self.blocked_s = 0.0
        """Seconds of the longest blockage so far."""

    def start(self) -> None:
        """Start to watch. Call it on the loop's thread, before the constructor."""
        self._constructs = True
        threading.Thread(target=self._watch, name="loop-watchdog", daemon=True).start()

    def constructed(self) -> None:
        """Record that the constructor has returned."""
        self._constructs = False

    def stop(self) -> None:
        """Stop to watch."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            began = time.monotonic()
            self._turned.clear()
            try:
                self._loop.call_soon_threadsafe(self._turned.set)
            except RuntimeError:  # the loop is closed
                return
            self._wait(began)
            self._stopped.wait(min(self._limit_s / _LOOKS_PER_LIMIT, _LONGEST_LOOK_S))

    def _wait(self, began: float) -> None:
        """Wait for a turn; report a late one when it is late, and when it came."""
        is_constructor = self._constructs
        limit_s = CONSTRUCTOR_S if is_constructor else self._limit_s
        if self._turned.wait(limit_s) or self._stopped.is_set():
            return
        blockage = blockage_of(self._thread_id)
        if is_constructor:
            logger.warning(
                "The constructor of replica %s has taken %.0f s. It is at %s.",
                self._name,
                limit_s,
                blockage.line,
            )
        elif not blockage.is_user_code and blockage.call is None:
            logger.warning(
                "The event loop of replica %s has not run for %.1f s, at %s, although no code of "
                "the application blocks it: the machine may be overloaded.",
                self._name,
                limit_s,
                blockage.line,
            )
        else:
            logger.warning(
                "%s blocks the event loop of replica %s for %.1f s, at %s. Its other requests "
                "wait. Declare the method with `def`, so that it runs in a thread, or await the "
                "work.",
                _described(blockage.call),
                self._name,
                limit_s,
                blockage.line,
            )
        while not self._turned.wait(_LONGEST_LOOK_S) and not self._stopped.is_set():
            pass
        self.blocked_s = max(self.blocked_s, time.monotonic() - began)
        if not is_constructor:
            logger.warning(
                "The event loop of replica %s was blocked for %.1f s.",
                self._name,
                time.monotonic() - began,
            )


def blockage_of(thread_id: int) -> Blockage:
    """Return the line that a thread runs now, and the line of user code that led to it."""
    frame = sys._current_frames().get(thread_id)
    innermost, user, call = "an unknown line", "", None
    for each in _frames(frame):
        line = f"{each.f_code.co_filename}:{each.f_lineno} in {each.f_code.co_name}"
        if each is frame:
            innermost = line
        if each.f_code.co_name == "run" and each.f_code.co_filename.endswith(_RUNNER):
            break  # below are frames of the worker, and the command line of its fork server
        if not user and not is_library(each.f_code.co_filename):
            user = line
        if each.f_code is OngoingCall.run.__code__:
            call = each.f_locals.get("self")
            break
    return Blockage(line=user or innermost, call=call, is_user_code=bool(user))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _described(call: OngoingCall | None) -> str:
    if call is None:
        return "A task outside of requests"
    return f"Request {call.request_id} ({call.label()})"
