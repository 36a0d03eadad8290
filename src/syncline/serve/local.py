"""Local testing mode: applications that run in the calling process, without HTTP.

The modules that run them (`local_application`) are those of replicas; they load with the first one.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol, TypeVar

from syncline.serve.controller.messages import ApplicationTarget
from syncline.serve.routing.link import Link
from syncline.serve.routing.process_link import local_links

T = TypeVar("T")
_APPLICATION = "syncline.serve.local_application"


class LocalApplication(Protocol):
    """An application in this process; see `local_application.LocalApplication`."""

    link: Link
    deployments: tuple[str, ...]
    ingress: str

    async def start(self) -> None:
        """Start the deployments; raise RuntimeError if one fails."""

    async def stop(self) -> None:
        """End calls and instances."""


class _LocalServe:
    """The applications of this process and their loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self.apps: dict[str, LocalApplication] = {}

    def run(self, make: Callable[[asyncio.AbstractEventLoop], Coroutine[object, object, T]]) -> T:
        """Run a coroutine on the loop and wait for its result."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="serve-local", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(make(self._loop), self._loop).result()

    async def start(self, target: ApplicationTarget, loop: asyncio.AbstractEventLoop) -> None:
        """Start an application in the place of one of its name."""
        await self.stop(target.name)
        app: LocalApplication = importlib.import_module(_APPLICATION).LocalApplication(target, loop)
        local_links[target.name] = app.link  # constructors may call earlier deployments
        self.apps[target.name] = app
        try:
            await app.start()
        except BaseException:
            await self.stop(target.name)
            raise

    async def stop(self, name: str) -> None:
        """End an application, if it exists."""
        app = self.apps.pop(name, None)
        local_links.pop(name, None)
        if app is not None:
            await app.stop()


_local = _LocalServe()


def run_locally(target: ApplicationTarget) -> None:
    """Run an application in this process until it is deleted.

    Raises RuntimeError with the traceback of a constructor that fails.
    """
    _local.run(partial(_local.start, target))


def local_application(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the names of the ingress and of all deployments; None if it does not run here."""
    app = _local.apps.get(name)
    return None if app is None else (app.ingress, app.deployments)


def delete_locally(name: str) -> bool:
    """End an application; return False if it does not run in this process."""
    if name not in _local.apps:
        return False
    _local.run(lambda loop: _local.stop(name))
    return True


def shut_down_locally() -> None:
    """End all applications of this process."""
    for name in list(_local.apps):
        delete_locally(name)
