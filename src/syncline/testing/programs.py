"""Programs as subprocesses: run one, stop it at a printed marker, and find its leftovers.

A program runs in its own temporary directory, with an environment variable that all of its
processes inherit, so they can be found even after their parents have died. Leftover files are
searched in the program's temporary directory, and in `/dev/shm` among the files that appeared while
it ran.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from syncline import settings
from syncline.testing.waiting import GENEROUS_S, eventually

MARK = "SYNCLINE_TEST_PROGRAM"
SHARED_MEMORY = Path("/dev/shm")
SOURCE_DIRECTORY = str(Path(__file__).resolve().parents[2])
SLOWNESS = 6
"""Factor by which limits are extended, for slow or busy machines."""
LAST_OUTPUT_S = 5.0
"""Seconds to wait for the end of an ended program's output; a surviving child keeps it open."""


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """Processes and files that a program has left behind."""

    processes: tuple[str, ...] = ()
    """`pid: command line` of each living process."""
    files: tuple[str, ...] = ()
    """Files in shared memory, and syncline's files in the program's temporary directory."""

    def __bool__(self) -> bool:
        return bool(self.processes or self.files)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """Result of an ended program."""

    return_code: int
    """0 for success; the negative signal number if a signal ended it."""
    stdout: str
    stderr: str

    def check(self) -> Ended:
        """Return self if the program succeeded; else AssertionError with its output."""
        if self.return_code != 0:
            raise AssertionError(
                f"the program ended with {self.return_code}\n"
                f"--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
            )
        return self


