"""What the page of a run is given, and what it must be.

The frame makes one `RunView` for each visitor of a run. It reads on what the run has written
(`run.refresh()`) in a thread every two seconds and calls `update()` of the page afterwards, on the
event loop: `update` reads `view.run`, and sends what is different.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar
from urllib.parse import quote

from syncline.dashboard import live
from syncline.runs import Run

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class RunView:
    """One visitor's view of one run."""

    run: Run
    """The reader; the frame refreshes it, the page only looks."""
    may_act: bool
    """Whether the visitor gave the token: without it a page offers no action (`look.action`) and
    its handlers do nothing.
    """
    storage: int
    """Number of the storage path in this dashboard's addresses."""
    directory: str
    """Name of the run's directory below it."""
    address: str | None = None
    """The cluster to look for the run on, if the user named one."""

    def live(self) -> live.LiveRun | None:
        """The run's running side, or None if it cannot be reached. Takes a moment: `await
        in_thread(view.live)`.
        """
        return live.reach(self.run, self.address) if self.may_act else None

    def url_of_file(self, name: str) -> str:
        """Address of a file of the run that the dashboard gives out: "profiles/…" opens, "logs/…"
        is downloaded.
        """
        return url_of(self.storage, self.directory, "files", name)


class RunPage(Protocol):
    """A page for one kind of run. The constructor makes its elements where it is called; they lie
    below the run's name and state.
    """

    def __init__(self, view: RunView) -> None: ...

    def update(self) -> None:
        """Show what `view.run` knows by now. Called on the event loop: no reading of files, no
        waiting.
        """


def url_of(storage: int, directory: str, what: str = "run", file: str = "") -> str:
    """The address of a run, or of a file in it; every part of it is quoted."""
    below = "".join(f"/{_quoted(part)}" for part in file.split("/")) if file else ""
    return f"/{what}/{storage}/{_quoted(directory)}{below}"


def _quoted(part: str) -> str:
    return quote(part.encode("utf-8", "surrogateescape"), safe="")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a function that takes a while, called in a thread that does not keep the
    dashboard from ending.
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
            pass  # the dashboard has ended meanwhile

    threading.Thread(target=work, daemon=True, name="dashboard-reader").start()
    return await future
