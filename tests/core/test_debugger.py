"""`breakpoint()` in workers: with `syncline debug`, and in the terminal of the program."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from syncline.core import debugger
from syncline.core.host import short_socket_path
from syncline.testing import run_program
from syncline.testing.programs import Program
from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes

LIMIT_S = 60.0
STOPS_AT_CALL = sys.version_info >= (3, 13)
"""True if `breakpoint()` stops at its own line; before Python 3.13 at the next one."""

TASK = """
import syncline

@syncline.remote
def task():
    secret = 40
    breakpoint()
    secret += 1
    return secret

if __name__ == "__main__":
    print("value", syncline.get(task.remote()))
"""


def debugged(program: Program, typed: bytes, *, leaves: bool = False, line: int = 7) -> str:
    """Attach to the only waiting worker of a program, type lines, and return what is shown until
    the session ends; or leave at once.
    """
    waiting: list[dict[str, object]] = []

    def waits() -> bool:
        directories = {path.parent for path in program.temporary.rglob("debug-*.json")}
        waiting[:] = [each for place in directories for each in debugger.waiting(place)]
        return bool(waiting)

    eventually(waits, within_s=LIMIT_S)
    (worker,) = waiting
    assert worker["label"] == "task"
    assert str(worker["where"]).endswith(f"program.py:{line}")
    path = Path(str(worker["path"]))
    with socket.socket(socket.AF_UNIX) as connection:
        with short_socket_path(path.with_suffix(".sock")) as short:
            connection.connect(short)
        if leaves:
            return ""
        connection.settimeout(LIMIT_S)
        shown = connection.recv(65_536)
        assert not path.exists()  # once the session ends, another thread may wait at this path
        connection.sendall(typed)
        while data := connection.recv(65_536):
            shown += data
    return shown.decode()


def test_a_worker_at_a_breakpoint_is_debugged_from_another_process() -> None:
    with run_program(TASK) as program:
        steps = b"n\nn\n" if STOPS_AT_CALL else b"n\n"
        shown = debugged(program, b"p secret\nsecret = 50\n" + steps + b"p secret\nc\n")
        ended = program.wait().check()
    assert "(Pdb) 40" in shown
    assert "(Pdb) 51" in shown
    assert "value 51" in ended.stdout
    assert "attach with `syncline debug`" in ended.stderr


def test_set_trace_of_rays_module_stops_in_its_caller() -> None:
    task = TASK.replace("    breakpoint()", "    util.pdb.set_trace()")
    with run_program(
        task.replace("import syncline", "from syncline import util\nimport syncline")
    ) as program:
        shown = debugged(program, b"p secret\nc\n", line=8)
        assert "value 41" in program.wait().check().stdout
    assert "(Pdb) 40" in shown


def test_a_terminal_that_leaves_lets_the_worker_continue_and_quitting_ends_the_task() -> None:
    with run_program(TASK) as program:
        debugged(program, b"", leaves=True)
        assert "value 41" in program.wait().check().stdout
    with run_program(TASK) as program:
        debugged(program, b"q\n")
        assert "BdbQuit" in program.wait().stderr


THREADS = """
import threading
import syncline

@syncline.remote
def task():
    found = []
    def stop(secret):
        breakpoint()
        found.append(secret)
    threads = [threading.Thread(target=stop, args=(number,)) for number in (1, 2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    return sorted(found)

if __name__ == "__main__":
    print("value", syncline.get(task.remote()))
"""


def test_a_second_thread_at_a_breakpoint_waits_for_the_first_session_to_end() -> None:
    with run_program(THREADS) as program:
        shown = [debugged(program, b"p secret\nc\n", line=9) for _ in range(2)]
        assert "value [1, 2]" in program.wait().check().stdout
    assert sorted(re.findall(r"\(Pdb\) (\d)", "".join(shown))) == ["1", "2"]


def test_a_worker_that_was_killed_at_a_breakpoint_is_not_listed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    (tmp_path / "debug-1.json").write_text(
        json.dumps({"pid": ended.pid, "label": "task", "where": "a.py:1"})
    )
    assert debugger.waiting(tmp_path) == []


def test_an_interactive_program_debugs_in_its_own_terminal(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(TASK)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=lambda: (os.setsid(), _take_terminal()),
    ) as program:
        os.close(theirs)
        shown = _read_until(ours, "(Pdb) ")
        assert ("breakpoint()" if STOPS_AT_CALL else "secret += 1") in shown
        os.write(ours, b"p secret\n")
        assert "40" in _read_until(ours, "(Pdb) ")
        os.write(ours, b"c\n")
        assert "value 41" in _read_until(ours, "value 41")
        assert program.wait(LIMIT_S) == 0
    os.close(ours)


def _take_terminal() -> None:
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first terminal opened becomes its own


def _read_until(terminal: int, text: str) -> str:
    shown, deadline = "", time.monotonic() + LIMIT_S
    while text not in shown:
        readable, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, f"no {text!r} in {shown!r}"
        shown += os.read(terminal, 65_536).decode()
    return shown
