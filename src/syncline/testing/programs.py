"""Whole programs as subprocesses: run one, stop it at a printed marker, and look for what it leaves
behind.

A program runs in a temporary directory of its own, with an environment variable that all of its
processes inherit, so that what belongs to it is known even after its parents have died. Files are
found where the program was told to make temporary ones, and in `/dev/shm` by what appeared there
while it ran and belongs to no process outside of it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from syncline import settings
from syncline.testing.waiting import GENEROUS_S

MARK = "SYNCLINE_TEST_PROGRAM"
SHARED_MEMORY = Path("/dev/shm")
SLOWNESS = 6
"""By how much limits are stretched, for machines that are slow or busy."""
LAST_OUTPUT_S = 5.0
"""How long the output of an ended program is waited for. A child that outlives it holds the pipe
open: `assert_nothing_left` tells.
"""


@dataclass(frozen=True, kw_only=True)
class Leftovers:
    """What of a program is still there."""

    processes: tuple[str, ...] = ()
    """`pid: command line` of each living process."""
    files: tuple[str, ...] = ()
    """Paths in shared memory, and of syncline's files in the program's temporary directory; empty
    directories do not count.
    """

    def __bool__(self) -> bool:
        return bool(self.processes or self.files)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended and what it printed."""

    return_code: int
    """0 for success, the negative signal number where a signal ended it."""
    stdout: str
    stderr: str

    def check(self) -> Ended:
        """This, if the program succeeded; AssertionError with its output otherwise."""
        if self.return_code != 0:
            raise AssertionError(
                f"the program ended with {self.return_code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"
            )
        return self


@dataclass(kw_only=True)
class Program:
    """A running program. Its output is read all the time, so that it never waits for its reader."""

    process: subprocess.Popen[str]
    directory: Path
    """Working directory, with the program's text in `program.py`."""
    temporary: Path
    """What the program was given as its directory for temporary files."""
    mark: str
    """The value of `SYNCLINE_TEST_PROGRAM` in all of its processes."""
    shared_memory_before: frozenset[str]
    _lines: dict[str, list[str]] = field(default_factory=lambda: {"stdout": [], "stderr": []})
    _printed: threading.Condition = field(default_factory=threading.Condition)
    _readers: list[threading.Thread] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """The process id of the program itself."""
        return self.process.pid

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        with self._printed:
            return "".join(self._lines["stdout"])

    @property
    def stderr(self) -> str:
        """What it has written to standard error so far."""
        with self._printed:
            return "".join(self._lines["stderr"])

    def start_reading(self) -> None:
        """Follow both outputs in threads."""
        for name in ("stdout", "stderr"):
            reader = threading.Thread(
                target=self._follow, args=(name,), daemon=True, name=f"{name} of program {self.pid}"
            )
            reader.start()
            self._readers.append(reader)

    def wait_for(self, marker: str, *, within_s: float = GENEROUS_S) -> str:
        """The first printed line that contains `marker`; AssertionError if the program ends or
        `within_s` pass without one.
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
        """Send a signal to the program's process group, as a terminal does when somebody presses
        Ctrl-C.
        """
        os.killpg(self.pid, number)

    def wait(self, *, within_s: float = GENEROUS_S * 2) -> Ended:
        """Wait for the program's own process to end; AssertionError after `within_s` seconds, and
        the program is killed.
        """
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(
                f"the program did not end within {within_s:g} s; its output:\n{self.stdout}\n{self.stderr}"
            ) from None
        for reader in self._readers:
            reader.join(LAST_OUTPUT_S)
        return Ended(return_code=code, stdout=self.stdout, stderr=self.stderr)

    def end(self) -> None:
        """Kill every process of the program."""
        for process in _processes(self.mark):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
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
    """Start `text` as a Python program in a new session and a fresh directory; kill what is left of
    it at the end of the block.

    `environment` is added to this process's own, `options` go to the interpreter, `args` to the
    program; `directory` replaces the fresh temporary directory; `enter` comes before the command,
    to run it elsewhere. Standard input is closed.
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
            if not name.startswith("SYNCLINE_")
        }
        variables = {
            **inherited,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [_source_directory(), inherited.get("PYTHONPATH", "")])
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
    """What is there of `program` now: processes with its mark, its session files, and its files in
    shared memory.
    """
    processes = tuple(
        f"{process.pid}: {_command_line(process)}" for process in _processes(program.mark)
    )
    appeared = (path for path in _shared_memory_files() if path not in program.shared_memory_before)
    shared = [path for path in appeared if _belongs_to(path, program)]
    temporary = [
        str(path)
        for path in program.temporary.rglob("*")
        if "syncline" in str(path) and not path.is_dir()
    ]
    return Leftovers(processes=processes, files=tuple(sorted([*shared, *temporary])))


def assert_nothing_left(program: Program, *, within_s: float = 5.0) -> None:
    """AssertionError unless everything of `program` is gone within `within_s` seconds, stretched
    for slow machines.
    """
    deadline = time.monotonic() + within_s * SLOWNESS
    while left := leftovers(program):
        if time.monotonic() > deadline:
            raise AssertionError(
                f"{within_s * SLOWNESS:g} s after its end, program {program.pid} still has processes {list(left.processes)} "
                f"and files {list(left.files)}; its errors:\n{program.stderr}"
            )
        time.sleep(0.05)


def _processes(mark: str) -> list[psutil.Process]:
    """Living processes whose environment carries `mark`; zombies have ended."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


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


def _belongs_to(path: str, program: Program) -> bool:
    """Other programs make files in shared memory at the same time: ours carry the program's process
    id in the name.
    """
    return f"-{program.pid}-" in f"{Path(path).name}-"


def _source_directory() -> str:
    return str(Path(__file__).resolve().parents[2])
