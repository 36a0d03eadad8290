"""`AsgiApplication`: the ASGI application of an ingress, and its lifespan."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import Any

from syncline.core.tracebacks import user_traceback
from syncline.serve.exceptions import RayServeException
from syncline.serve.ingress import BUILD_ASGI_APP
from syncline.serve.replica.http_calls import AsgiApp, Message

logger = logging.getLogger("syncline.serve")


class AsgiApplication:
    """An ASGI application with its lifespan. An application without lifespan events is fine."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self.state: dict[str, Any] | None = None
        """The state that the startup left for requests; None without one."""
        self._state: dict[str, Any] = {}
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._answers: asyncio.Queue[Message | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._error: BaseException | None = None

    @property
    def docs_path(self) -> str | None:
        """Path of the documentation that FastAPI makes, below the route prefix."""
        path: str | None = getattr(self.app, "docs_url", None)
        return path

    async def startup(self) -> None:
        """Run the startup; raises the application's error if it fails."""
        self._task = asyncio.ensure_future(self._run())
        answer = await self._event("lifespan.startup")
        if answer is None or answer["type"] == "lifespan.startup.complete":
            self.state = self._state or None
            return
        await self._task
        if self._error is not None:
            raise self._error
        raise RayServeException(
            f"the startup of the ASGI application failed: {answer.get('message', '')}"
        )

    async def shutdown(self) -> None:
        """Run the shutdown; raises the application's error if it fails."""
        if self._task is None or self._task.done():
            return
        await self._event("lifespan.shutdown")
        await self._task
        if self._error is not None:
            raise self._error

    async def _event(self, kind: str) -> Message | None:
        """Send an event and return the answer; None if the application has ended without one."""
        self._inbox.put_nowait({"type": kind})
        return await self._answers.get()

    async def _run(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self._state,
        }
        try:
            await self.app(scope, self._inbox.get, self._answers.put)
        except BaseException as error:
            self._error = error
            logger.debug("The lifespan ended with an error:\n%s", user_traceback(error))
        self._answers.put_nowait(None)


async def build_application(instance: object) -> AsgiApplication | None:
    """Return the application of an ingress after its startup; None for a plain deployment.

    Raises the errors of the function that builds it, and of its startup.
    """
    build = getattr(instance, BUILD_ASGI_APP, None)
    if not inspect.isclass(type(instance)) or not callable(build):
        return None
    app = build()
    app = await app if inspect.isawaitable(app) else app
    if not callable(app):
        raise RayServeException(
            f"`{BUILD_ASGI_APP}` of `{type(instance).__name__}` returned {app!r}, a "
            f"{type(app).__name__}: return an ASGI application"
        )
    application = AsgiApplication(app)
    await application.startup()
    return application
