"""The answering side of the control point: a Unix socket, a thread that accepts, a thread for each
connection.

A connection carries one question and one answer, each a line of JSON:

    {"subject": "engine", "action": "actors", "arguments": {}}
    {"answer": …}  |  {"failed": "text", "kind": "ValueError"}  |  {"unknown": ["engine", "run:…"]}

The subject "" is the point itself, whose action "subjects" lists what it answers for. Everything is
bounded: who connects but asks nothing, or does not read the answer, is dropped after a limit, and
so is who is not this user. Asking is in `control`.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from syncline.core import unix_sockets

Answer = Callable[[str, Mapping[str, Any]], Any]
"""Called with (action, arguments), on a thread of its own for each question; gives what JSON can
hold. What it raises becomes text.
"""

SOCKET_NAME = "control.sock"
QUESTION_BYTES = 1 << 20
ANSWER_BYTES = 64 << 20
"""Longer answers are refused with an error that says so."""
QUESTION_S = 10.0
"""How long a client may take to ask."""
READING_S = 30.0
"""How long a client may take to read the answer."""
CONNECTIONS = 32
"""Questions answered at the same time; who comes beyond that is turned away."""
_BACKLOG = 64
_PAUSE_S = 0.1
"""Before the next try where a connection could not be accepted, because the process has too many
files open.
"""


class ControlPoint:
    """Answers questions about this process. Thread safe."""

    def __init__(
        self, directory: Path, *, question_s: float = QUESTION_S, reading_s: float = READING_S
    ) -> None:
        """Open the socket in `directory`, which only this user may enter. OSError, or RuntimeError
        for want of a thread.
        """
        self.directory = directory
        self._question_s = question_s
        self._reading_s = reading_s
        self._lock = threading.Lock()
        self._offers: list[tuple[str, Answer]] = []
        self._connections: set[socket.socket] = set()
        self._closed = threading.Event()
        self._listener = _listen(directory)
        try:
            threading.Thread(target=self._accept, name="syncline-control", daemon=True).start()
        except RuntimeError:
            self.close()
            self._listener.close()
            raise

    def offer(self, subject: str, answer: Answer) -> Callable[[], bool]:
        """Answer for a subject from now on; of several for one subject the last answers.

        What it gives back withdraws the offer, and says whether no other is left.
        """
        entry = (subject, answer)
        with self._lock:
            self._offers.append(entry)

        def withdraw() -> bool:
            with self._lock:
                self._offers = [known for known in self._offers if known is not entry]
                return not self._offers

        return withdraw

    def close(self) -> None:
        """Stop to listen and remove the socket. Answers that are being made are still sent."""
        if self._closed.is_set():
            return
        self._closed.set()
        try:
            (self.directory / SOCKET_NAME).unlink(missing_ok=True)
        except OSError:
            pass  # with a directory that somebody took away, it is gone too
        _shut(self._listener)

    def abandon(self) -> None:
        """In a forked child: close what was inherited, and leave the parent's socket where it
        is.
        """
        self._listener.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                self._closed.wait(_PAUSE_S)
                continue
            with self._lock:
                welcome = len(self._connections) < CONNECTIONS
                if welcome:
                    self._connections.add(connection)
            if welcome:
                threading.Thread(
                    target=self._serve, args=(connection,), name="syncline-answer", daemon=True
                ).start()
            else:
                connection.close()
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if unix_sockets.peer(connection).uid != os.getuid():
                return
            deadline = time.monotonic() + self._question_s
            question = unix_sockets.receive_line(
                connection, limit_bytes=QUESTION_BYTES, deadline=deadline
            )
            reply = self._reply(question)
            connection.settimeout(self._reading_s)
            connection.sendall(reply + b"\n")
        except (OSError, EOFError):
            pass  # it asked nothing, or went away: there is nobody to tell
        except ValueError as error:
            _try_to_send(connection, _failure(error))
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _reply(self, line: bytes) -> bytes:
        try:
            question = json.loads(line)
            subject, action, arguments = (
                question["subject"],
                question["action"],
                question.get("arguments") or {},
            )
            if not isinstance(arguments, dict):
                raise TypeError(f"the arguments are a {type(arguments).__name__}")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            return _failure(
                ValueError(
                    f"this is no question that a program of this version of syncline understands: {error!r}"
                )
            )
        try:
            if subject == "":
                return _encoded({"answer": self._of_itself(action)})
            answer = self._answer_for(subject)
            if answer is None:
                return _encoded({"unknown": self._subjects()})
            return _encoded({"answer": answer(action, arguments)})
        except Exception as error:
            return _failure(error)

    def _of_itself(self, action: str) -> list[str]:
        if action != "subjects":
            raise ValueError(f"the action {action!r} is unknown here: ask for 'subjects'")
        return self._subjects()

    def _subjects(self) -> list[str]:
        with self._lock:
            return list(dict.fromkeys(subject for subject, _ in self._offers))

    def _answer_for(self, subject: str) -> Answer | None:
        with self._lock:
            return next(
                (answer for known, answer in reversed(self._offers) if known == subject), None
            )


def _listen(directory: Path) -> socket.socket:
    """A listening socket. It gets its name when it listens, so that nobody who finds it is
    refused.
    """
    unnamed = f"{SOCKET_NAME}.new"
    listener = socket.socket(socket.AF_UNIX)  # not inherited by programs that this one starts
    try:
        unix_sockets.by_short_name(directory, unnamed, listener.bind)
        listener.listen(_BACKLOG)
        os.rename(directory / unnamed, directory / SOCKET_NAME)
    except OSError:
        listener.close()
        raise
    return listener


def _shut(listener: socket.socket) -> None:
    """Wake the thread that accepts, which then closes the socket."""
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # closed already


def _try_to_send(connection: socket.socket, reply: bytes) -> None:
    try:
        connection.settimeout(_PAUSE_S)
        connection.sendall(reply + b"\n")
    except OSError:
        pass  # it does not listen


def _encoded(reply: Mapping[str, Any]) -> bytes:
    text = json.dumps(reply, separators=(",", ":")).encode()
    if len(text) > ANSWER_BYTES:
        raise ValueError(
            f"the answer takes {len(text)} bytes, and at most {ANSWER_BYTES} are sent: ask for less"
        )
    return text


def _failure(error: Exception) -> bytes:
    return _encoded({"failed": str(error) or type(error).__name__, "kind": type(error).__name__})
