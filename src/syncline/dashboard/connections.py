"""How long a connection may take to say what it wants.

The web server waits for ever for a request that has begun, or never begins: whoever opens
connections and says nothing takes all that the system gives a process, and needs no token for that.
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_S = 10.0
"""So long, and at most twice as long after an answer, a whole request may take to come."""


class PatientProtocol(HttpToolsProtocol):
    """The web server's own, that closes a connection on which nothing is being answered and no
    request comes.
    """

    _answered: object = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection is there."""
        super().connection_made(cast(asyncio.Transport, transport))
        self._watch()

    def _watch(self) -> None:
        self.loop.call_later(REQUEST_S, self._look)

    def _look(self) -> None:
        if (
            self.transport.is_closing() or self.transport.get_protocol() is not self
        ):  # it is a websocket by now
            return
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if not is_answering and self.cycle is self._answered:
            self.transport.close()
            return
        self._answered = self.cycle
        self._watch()
