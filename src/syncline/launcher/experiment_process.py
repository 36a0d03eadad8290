"""`ExperimentProcess`: a program with a time budget, whose output is shown, logged and read."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO

from syncline import system

GRACE_S = 10.0
"""Seconds between SIGTERM and SIGKILL at the end of the budget."""
DRAIN_S = 5.0
"""Seconds to read on after the end, if a child process of the program holds its output open."""
TAIL_LINES = 20
_KILL_AFTER_INPUT = 'read -r group; read -r line; kill -s KILL -- "-$group"'
"""Shell script that reads the number of a process group, and kills it at the end of its input."""
_PR_SET_PDEATHSIG = 1


class ExperimentProcess:
    """Starts a program in its own process group. The group ends with the program, and with
    this process, also if that is killed.

    Args:
        command: The command line.
        variables: Environment variables.
        streams: Text streams that show its output and its errors.
        on_line: Called with each line of either, without its end; on two threads.

    Raises:
        OSError: The program cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        streams: tuple[IO[str], IO[str]],
        on_line: Callable[[str], None],
    ) -> None:
        self._on_line = on_line
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        # Its input ends with this process; the death signal reaches the program only.
        self._guard = subprocess.Popen(
            ("/bin/sh", "-c", _KILL_AFTER_INPUT),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._guard.stdin is not None
        try:
            self._process = subprocess.Popen(
                command,
                env=dict(variables),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
                preexec_fn=partial(_prepare, self._guard.stdin.fileno()),
            )
        except BaseException:
            self._guard.communicate()
            raise
        pairs = zip((self._process.stdout, self._process.stderr), streams, strict=True)
        self._threads = [
            threading.Thread(target=self._read, args=pair, name="syncline-output", daemon=True)
            for pair in pairs
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, budget_s: float | None) -> tuple[int, bool]:
        """Wait for the end; return the exit code, and whether the budget was used up. Then the
        whole group is ended.
        """
        try:
            code = self._process.wait(budget_s)
            is_over = False
        except subprocess.TimeoutExpired:
            code, is_over = self.end(), True
        for thread in self._threads:
            thread.join(DRAIN_S)
        self._guard.communicate()  # kills the rest of the group
        return code, is_over

    def end(self) -> int:
        """End the group, first with SIGTERM; return the exit code."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_S
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        self.signal(signal.SIGKILL)  # also its children
        return self._process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to the group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    @property
    def tail(self) -> str:
        """Last lines of output and errors."""
        return "\n".join(self._tail)

    def _read(self, source: IO[str], shown: IO[str]) -> None:
        for line in source:
            with suppress(OSError, ValueError):  # the reader of our output has gone
                shown.write(line)
                shown.flush()
            text = line.rstrip("\n")
            self._tail.append(text)
            self._on_line(text)


def _prepare(guard: int) -> None:
    """Prepare the process of the program: tell the guard its group before it starts others, and let
    the system kill it when its parent ends.
    """
    os.write(guard, b"%d\n" % os.getpid())
    if system.IS_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
