"""OMP_NUM_THREADS: set by the engine, unless the program sets it."""

import os

import pytest

from syncline.core import thread_limits
from syncline.testing import run_program


@pytest.fixture(autouse=True)
def variable(monkeypatch):
    monkeypatch.setattr(thread_limits, "_chosen", {None})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(("cpus", "threads"), [(None, 1), (0, 1), (0.5, 1), (2, 2), (3.9, 3)])
def test_threads_are_whole_cpus_and_at_least_one(cpus, threads):
    assert thread_limits.threads_for(cpus) == threads


def test_a_later_limit_replaces_the_engines_own(monkeypatch):
    for threads in (4, 2):
        thread_limits.limit(threads)
        assert os.environ["OMP_NUM_THREADS"] == str(threads)
    assert thread_limits.of_program() is None
    thread_limits.lift()
    assert "OMP_NUM_THREADS" not in os.environ


def test_the_programs_value_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    thread_limits.limit(2)
    thread_limits.lift()
    assert thread_limits.of_program() == os.environ["OMP_NUM_THREADS"] == "7"


def test_a_value_that_the_program_sets_later_stays(monkeypatch):
    thread_limits.limit(2)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    thread_limits.limit(3)
    assert os.environ["OMP_NUM_THREADS"] == "5"


AFTER_WORK_IN_THE_PROGRAM = """
import os
import syncline
from syncline.core import thread_limits
from syncline.testing import run_program

thread_limits.limit(1)
syncline.init(num_cpus=2)

@syncline.remote(num_cpus=2)
def threads():
    return os.environ["OMP_NUM_THREADS"]

print(syncline.get(threads.remote()))
"""


@pytest.mark.processes
def test_workers_do_not_inherit_the_limit_of_work_in_the_program():
    with run_program(AFTER_WORK_IN_THE_PROGRAM) as program:
        assert program.wait().check().stdout == "2\n"
