"""Detection of the process that wrote a record."""

import os
import subprocess
import sys

import pytest

from syncline.runs.environment import is_process_alive, process_identity


@pytest.mark.processes
def test_a_process_lives_until_it_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        mark = process_identity(child.pid)
        assert mark != process_identity(os.getpid())
        assert is_process_alive(child.pid, mark, 0.0)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not is_process_alive(child.pid, mark, 0.0), "a zombie"
    assert not is_process_alive(child.pid, mark, 0.0)
    assert process_identity(child.pid) is None


@pytest.mark.parametrize("part", [0, 2])
def test_a_number_that_was_given_again_is_another_process(part: int) -> None:
    parts = (process_identity(os.getpid()) or "").split("/")
    assert is_process_alive(os.getpid(), "/".join(parts), 0.0)
    parts[part] = "another"
    assert not is_process_alive(os.getpid(), "/".join(parts), 0.0)


def test_a_container_beside_this_one_is_taken_to_live() -> None:
    boot, _, start = (process_identity(os.getpid()) or "").split("/")
    assert is_process_alive(2**22 + 1, f"{boot}/pid:[1]/{start}", 0.0)


def test_records_without_marks_are_judged_by_the_clock() -> None:
    assert is_process_alive(os.getpid(), None, 4e9)
    assert not is_process_alive(os.getpid(), None, 1.0)
    assert not is_process_alive(2**22 + 1, None, 4e9)


@pytest.mark.parametrize("mark", ["", "/", "a/b/c/d"])
def test_marks_of_other_forms_are_nobodys(mark: str) -> None:
    assert not is_process_alive(os.getpid(), mark, 4e9)
