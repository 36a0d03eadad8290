"""Whether the process of a record lives."""

import os
import subprocess
import sys

import pytest

from syncline.runs import processes


@pytest.mark.processes
def test_a_process_lives_until_it_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        mark = processes.mark(child.pid)
        assert mark != processes.mark(os.getpid())
        assert processes.is_alive(child.pid, mark, 0.0)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not processes.is_alive(child.pid, mark, 0.0), "a zombie"
    assert not processes.is_alive(child.pid, mark, 0.0)
    assert processes.mark(child.pid) is None


@pytest.mark.parametrize("part", [0, 2])
def test_a_number_that_was_given_again_is_another_process(part: int) -> None:
    parts = (processes.mark(os.getpid()) or "").split("/")
    assert processes.is_alive(os.getpid(), "/".join(parts), 0.0)
    parts[part] = "another"
    assert not processes.is_alive(os.getpid(), "/".join(parts), 0.0)


def test_a_container_beside_this_one_is_taken_to_live() -> None:
    boot, _, start = (processes.mark(os.getpid()) or "").split("/")
    assert processes.is_alive(2**22 + 1, f"{boot}/pid:[1]/{start}", 0.0)


def test_records_without_marks_are_judged_by_the_clock() -> None:
    assert processes.is_alive(os.getpid(), None, 4e9)
    assert not processes.is_alive(os.getpid(), None, 1.0)
    assert not processes.is_alive(2**22 + 1, None, 4e9)


@pytest.mark.parametrize("mark", ["", "/", "a/b/c/d"])
def test_marks_of_other_forms_are_nobodys(mark: str) -> None:
    assert not processes.is_alive(os.getpid(), mark, 4e9)
