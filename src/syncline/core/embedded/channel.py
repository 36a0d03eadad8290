"""A channel: messages over one Unix-domain socket, as length-prefixed pickle frames.

Sending never blocks: bytes that the socket does not accept wait in a backlog that the reactor
writes later. Large values are in shared memory, so a frame is rarely larger than 100 kB.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
from collections import deque
from typing import Any

from syncline.core.embedded.messages import Message

_HEADER = struct.Struct("<Q")
_RECEIVE_BYTES = 64 * 1024
_SOCKET_BUFFER_BYTES = 4 * 1024 * 1024


class ChannelClosedError(ConnectionError):
    """The process at the other end has closed the connection or ended."""


class Channel:
    """One end of a connection. Not thread-safe.

    Call `send` and `flush` under the owner's lock, and `receive` on one thread at a time.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            connection.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
        self._socket = connection
        self._outgoing: list[bytes] = []  # encoded, waiting for `flush`
        self._backlog: deque[memoryview] = deque()  # not accepted by the socket
        self._backlog_bytes = 0
        # one buffer for all reads: allocating one for each read costs more than the read
        self._view = memoryview(bytearray(_RECEIVE_BYTES))
        self._partial = bytearray()  # the beginning of an incomplete message
        self.closed = False

    def fileno(self) -> int:
        """Return the descriptor for the reactor; -1 when closed."""
        return self._socket.fileno()

    @property
    def congested(self) -> bool:
        """True if bytes wait for the socket to become writable."""
        return bool(self._backlog)

    def enqueue(self, message: Message) -> None:
        """Encode a message; the next `flush` sends it."""
        body = pickle.dumps(message, 5)
        self._outgoing.append(_HEADER.pack(len(body)) + body)

    def send(self, message: Message) -> None:
        """Encode a message and flush. A dead peer is detected by `receive`, not here."""
        self.enqueue(message)
        self.flush()

    def flush(self) -> None:
        """Write all queued messages to the socket, as far as it accepts them."""
        if self.closed:
            self._outgoing.clear()
        if not self._outgoing:
            return
        data = self._outgoing[0] if len(self._outgoing) == 1 else b"".join(self._outgoing)
        self._outgoing.clear()
        if self._backlog:
            self._queue(memoryview(data))
            return
        try:
            taken = self._socket.send(data)
        except BlockingIOError:
            taken = 0
        except OSError:
            return
        if taken < len(data):
            self._queue(memoryview(data)[taken:])

    def write_backlog(self) -> None:
        """Write as much of the backlog as the socket accepts."""
        while self._backlog:
            first = self._backlog[0]
            try:
                taken = self._socket.send(first)
            except BlockingIOError:
                return
            except OSError:
                self._backlog.clear()
                self._backlog_bytes = 0
                return
            self._backlog_bytes -= taken
            if taken < len(first):
                self._backlog[0] = first[taken:]
                return
            self._backlog.popleft()

    def drain(self, limit_bytes: int) -> None:
        """Block until at most `limit_bytes` are unsent or the peer is gone (backpressure)."""
        while self._backlog_bytes > limit_bytes and not self.closed:
            poller = select.poll()
            poller.register(self._socket, select.POLLOUT)
            poller.poll(1000)
            self.write_backlog()

    def receive(self) -> list[Message]:
        """Return all complete messages, in order.

        Raises ChannelClosedError when the peer is gone and nothing is left to read.
        """
        try:
            count = self._socket.recv_into(self._view)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelClosedError(str(error)) from error
        if not count:
            raise ChannelClosedError("the other process closed the connection")
        chunk = self._view[:count]
        if self._partial:
            self._partial += chunk
            messages, used = _decode(self._partial)
            del self._partial[:used]
        else:
            messages, used = _decode(chunk)
            if used < count:
                self._partial += chunk[used:]
        return messages

    def has_input(self) -> bool:
        """Return True if `receive` would read bytes or the end."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(0))

    def close(self) -> None:
        """Close this end; idempotent."""
        self.closed = True
        self._socket.close()
        self._view = memoryview(bytearray())  # frees the buffer; timers may keep this object

    def _queue(self, data: memoryview) -> None:
        self._backlog.append(data)
        self._backlog_bytes += len(data)


def _decode(data: bytearray | memoryview) -> tuple[list[Message], int]:
    """Return the complete frames at the start of `data`, and their length in bytes."""
    messages: list[Any] = []
    position, end = 0, len(data)
    unpack, loads = _HEADER.unpack_from, pickle.loads
    with memoryview(data) as view:
        while end - position >= 8:
            (length,) = unpack(data, position)
            stop = position + 8 + length
            if stop > end:
                break
            with view[position + 8 : stop] as body:
                messages.append(loads(body))
            position = stop
    return messages, position
