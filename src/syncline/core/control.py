"""Requests to running programs of the same user on this machine, and this process's own handlers.

A program listens on a Unix socket in a session directory of mode 0700, never on a network. `serve`
opens the socket; it is closed and removed with the last registration, or when the engine ends. A
forked child does not inherit registrations. `programs` finds living programs; the system refuses
connections to sockets of killed ones. `control_server` has the answering side.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline import settings
from syncline.core import host
from syncline.core.control_server import (
    RESPONSE_BYTES,
    SOCKET_NAME,
    Arguments,
    ControlServer,
    Handler,
)
from syncline.core.embedded.session_directories import (
    SESSION_PREFIX,
    SessionDirectories,
    create_session,
    is_private,
    sessions_directory,
)
from syncline.optional import deferred
from syncline.records import dataclass

if TYPE_CHECKING:
    import psutil
else:
    psutil = deferred("psutil")

logger = logging.getLogger("syncline")

DISCOVERY_S = 1.0
"""Seconds that `programs` waits for all programs together."""
ENGINE = "engine"
"""Subject of a program's own engine."""


class ProgramUnreachable(ConnectionError):
    """The program has ended, is too busy to answer, or has no handler for the subject."""


class ActionFailed(RuntimeError):
    """The program answered with an error, which is the message."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        """Class name of the error in the program."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A living program of this user on this machine with a control socket."""

    pid: int
    socket: str
    """Path of its control socket."""
    command: tuple[str, ...]
    """Its command line, which may contain secrets; empty if it is not readable."""
    started: float
    """Start time of the process in seconds since the epoch."""
    subjects: tuple[str, ...] | None
    """Subjects that it handles; None if it is stopped or too busy to answer."""


# -- this process as a server


