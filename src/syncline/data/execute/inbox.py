"""What is to be done by the driver's thread, in order. Anything may put something in: tasks that
end, the program, a garbage collection.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeAlias

Thunk: TypeAlias = Callable[[], None]


class Inbox:
    """A queue that can be closed. It never waits for a lock, so that a finalizer may use it at any
    moment.
    """

    def __init__(self) -> None:
        self._thunks: SimpleQueue[Thunk] = SimpleQueue()
        self._is_closed = False

    def put(self, thunk: Thunk) -> None:
        """Have something done; nothing happens once the inbox is closed."""
        if not self._is_closed:
            self._thunks.put(thunk)

    def run(self, wait_s: float | None) -> None:
        """Do all that is there; if there is nothing, wait for it, up to `wait_s` seconds or without
        end.
        """
        try:
            self._thunks.get(timeout=wait_s)()
            while not self._is_closed:
                self._thunks.get_nowait()()
        except Empty:
            return

    def run_next(self) -> bool:
        """Do the next thing; False if there is none."""
        try:
            thunk = self._thunks.get_nowait()
        except Empty:
            return False
        thunk()
        return True

    def close(self) -> None:
        """Let go of what is there, and of what still comes."""
        self._is_closed = True
        try:
            while True:
                self._thunks.get_nowait()
        except Empty:
            return
