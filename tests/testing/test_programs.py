"""Programs as subprocesses, and their leftovers."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from syncline.testing import assert_nothing_left, leftovers, programs, run_program
from syncline.testing.waiting import eventually

pytestmark = pytest.mark.processes


def test_program_runs_with_arguments_in_its_own_directory() -> None:
    with run_program(
        "import os, sys; print(os.getcwd()); print(sys.argv[1], os.environ['EXTRA'])",
        "x",
        environment={"EXTRA": "y"},
    ) as program:
        ended = program.wait().check()
        directory, rest = ended.stdout.splitlines()
        assert os.path.realpath(directory) == os.path.realpath(program.directory)
        assert rest == "x y"
    assert not program.directory.exists()


def test_failed_program_is_reported_with_its_output() -> None:
    with run_program("print('hello'); raise SystemExit('gone wrong')") as program:
        ended = program.wait()
        assert ended.return_code == 1
        with pytest.raises(AssertionError, match="gone wrong"):
            ended.check()


def test_signal_at_a_marker() -> None:
    with run_program("import time\nprint('ready now')\nwhile True: time.sleep(0.01)") as program:
        assert program.wait_for("ready") == "ready now"
        program.send_signal(signal.SIGKILL)
        assert program.wait().return_code == -signal.SIGKILL
        assert_nothing_left(program)


def test_missing_marker_is_an_error_with_the_output() -> None:
    with (
        run_program("print('something else')") as program,
        pytest.raises(AssertionError, match="something else"),
    ):
        program.wait_for("marker")


def test_signal_to_the_group_reaches_children() -> None:
    text = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', "
        "'import time\\nprint(1, flush=True)\\nwhile True: time.sleep(0.01)'],"
        " stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "try:\n    print('ready')\n    child.wait()\n"
        "except KeyboardInterrupt:\n    child.wait()\n    print('both ended')"
    )
    with run_program(text) as program:
        program.wait_for("ready")
        program.signal_group(signal.SIGINT)
        ended = program.wait().check()
        assert "both ended" in ended.stdout
        assert "KeyboardInterrupt" in ended.stderr  # the child's: the program itself caught its own


ORPHAN = """
import subprocess, sys
endless = "import time\\nwhile True: time.sleep(0.01)"
subprocess.Popen([sys.executable, "-c", endless], start_new_session=True)
print("ready")
"""


def test_process_that_outlives_its_program_is_found_and_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(programs, "LAST_OUTPUT_S", 0.1)  # the orphan holds both of its pipes open
    with run_program(ORPHAN) as program:
        program.wait_for("ready")
        program.wait()
        left = leftovers(program)
        assert len(left.processes) == 1
        with pytest.raises(AssertionError, match="time.sleep"):
            assert_nothing_left(program, within_s=0.001)
    eventually(lambda: not leftovers(program).processes)


def test_files_of_the_program_are_found() -> None:
    with run_program("import tempfile; tempfile.mkstemp(prefix='syncline-')") as program:
        program.wait().check()
        left = leftovers(program)
        assert [Path(path).parent == program.temporary for path in left.files] == [True]


def test_files_in_shared_memory_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "SHARED_MEMORY", tmp_path)
    (tmp_path / "from-before").touch()
    with run_program("") as program:
        program.wait().check()
        (tmp_path / "somebody-elses").touch()
        assert not leftovers(program)
        (tmp_path / f"syncline-0-{program.pid}-abc").touch()
        assert len(leftovers(program).files) == 1


def test_standard_input_is_closed_and_settings_are_not_inherited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SYNCLINE_NAMESPACE", "from outside")
    with run_program(
        "import os, sys; print(repr(sys.stdin.read()), os.environ.get('SYNCLINE_NAMESPACE'))"
    ) as program:
        assert program.wait().check().stdout == "'' None\n"


def test_python_of_programs_is_this_one() -> None:
    with run_program("import sys, syncline; print(sys.executable)") as program:
        assert program.wait().check().stdout.strip() == sys.executable