@dataclass(kw_only=True)
class Program:
    """A running program; threads read its output, so that it never blocks."""

    process: subprocess.Popen[str]
    directory: Path
    """Working directory, with the program's text in `program.py`."""
    temporary: Path
    """The program's directory for temporary files."""
    mark: str
    """Value of `SYNCLINE_TEST_PROGRAM` in all of its processes."""
    shared_memory_before: frozenset[str]
    _lines: dict[str, list[str]] = field(default_factory=lambda: {"stdout": [], "stderr": []})
    _printed: threading.Condition = field(default_factory=threading.Condition)
    _readers: list[threading.Thread] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Process id of the program itself."""
        return self.process.pid

    @property
    def stdout(self) -> str:
        """Standard output so far."""
        with self._printed:
            return "".join(self._lines["stdout"])

    @property
    def stderr(self) -> str:
        """Standard error so far."""
        with self._printed:
            return "".join(self._lines["stderr"])

    def start_reading(self) -> None:
        """Start the threads that read the output."""
        for name in ("stdout", "stderr"):
            reader = threading.Thread(
                target=self._follow, args=(name,), daemon=True, name=f"{name} of program {self.pid}"
            )
            reader.start()
            self._readers.append(reader)

    def wait_for(self, marker: str, *, within_s: float = GENEROUS_S) -> str:
        """Return the first printed line that contains `marker`.

        Raises AssertionError if the program ends or `within_s` pass before.
        """
        deadline = time.monotonic() + within_s
        with self._printed:
            while True:
                for line in self._lines["stdout"]:
                    if marker in line:
                        return line.rstrip("\n")
                over = not any(reader.is_alive() for reader in self._readers)
                if over or time.monotonic() > deadline:
                    reason = "the program ended" if over else f"{within_s:g} s passed"
                    output = "".join(self._lines["stdout"]) + "".join(self._lines["stderr"])
                    raise AssertionError(
                        f"{reason} without printing {marker!r}; its output:\n{output}"
                    )
                self._printed.wait(0.05)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program's own process."""
        self.process.send_signal(number)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the program's process group, as a terminal does on Ctrl-C."""
        os.killpg(self.pid, number)

    def wait(self, *, within_s: float = GENEROUS_S * 2) -> Ended:
        """Wait for the program's own process; AssertionError, and a kill, after `within_s`."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(
                f"the program did not end within {within_s:g} s; its output:\n"
                f"{self.stdout}\n{self.stderr}"
            ) from None
        for reader in self._readers:
            reader.join(LAST_OUTPUT_S)
        return Ended(return_code=code, stdout=self.stdout, stderr=self.stderr)

    def end(self) -> None:
        """Kill every process of the program."""
        kill_all(marked(MARK, [self.mark]))
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _follow(self, name: str) -> None:
        stream = self.process.stdout if name == "stdout" else self.process.stderr
        assert stream is not None
        for line in stream:
            with self._printed:
                self._lines[name].append(line)
                self._printed.notify_all()
        with self._printed:
            self._printed.notify_all()


@contextmanager
def run_program(
    text: str,
    *args: str,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    directory: Path | None = None,
    enter: Sequence[str] = (),
) -> Iterator[Program]:
    """Start `text` as a Python program in a new session and a new directory.

    The end of the block kills its remaining processes. `environment` is added to this process's
    own, `options` go to the interpreter, `args` to the program. `directory` is the parent of the
    new directory. `enter` is a prefix of the command, to run it elsewhere. Standard input is
    closed.
    """
    with tempfile.TemporaryDirectory(prefix="program-", dir=directory) as made:
        home = Path(made)
        temporary = home / "tmp"
        temporary.mkdir()
        (home / "program.py").write_text(text)
        mark = uuid.uuid4().hex
        inherited = {
            name: value
            for name, value in settings.inherited_environment().items()
            if not name.startswith("SYNCLINE_") or name == "SYNCLINE_PORTABLE"
        }
        variables = {
            **inherited,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [SOURCE_DIRECTORY, inherited.get("PYTHONPATH", "")])
            ),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(temporary),
            MARK: mark,
            **(environment or {}),
        }
        process = subprocess.Popen(
            [*enter, sys.executable, *options, "program.py", *args],
            cwd=home,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        program = Program(
            process=process,
            directory=home,
            temporary=temporary,
            mark=mark,
            shared_memory_before=frozenset(_shared_memory_files()),
        )
        program.start_reading()
        try:
            yield program
        finally:
            program.end()


def leftovers(program: Program) -> Leftovers:
    """Return the current processes, session files and shared memory of a program."""
    processes = tuple(
        f"{process.pid}: {_command_line(process)}" for process in marked(MARK, [program.mark])
    )
    # The names of a program's files have its process id, unlike those of other programs.
    shared = [
        path
        for path in _shared_memory_files()
        if path not in program.shared_memory_before and f"-{program.pid}-" in f"{path}-"
    ]
    temporary = [
        os.path.join(directory, name)
        for directory, _, names in os.walk(program.temporary)  # which may vanish meanwhile
        for name in names
        if "syncline" in os.path.join(directory, name)
    ]
    return Leftovers(processes=processes, files=tuple(sorted([*shared, *temporary])))


def assert_nothing_left(program: Program, *, within_s: float = 5.0) -> None:
    """Raise AssertionError unless all of the program is gone within `within_s` seconds.

    The limit is extended for slow machines.
    """
    deadline = time.monotonic() + within_s * SLOWNESS
    while left := leftovers(program):
        if time.monotonic() > deadline:
            raise AssertionError(
                f"{within_s * SLOWNESS:g} s after its end, program {program.pid} still has "
                f"processes {list(left.processes)} and files {list(left.files)}; its errors:\n"
                f"{program.stderr}"
            )
        time.sleep(0.05)


def marked(variable: str, marks: Collection[str]) -> list[psutil.Process]:
    """Return living processes with one of the marks in a variable, without zombies."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(variable) in marks and is_alive(process):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def kill_all(processes: Collection[psutil.Process]) -> None:
    """Kill processes and wait until they have ended; zombies count as ended."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    eventually(lambda: not any(map(is_alive, processes)), what="killed processes have ended")


def free_port() -> int:
    """Return a TCP port of this machine that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_alive(process: psutil.Process | int) -> bool:
    """Return True if a process, or the process with this id, runs; a zombie does not."""
    try:
        if isinstance(process, int):
            process = psutil.Process(process)
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return "(ended)"


def _shared_memory_files() -> list[str]:
    try:
        return [str(path) for path in SHARED_MEMORY.iterdir()]
    except OSError:
        return []
