"""Server of the control socket: an accepting thread, and a thread for each connection.

A connection carries one request and one reply, each a line of JSON:

    {"subject": "engine", "action": "actors", "arguments": {}}
    {"answer": …}  |  {"failed": "text", "kind": "ValueError"}  |  {"unknown": ["engine", "run:…"]}

The subject "" is the server itself; its action "subjects" lists the handled subjects. Number, size
and time are bounded: the server drops clients that send no request or do not read the reply, and
clients of other users. `control` has the client side.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from syncline.core import host
from syncline.core.engine import LISTED, Engine
from syncline.core.metrics import publisher

Arguments = Mapping[str, Any]
Handler = Callable[[str, Arguments], object]
"""Called with (action, arguments) on a thread per request; returns a JSON-serializable value.

The text of its error is sent to the client.
"""

SOCKET_NAME = "control.sock"
REQUEST_BYTES = 1 << 20
RESPONSE_BYTES = 64 << 20
"""Maximum size of a reply; a longer one is replaced by an error."""
REQUEST_TIMEOUT_S = 10.0
"""Seconds for a client to send its request."""
RESPONSE_TIMEOUT_S = 30.0
"""Seconds for a client to read the reply."""
MAX_CONNECTIONS = 32
"""Concurrent requests; further connections are closed."""
_BACKLOG = 64
_RETRY_S = 0.1
"""Seconds before the next `accept` after an error, such as too many open files."""


class EngineHandler:
    """Handler of the subject "engine": nodes, resources, actors, tasks, metrics and statistics."""

    def __init__(self, engine: Engine) -> None:
        self._actions: dict[str, Callable[[Arguments], object]] = {
            "nodes": lambda _: engine.nodes(),
            "resources": lambda _: {
                "total": engine.cluster_resources(),
                "available": engine.available_resources(),
            },
            "actors": lambda arguments: asdict(engine.actors(_limit(arguments))),
            "tasks": lambda arguments: asdict(engine.tasks(_limit(arguments))),
            "metrics": lambda _: publisher.text(engine),
            "statistics": lambda _: {
                part: asdict(counters) for part, counters in engine.statistics().items()
            },
        }

    def __call__(self, action: str, arguments: Arguments) -> object:
        if action not in self._actions:
            raise ValueError(
                f"the action {action!r} is unknown to this program's engine; "
                f"it has {', '.join(self._actions)}"
            )
        return self._actions[action](arguments)


def _limit(arguments: Arguments) -> int:
    limit = arguments.get("limit", LISTED)
    if not isinstance(limit, int) or limit < 0:
        raise ValueError(
            f"limit={limit!r} is not a number of rows: give 0 or more, or leave it out for {LISTED}"
        )
    return limit


class ControlServer:
    """Serves requests about this process. Thread safe."""

    def __init__(
        self,
        directory: Path,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        response_timeout_s: float = RESPONSE_TIMEOUT_S,
    ) -> None:
        """Open the socket in `directory`, which only this user may enter.

        Raises OSError, or RuntimeError if no thread can be started.
        """
        self.directory = directory
        self._request_timeout_s = request_timeout_s
        self._response_timeout_s = response_timeout_s
        self._lock = threading.Lock()
        self._handlers: list[tuple[str, Handler]] = []
        self._connections: set[socket.socket] = set()
        self._closed = threading.Event()
        self._listener = _listen(directory)
        try:
            threading.Thread(target=self._accept, name="syncline-control", daemon=True).start()
        except RuntimeError:
            self.close()
            self._listener.close()
            raise

    def register(self, subject: str, handler: Handler) -> Callable[[], bool]:
        """Add a handler; of several for one subject, the latest is called.

        The returned function removes the handler and returns True if none is left.
        """
        entry = (subject, handler)
        with self._lock:
            self._handlers.append(entry)

        def withdraw() -> bool:
            with self._lock:
                self._handlers = [known for known in self._handlers if known is not entry]
                return not self._handlers

        return withdraw

    def close(self) -> None:
        """Stop listening and remove the socket; replies in progress are still sent."""
        if self._closed.is_set():
            return
        self._closed.set()
        try:
            host.withdraw_listener(self.directory / SOCKET_NAME)
        except OSError:
            pass  # somebody removed the directory
        _shut(self._listener)

    def abandon(self) -> None:
        """In a forked child: close inherited descriptors; the parent's socket stays."""
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._closed.wait(_RETRY_S)
                continue
            with self._lock:
                accepted = len(self._connections) < MAX_CONNECTIONS
                if accepted:
                    self._connections.add(connection)
            if accepted:
                threading.Thread(
                    target=self._serve,
                    args=(connection,),
                    name="syncline-control-reply",
                    daemon=True,
                ).start()
            else:
                connection.close()
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if host.peer(connection).uid != os.getuid():
                return
            deadline = time.monotonic() + self._request_timeout_s
            request = host.receive_line(connection, limit_bytes=REQUEST_BYTES, deadline=deadline)
            reply = self._reply(request)
            connection.settimeout(self._response_timeout_s)
            connection.sendall(reply + b"\n")
        except (OSError, EOFError):
            pass  # no request, or the client has left
        except ValueError as error:
            _try_to_send(connection, _failure(error))
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _reply(self, line: bytes) -> bytes:
        try:
            request = json.loads(line)
            subject, action = request["subject"], request["action"]
            arguments = request.get("arguments") or {}
            if not isinstance(arguments, dict):
                raise TypeError(f"the arguments are a {type(arguments).__name__}")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            return _failure(
                ValueError(f"this version of syncline does not understand the request: {error!r}")
            )
        try:
            if subject == "":
                return _encoded({"answer": self._own_reply(action)})
            handler = self._handler_of(subject)
            if handler is None:
                return _encoded({"unknown": self._subjects()})
            return _encoded({"answer": handler(action, arguments)})
        except Exception as error:
            return _failure(error)

    def _own_reply(self, action: str) -> list[str]:
        if action != "subjects":
            raise ValueError(f"the action {action!r} is unknown: request 'subjects'")
        return self._subjects()

    def _subjects(self) -> list[str]:
        with self._lock:
            return list(dict.fromkeys(subject for subject, _ in self._handlers))

    def _handler_of(self, subject: str) -> Handler | None:
        with self._lock:
            return next(
                (handler for known, handler in reversed(self._handlers) if known == subject), None
            )


