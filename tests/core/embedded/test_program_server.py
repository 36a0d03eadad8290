"""A server that forks programs, in a process of its own."""

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from syncline.core.embedded import fork_server_messages, program_server
from syncline.core.embedded.fork_server_messages import WorkerEnded, WorkerStarted

LIMIT_S = 30.0


class Driver:
    """The driver's end of a server."""

    def __init__(self, connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
        self.connection = connection
        self.process = process

    def launch(self, work: program_server.Work, others: tuple[int, ...] = ()) -> int:
        """Start a program; return the descriptor of its output."""
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDONLY)
        program_server.launch(self.connection, 1, work, (null, writer, writer), others)
        os.close(null)
        os.close(writer)
        return reader

    def receive(self) -> object:
        received = fork_server_messages.receive(self.connection)
        assert received is not None
        return received[0]

    def run(self, work: program_server.Work, others: tuple[int, ...] = ()) -> tuple[int, str]:
        """Run a program to its end; return its exit code and output."""
        with os.fdopen(self.launch(work, others), "r") as output:
            assert isinstance(self.receive(), WorkerStarted)
            text = output.read()
        ended = self.receive()
        assert isinstance(ended, WorkerEnded)
        return os.waitstatus_to_exitcode(ended.status), text


@contextlib.contextmanager
def serving(**variables: str) -> Iterator[Driver]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(LIMIT_S)
    code = program_server.interpreter_code("main", theirs.fileno(), ("colorsys", "no_such_module"))
    process = subprocess.Popen(
        [sys.executable, "-c", code], pass_fds=[theirs.fileno()], env={**os.environ, **variables}
    )
    theirs.close()
    try:
        yield Driver(ours, process)
    finally:
        ours.close()
        assert process.wait(LIMIT_S) == 0


@pytest.fixture(params=["fork", "spawn"])
def driver(request):
    with serving(SYNCLINE_START_METHOD=request.param) as found:
        yield found


def test_program_gets_its_streams_and_descriptors(driver):
    reader, writer = os.pipe()
    code, text = driver.run(functools.partial(print, "hello"), (writer,))
    os.close(writer)
    assert os.read(reader, 1) == b""  # the server has closed its copy
    os.close(reader)
    assert code == 0
    assert text.startswith("hello [")
    assert text.count(",") == 0


def test_exit_codes_and_errors_are_those_of_an_interpreter(driver):
    assert driver.run(sys.exit) == (1, "[]\n")
    code, text = driver.run(functools.partial(int, "x"))
    assert code == 1
    assert "Traceback (most recent call last):" in text
    assert "TypeError" in text


def started(driver: Driver) -> int:
    """Start a program that waits; return its process id."""
    os.close(driver.launch(signal.sigwait))  # for no signal
    message = driver.receive()
    assert isinstance(message, WorkerStarted)
    return message.pid


def test_killed_program_is_reported():
    with serving() as driver:
        pid = started(driver)
        os.kill(pid, signal.SIGKILL)
        ended = driver.receive()
        assert isinstance(ended, WorkerEnded)
        assert (ended.pid, os.waitstatus_to_exitcode(ended.status)) == (pid, -signal.SIGKILL)


def test_programs_end_with_the_driver():
    with serving() as driver:
        pids = [started(driver), started(driver)]
        assert all(os.getsid(pid) == pid for pid in pids)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
