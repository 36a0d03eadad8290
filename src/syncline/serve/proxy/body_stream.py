"""`BodyStream`: bytes of a client to the replica, in BODY frames under a window.

It carries the rest of long request bodies, and everything that a WebSocket client sends. The
replica grants the window as its user code reads; without one the client's socket is not read.

The pieces that were sent are kept until the replica's first grant, so that the request can be sent
to another replica if the first one is busy or dies before it.
"""

from __future__ import annotations

from collections import deque

from syncline.serve.routing.link import Link
from syncline.serve.routing.router import Call
from syncline.serve.wire.frames import WINDOW_BYTES, Kind


class BodyStream:
    """Sends the body of one call. After each change, `is_blocked` says whether to read on."""

    __slots__ = (
        "_call",
        "_has_ended",
        "_is_open",
        "_kept",
        "_link",
        "_sent_end",
        "_waiting",
        "_window",
    )

    def __init__(self, link: Link, call: Call, *, is_open: bool) -> None:
        """`is_open=False` keeps all bytes until `open`."""
        self._link = link
        self._call = call
        self._is_open = is_open
        self._window = 0  # nothing is sent before the call is at a replica
        self._waiting: deque[bytes] = deque()
        self._kept: list[bytes] | None = []
        self._has_ended = False
        self._sent_end = False

    @property
    def is_blocked(self) -> bool:
        """True if no more bytes should be read from the client."""
        return bool(self._waiting) or (self._is_open and self._window <= 0)

    def write(self, piece: bytes) -> None:
        """Send a piece, now or when the window allows."""
        self._waiting.append(piece)
        self._pump()

    def end(self) -> None:
        """Send the end of the body after all pieces."""
        self._has_ended = True
        self._pump()

    def open(self) -> None:
        """Send the pieces that were written until now."""
        self._is_open = True
        self._pump()

    def on_started(self) -> None:
        """Begin, or begin again at another replica."""
        if self._kept:
            self._waiting.extendleft(reversed(self._kept))
            self._kept = []
        self._window = WINDOW_BYTES
        self._sent_end = False
        self._pump()

    def on_window(self, granted: int) -> None:
        """Use a grant of the replica."""
        if self._kept:
            self._call.can_resend = False
        self._kept = None
        self._window += granted
        self._pump()

    def _pump(self) -> None:
        while self._waiting and self._window > 0 and self._is_open:
            piece = self._waiting.popleft()
            if len(piece) > self._window:
                self._waiting.appendleft(piece[self._window :])
                piece = piece[: self._window]
            self._window -= len(piece)
            if self._kept is not None:
                self._kept.append(piece)
            else:
                self._call.can_resend = False
            self._link.send(self._call, Kind.BODY, piece)
        if self._has_ended and not self._sent_end and not self._waiting and self._is_at_replica:
            self._sent_end = True
            self._link.send(self._call, Kind.BODY)

    @property
    def _is_at_replica(self) -> bool:
        return self._call.replica_id != "" and self._is_open
