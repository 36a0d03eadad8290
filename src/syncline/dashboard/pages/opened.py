"""The runs that visitors look at: each is read once, however many look, and forgotten when the last
one leaves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from syncline import runs
from syncline.dashboard.pages.view import in_thread
from syncline.runs import Run, RunSummary
from syncline.runs.places import Place

T = TypeVar("T")

log = logging.getLogger("syncline.dashboard")

FRESH_S = 1.5
"""So long what was read is good: visitors of one run take turns of two seconds."""


@dataclass(kw_only=True)
class OpenRun:
    """A run that somebody looks at. While `lock` is held nobody reads on, so a page may look at it
    undisturbed.
    """

    run: Run
    """The reader."""
    summary: RunSummary
    """As of the last refresh."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held for a refresh and the update of a page after it."""
    refreshed: float = 0.0
    """When it was read last, by the monotonic clock."""
    visitors: int = 0
    """How many look."""

    async def refresh(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Read what was added, unless that was just done. With the lock held.

        Raises:
            ValueError: There is no run any more, or one that cannot be read.
            OSError: The directory cannot be read.
        """
        if clock() - self.refreshed >= FRESH_S:
            self.summary = await in_thread(_known, lambda: _read_on(self.run))
            self.refreshed = clock()


class OpenRuns:
    """All of them, by their paths. For the event loop."""

    def __init__(self) -> None:
        self._opened: dict[str, asyncio.Task[OpenRun]] = {}

    async def enter(self, place: Place) -> OpenRun:
        """The run in a directory, for one more visitor, who says `leave` at the end.

        Raises:
            ValueError: There is no run, or one that cannot be read.
            OSError: The directory cannot be read.
        """
        task = self._opened.get(place.path)
        if task is None:
            task = self._opened[place.path] = asyncio.create_task(_open(place))
        try:
            opened = await asyncio.shield(task)
        except BaseException:
            if task.done() and self._opened.get(place.path) is task:
                del self._opened[place.path]
            raise
        opened.visitors += 1
        self._opened[place.path] = task
        return opened

    def leave(self, opened: OpenRun) -> None:
        """One visitor less."""
        opened.visitors -= 1
        if opened.visitors == 0:
            self._opened.pop(opened.run.path, None)


async def _open(place: Place) -> OpenRun:
    run = await in_thread(_known, lambda: runs.open(place))
    return OpenRun(
        run=run, summary=await in_thread(_known, lambda: run.summary), refreshed=time.monotonic()
    )


def _known(read: Callable[[], T]) -> T:
    """What a reader gives. Whatever else goes wrong in it because of a record is a ValueError."""
    try:
        return read()
    except (ValueError, OSError):
        raise
    except Exception as error:
        log.exception("a record could not be read")
        raise ValueError(
            f"its record has an unknown form ({type(error).__name__}: {error})"
        ) from error


def _read_on(run: Run) -> RunSummary:
    run.refresh()
    return run.summary
