"""Interface between the frame and the page of a run, and the runs that are open.

The frame creates a `RunView` for each visitor of a run. Every two seconds it reads new data
(`run.refresh()`) in a thread and then calls the page's `update()` on the event loop, which reads
`view.run` and sends what changed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec, Protocol, TypeVar
from urllib.parse import quote

from syncline import runs
from syncline.dashboard import run_control
from syncline.runs import Run, RunSummary
from syncline.runs.run_storage import StorageDirectory

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Visit:
    """Run that a visitor requests, and the visitor's permissions."""

    storage: int
    """Number of the storage path in the dashboard's URLs."""
    directory: str
    """Name of the run directory."""
    may_act: bool
    """True if the visitor gave the token. Otherwise pages offer no actions (`widgets.action`)."""
    address: str | None = None
    """Cluster to search for the run, if the user specified one."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the address, which choose a part of the run."""


@dataclass(frozen=True, kw_only=True)
class RunView(Visit):
    """One visitor's view of one run."""

    run: Run
    """Reader of the run; the frame refreshes it, the page only reads it."""
    """Cluster to search for the run, if the user specified one."""

    def live(self) -> run_control.LiveRun | None:
        """Return a client of the running run; None if it is not reachable. Blocks: use
        `await in_thread(view.live)`.
        """
        return run_control.reach(self.run, self.address) if self.may_act else None

    def url_of_file(self, name: str) -> str:
        """Return the URL of a file of the run: "profiles/…" opens, "logs/…" is downloaded."""
        return url_of(self.storage, self.directory, "files", name)


class RunPage(Protocol):
    """Page for one kind of run. The constructor creates its elements below the run's header."""

    def __init__(self, view: RunView) -> None: ...

    def update(self) -> None:
        """Show the current state of `view.run`. Runs on the event loop: must not block."""


def url_of(storage: int, directory: str, what: str = "run", file: str = "") -> str:
    """Return the URL of a run or of a file in it, with all parts quoted."""
    below = "".join(f"/{_quoted(part)}" for part in file.split("/")) if file else ""
    return f"/{what}/{storage}/{_quoted(directory)}{below}"


def _quoted(part: str) -> str:
    return quote(part.encode("utf-8", "surrogateescape"), safe="")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a blocking function in a daemon thread, which does not delay the end of the dashboard;
    return its result.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():  # the page is gone
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = function(*args, **kwargs)
        except Exception as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the dashboard has ended

    threading.Thread(target=work, daemon=True, name="dashboard-reader").start()
    return await future


log = logging.getLogger("syncline.dashboard")

FRESH_S = 1.5
"""Seconds for which a refresh is shared by all visitors of a run."""


@dataclass(kw_only=True)
class OpenRun:
    """A run with at least one visitor. Nothing is read while `lock` is held, so a page can use the
    reader undisturbed.
    """

    run: Run
    """Reader of the run."""
    summary: RunSummary
    """Summary at the last refresh."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a refresh and the page update after it."""
    refreshed: float = 0.0
    """Monotonic time of the last refresh."""
    visitors: int = 0
    """Number of visitors."""

    async def refresh(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Read new data unless that was done recently. Caller holds `lock`.

        Raises:
            ValueError: The run no longer exists or its record is unreadable.
            OSError: The directory cannot be read.
        """
        if clock() - self.refreshed >= FRESH_S:
            self.summary = await in_thread(_checked, lambda: _refresh_run(self.run))
            self.refreshed = clock()


class OpenRuns:
    """Runs with visitors by path: each is read once for all its visitors. For the event loop."""

    def __init__(self) -> None:
        self._opened: dict[str, asyncio.Task[OpenRun]] = {}

    async def enter(self, place: StorageDirectory) -> OpenRun:
        """Return the run in a directory for one more visitor, who must call `leave`.

        Raises:
            ValueError: There is no run, or its record is unreadable.
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
        """Remove one visitor; drop the run after the last one."""
        opened.visitors -= 1
        if opened.visitors == 0:
            self._opened.pop(opened.run.path, None)


async def _open(place: StorageDirectory) -> OpenRun:
    run = await in_thread(_checked, lambda: runs.open(place))
    return OpenRun(
        run=run, summary=await in_thread(_checked, lambda: run.summary), refreshed=time.monotonic()
    )


def _checked(read: Callable[[], T]) -> T:
    """Call a reader; convert its unexpected errors, caused by a broken record, to ValueError."""
    try:
        return read()
    except (ValueError, OSError):
        raise
    except Exception as error:
        log.exception("Cannot read a record")
        raise ValueError(
            f"The record has an unknown form ({type(error).__name__}: {error})"
        ) from error


def _refresh_run(run: Run) -> RunSummary:
    run.refresh()
    return run.summary
