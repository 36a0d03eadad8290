"""A thread beside the training function that looks at it ten times a second: for hangs, and for the
time in collective operations.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from syncline.train.workers.messages import Stuck
from syncline.train.workers.watchdog import Judge, Look, communicates, is_in_collective

LOOK_S = 0.1
TELL_S = 5.0
"""How often the controller hears where the time went and what the process uses."""
FIRST_TELL_S = 1.0
"""When it hears so first: somebody may be looking, and much is to be seen of how a run begins."""


class Observer:
    """Looks at one thread until it ends."""

    def __init__(
        self, *, hang_limit_s: float, say: Callable[[Stuck], None], tell: Callable[[], None]
    ) -> None:
        """`say` hears of hangs; `tell` is called every few seconds. Both on the observer's own
        thread.
        """
        self._judge = Judge(hang_limit_s)
        self._say = say
        self._tell = tell
        self.communicated_s = 0.0
        """How long the thread was in calls of `torch.distributed`, to about a look's length."""

    def follow(self, thread: threading.Thread) -> None:
        """Look at a thread that has started, from a new one."""
        threading.Thread(
            target=self._look, args=(thread,), name="syncline-observer", daemon=True
        ).start()

    def _look(self, thread: threading.Thread) -> None:
        assert thread.ident is not None, "the thread has started"
        last = time.monotonic()
        tell_at = last + FIRST_TELL_S
        while True:
            thread.join(LOOK_S)
            if not thread.is_alive():  # its clock goes with it
                return
            now = time.monotonic()
            frame = sys._current_frames().get(thread.ident)
            if communicates(frame):
                self.communicated_s += now - last
            message = self._judge.consider(
                Look(_cpu_s(thread.ident, now), is_in_collective(frame)), now
            )
            if message is not None:
                self._say(message)
            if now >= tell_at:
                tell_at = now + TELL_S
                self._tell()
            last = now


def _cpu_s(thread: int, otherwise: float) -> float:
    """CPU time of a thread; where threads have no clocks of their own, a value that changes."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return otherwise
    return time.clock_gettime(time.pthread_getcpuclockid(thread))
