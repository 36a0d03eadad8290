"""Questions to running programs: a program offers answers about itself, and others of the same user
on this machine find it and ask.

A program listens on a Unix socket in a session's directory of mode 0700, never on a network.
`offer` opens it, and when the last offer is withdrawn, or the engine ends, it is closed and
removed. A forked child takes no part in what its parent offered. `programs` finds those that live;
sockets that killed ones left are refused by the system at once. The answering side is in
`control_point`.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from syncline import settings
from syncline.core import unix_sockets
from syncline.core.control_point import ANSWER_BYTES, SOCKET_NAME, Answer, ControlPoint
from syncline.core.embedded.session import (
    SESSION_PREFIX,
    Session,
    create_session,
    is_private,
    sessions_directory,
)

logger = logging.getLogger("syncline")

HELLO_S = 1.0
"""How long `programs` waits for all programs together to say what they answer for."""
ENGINE = "engine"
"""The subject of the engine that a program runs on this machine."""


class NobodyAnswers(ConnectionError):
    """The program has ended, does not answer in time, or does not answer for the subject (any
    more).
    """


class ActionFailed(RuntimeError):
    """The program answered with an error, whose text this is."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        """The name of the error's class in the program."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A living program of this user on this machine that listens."""

    pid: int
    socket: str
    """The path of its control socket."""
    command: tuple[str, ...]
    """Its command line; it may hold secrets that were passed as arguments. Empty where the system
    does not tell.
    """
    started: float
    """When the process began, in seconds since the epoch."""
    subjects: tuple[str, ...] | None
    """What it answers for; None where it did not say in time, because it is stopped or very
    busy.
    """


# -- the program that answers


