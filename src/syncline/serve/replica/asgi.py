"""`AsgiApplication`: the ASGI application of an ingress, and its lifespan."""

from __future__ import annotations

from typing import Any

from syncline.serve.replica.http_calls import AsgiApp


class AsgiApplication:
    """An ASGI application whose startup has completed."""

    def __init__(self, app: AsgiApp) -> None:
        self.app = app
        self.state: dict[str, Any] | None = None

    @property
    def docs_path(self) -> str | None:
        return None

    async def shutdown(self) -> None:
        """Shut down."""


async def build_application(instance: Any) -> AsgiApplication | None:
    """Return the application of an ingress after its startup; None for a plain deployment."""
    return None