def _listen(directory: Path) -> socket.socket:
    """Open a socket that gets its final name once it listens, so no client is refused."""
    unnamed = directory / f"{SOCKET_NAME}.new"
    listener = socket.socket(socket.AF_UNIX)  # not inherited by programs that this one starts
    try:
        with host.short_socket_path(unnamed) as path:
            listener.bind(path)
        listener.listen(_BACKLOG)
        host.publish_listener(directory / SOCKET_NAME)
        os.rename(unnamed, directory / SOCKET_NAME)
    except OSError:
        listener.close()
        raise
    return listener


def _shut(listener: socket.socket) -> None:
    """Wake the accepting thread, which then closes the socket."""
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # already closed


def _try_to_send(connection: socket.socket, reply: bytes) -> None:
    try:
        connection.settimeout(_RETRY_S)
        connection.sendall(reply + b"\n")
    except OSError:
        pass  # the client does not read


def _encoded(reply: Mapping[str, object]) -> bytes:
    text = json.dumps(reply, separators=(",", ":")).encode()
    if len(text) > RESPONSE_BYTES:
        raise ValueError(
            f"the reply has {len(text)} bytes, but at most {RESPONSE_BYTES} are sent: request less"
        )
    return text


def _failure(error: Exception) -> bytes:
    return _encoded({"failed": str(error) or type(error).__name__, "kind": type(error).__name__})