class _Process:
    """What this process offers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.point: ControlPoint | None = None
        self.own_session: Session | None = None
        """The directory of a program without one that others would find."""
        self.is_warned = False


_process = _Process()


def offer(subject: str, answer: Answer, *, directory: Path | None = None) -> Callable[[], None]:
    """Answer questions about `subject`: `answer(action, arguments)` is called on threads of its
    own, several at a time if need be.

    Args:
        subject: Such as "engine", or "run:" and the path of a run. answer: Gives what JSON can
        hold; what it raises reaches the one who asked, as text. directory: The session's directory
        of an engine that this process runs, where the socket is made if others would find it there
            and there is none yet.

    Gives back what withdraws the offer, which may be called twice. Where no socket can be made, a
    warning says so and nothing is offered: a program does not fail because it cannot be looked at.
    """
    with _process.lock:
        try:
            point = _process.point or _open(directory)
        except (OSError, RuntimeError) as error:  # no room, no rights, no thread
            _warn(error)
            return lambda: None
        withdraw_from_point = point.offer(subject, answer)

    def withdraw() -> None:
        with _process.lock:
            if (
                _process.point is point and withdraw_from_point()
            ):  # neither closed meanwhile nor in a forked child
                _close()

    return withdraw


def close() -> None:
    """Withdraw everything that this process offers, close its socket and remove it."""
    with _process.lock:
        _close()


def _open(directory: Path | None) -> ControlPoint:
    base = sessions_directory(settings.temporary_directory())
    if directory is None or directory.parent != base:
        session = create_session(str(settings.temporary_directory()), shm_root=None)
        try:
            _process.point = ControlPoint(session.directory)
        except (OSError, RuntimeError):
            session.remove()
            raise
        _process.own_session = session
    else:
        _process.point = ControlPoint(directory)
    return _process.point


def _close() -> None:
    point, _process.point = _process.point, None
    session, _process.own_session = _process.own_session, None
    if point is not None:
        point.close()
    if session is not None:
        session.remove()


def _warn(error: Exception) -> None:
    if not _process.is_warned:
        _process.is_warned = True
        logger.warning(
            "this program cannot be looked at from outside (by the dashboard, `syncline status`, `syncline stack`): no control socket "
            "could be made below %s: %s. Set SYNCLINE_TMPDIR to a directory that can be written.",
            settings.temporary_directory(),
            error,
        )


def _after_fork_in_child() -> None:
    global _process
    parent, _process = _process, _Process()
    if parent.point is not None:
        parent.point.abandon()
    if parent.own_session is not None:
        parent.own_session.abandon()


atexit.register(close)
os.register_at_fork(after_in_child=_after_fork_in_child)


# -- those who ask


def programs(timeout_s: float = HELLO_S) -> list[Program]:
    """The living programs of this user on this machine that listen, the latest first; waits at most
    `timeout_s` for all together.

    Covers those whose temporary directory is this process's (`SYNCLINE_TMPDIR`).
    """
    base = sessions_directory(settings.temporary_directory())
    if not is_private(base):
        return []
    deadline = time.monotonic() + timeout_s
    asked: list[tuple[Path, socket.socket]] = []
    found: list[Program] = []
    try:
        for path in sorted(base.glob(f"{SESSION_PREFIX}*/{SOCKET_NAME}")):
            try:
                asked.append((path, _sent(path, {"subject": "", "action": "subjects"}, timeout_s)))
            except NobodyAnswers:
                continue
        for path, connection in asked:
            program = _program(path, connection, deadline)
            if program is not None:
                found.append(program)
    finally:
        for _, connection in asked:
            connection.close()
    return sorted(found, key=lambda program: -program.started)


def find(subject: str) -> Program | None:
    """The program that answers for `subject`; of several the one that began last."""
    return next((program for program in programs() if subject in (program.subjects or ())), None)


def ask(
    program: Program,
    subject: str,
    action: str,
    arguments: Mapping[str, Any] | None = None,
    timeout_s: float = 10.0,
) -> Any:
    """What a program answers.

    Raises:
        NobodyAnswers: It is gone, does not answer within `timeout_s`, or does not answer for the
        subject. ActionFailed: The answer is an error. TypeError: `arguments` holds what JSON
        cannot.
    """
    deadline = time.monotonic() + timeout_s
    question = {"subject": subject, "action": action, "arguments": dict(arguments or {})}
    who = f"process {program.pid}"
    with _sent(Path(program.socket), question, timeout_s) as connection:
        try:
            reply = _received(connection, deadline)
        except TimeoutError:
            raise NobodyAnswers(
                f"{who} did not answer within {timeout_s:g} s: it is very busy, or stopped."
            ) from None
        except (EOFError, OSError) as error:
            raise NobodyAnswers(
                f"{who} gave no answer: it has ended, or too many ask it at the same time ({error})."
            ) from error
        except ValueError as error:
            raise NobodyAnswers(
                f"{who} gave an answer that cannot be read, so it may run another version: {error}"
            ) from error
    if "failed" in reply:
        raise ActionFailed(str(reply["failed"]), str(reply.get("kind", "")))
    if "answer" not in reply:
        offered = ", ".join(map(repr, reply.get("unknown", ()))) or "nothing"
        raise NobodyAnswers(
            f"{who} does not answer for {subject!r} (any more); it answers for {offered}."
        )
    return reply["answer"]


def _sent(path: Path, question: Mapping[str, Any], timeout_s: float) -> socket.socket:
    """A connection on which the question is on its way."""
    line = json.dumps(question, separators=(",", ":")).encode() + b"\n"
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout_s)
        unix_sockets.by_short_name(path.parent, path.name, connection.connect)
        if unix_sockets.peer(connection).uid != os.getuid():
            raise PermissionError(f"{path} was made by another user")
        connection.sendall(line)
    except OSError as error:
        connection.close()
        raise NobodyAnswers(f"no program listens at {path} (any more): {error}") from error
    return connection


def _received(connection: socket.socket, deadline: float) -> dict[str, Any]:
    """The reply; raises what `receive_line` raises, and ValueError for what is none."""
    reply = json.loads(
        unix_sockets.receive_line(connection, limit_bytes=ANSWER_BYTES + 1, deadline=deadline)
    )
    if not isinstance(reply, dict):
        raise ValueError(f"a reply is a JSON object, not {type(reply).__name__}")
    return reply


def _program(path: Path, connection: socket.socket, deadline: float) -> Program | None:
    """Who listens, and what it answers for; None for one that has ended."""
    pid = unix_sockets.peer(connection).pid
    subjects: tuple[str, ...] | None
    try:
        process = psutil.Process(pid)
        started = process.create_time()
        command = tuple(process.cmdline())
        subjects = tuple(map(str, _received(connection, deadline).get("answer", ())))
    except TimeoutError:
        subjects = None
    except (
        psutil.Error,
        EOFError,
        OSError,
        ValueError,
    ):  # ended, maybe with a child that holds its socket
        return None
    return Program(pid=pid, socket=str(path), command=command, started=started, subjects=subjects)