class _Process:
    """Control socket of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.server: ControlServer | None = None
        self.own_session: SessionDirectories | None = None
        """Session directory created for the socket of a program without an engine."""
        self.is_warned = False


_process = _Process()


def serve(subject: str, handler: Handler, *, directory: Path | None = None) -> Callable[[], None]:
    """Handle requests about `subject`; return a function that withdraws the handler.

    Args:
        subject: Such as "engine", or "run:" and the path of a run.
        handler: `handler(action, arguments)` runs on its own threads, concurrently for concurrent
            requests. Its result must be JSON-serializable; the text of its error reaches the
            client.
        directory: Session directory of this process's engine. The socket is created there if other
            programs search the directory and no socket is open yet.

    The returned function may be called twice. If no socket can be created, a warning is logged and
    nothing is served, because this must not fail the program.
    """
    with _process.lock:
        try:
            server = _process.server or _open(directory)
        except (OSError, RuntimeError) as error:  # no space, no permission, no thread
            _warn(error)
            return lambda: None
        withdraw_handler = server.register(subject, handler)

    def withdraw() -> None:
        with _process.lock:
            # False if the server was closed meanwhile, and in a forked child.
            if _process.server is server and withdraw_handler():
                _close()

    return withdraw


def close() -> None:
    """Withdraw all handlers of this process, and close and remove its socket."""
    with _process.lock:
        _close()


def _open(directory: Path | None) -> ControlServer:
    base = sessions_directory(settings.temporary_directory())
    if directory is None or directory.parent != base:
        session = create_session(str(settings.temporary_directory()), shm_root=None)
        try:
            _process.server = ControlServer(session.directory)
        except (OSError, RuntimeError):
            session.remove()
            raise
        _process.own_session = session
    else:
        _process.server = ControlServer(directory)
    return _process.server


def _close() -> None:
    server, _process.server = _process.server, None
    session, _process.own_session = _process.own_session, None
    if server is not None:
        server.close()
    if session is not None:
        session.remove()


def _warn(error: Exception) -> None:
    if not _process.is_warned:
        _process.is_warned = True
        logger.warning(
            "the dashboard, `syncline status` and `syncline stack` cannot inspect this program: "
            "no control socket could be created below %s: %s. Set SYNCLINE_TMPDIR to a writable "
            "directory.",
            settings.temporary_directory(),
            error,
        )


def _after_fork_in_child() -> None:
    global _process
    parent, _process = _process, _Process()
    if parent.server is not None:
        parent.server.abandon()
    if parent.own_session is not None:
        parent.own_session.abandon()


atexit.register(close)
os.register_at_fork(after_in_child=_after_fork_in_child)


# -- clients


def programs(timeout_s: float = DISCOVERY_S) -> list[Program]:
    """Return the living programs of this user on this machine, the latest first.

    Waits at most `timeout_s` for all together. Finds programs with the same temporary directory
    (`SYNCLINE_TMPDIR`) as this process.
    """
    base = sessions_directory(settings.temporary_directory())
    if not is_private(base):
        return []
    deadline = time.monotonic() + timeout_s
    connections: list[tuple[Path, socket.socket]] = []
    found: list[Program] = []
    try:
        for path in sorted(base.glob(f"{SESSION_PREFIX}*/{SOCKET_NAME}")):
            try:
                connections.append(
                    (path, _send(path, {"subject": "", "action": "subjects"}, timeout_s))
                )
            except ProgramUnreachable:
                continue
        for path, connection in connections:
            program = _program(path, connection, deadline)
            if program is not None:
                found.append(program)
    finally:
        for _, connection in connections:
            connection.close()
    return sorted(found, key=lambda program: -program.started)


def find(subject: str) -> Program | None:
    """Return the latest program that handles `subject`, if any."""
    return next((program for program in programs() if subject in (program.subjects or ())), None)


def request(
    program: Program,
    subject: str,
    action: str,
    arguments: Arguments | None = None,
    timeout_s: float = 10.0,
) -> Any:
    """Send a request to a program and return the answer.

    Raises:
        ProgramUnreachable: The program has ended, does not answer within `timeout_s`, or does not
            handle the subject.
        ActionFailed: The answer is an error.
        TypeError: `arguments` are not JSON-serializable.
    """
    deadline = time.monotonic() + timeout_s
    message = {"subject": subject, "action": action, "arguments": dict(arguments or {})}
    who = f"process {program.pid}"
    with _send(Path(program.socket), message, timeout_s) as connection:
        try:
            reply = _receive(connection, deadline)
        except TimeoutError:
            raise ProgramUnreachable(
                f"{who} did not answer within {timeout_s:g} s: it is very busy, or stopped."
            ) from None
        except (EOFError, OSError) as error:
            raise ProgramUnreachable(
                f"{who} gave no answer: it has ended, or has too many clients ({error})."
            ) from error
        except ValueError as error:
            raise ProgramUnreachable(
                f"{who} gave an unreadable answer, so it may run another version: {error}"
            ) from error
    if "failed" in reply:
        raise ActionFailed(str(reply["failed"]), str(reply.get("kind", "")))
    if "answer" not in reply:
        handled = ", ".join(map(repr, reply.get("unknown", ()))) or "nothing"
        raise ProgramUnreachable(
            f"{who} does not handle {subject!r} (any more); it handles {handled}."
        )
    return reply["answer"]


def _send(path: Path, message: Arguments, timeout_s: float) -> socket.socket:
    """Connect, send the request, and return the connection."""
    line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        with host.short_socket_path(path) as short:
            connection.connect(short)
        if host.peer(connection, path).uid != os.getuid():
            raise PermissionError(f"another user created {path}")
        connection.sendall(line)
    except OSError as error:
        connection.close()
        raise ProgramUnreachable(f"no program listens at {path} (any more): {error}") from error
    return connection


def _receive(connection: socket.socket, deadline: float) -> dict[str, Any]:
    """Receive the reply; ValueError if it is malformed, else the errors of `receive_line`."""
    reply = json.loads(
        host.receive_line(connection, limit_bytes=RESPONSE_BYTES + 1, deadline=deadline)
    )
    if not isinstance(reply, dict):
        raise ValueError(f"a reply is a JSON object, not {type(reply).__name__}")
    return reply


def _program(path: Path, connection: socket.socket, deadline: float) -> Program | None:
    """Identify the listening process and its subjects; None if it has ended."""
    pid = host.peer(connection, path).pid
    subjects: tuple[str, ...] | None
    try:
        process = psutil.Process(pid)
        started = process.create_time()
        command = tuple(process.cmdline())
        subjects = tuple(map(str, _receive(connection, deadline).get("answer", ())))
    except TimeoutError:
        subjects = None
    except (psutil.Error, EOFError, OSError, ValueError):
        return None  # ended; a child may still hold its socket
    return Program(pid=pid, socket=str(path), command=command, started=started, subjects=subjects)
