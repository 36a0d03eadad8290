"""OMP_NUM_THREADS: set by the engine, unless the program sets it."""

import os
import sys

import pytest

from syncline.core import thread_limits
from syncline.testing import run_program


@pytest.fixture(autouse=True)
def variable(monkeypatch):
    monkeypatch.setattr(thread_limits, "_chosen", {None})
    monkeypatch.setenv("OMP_NUM_THREADS", "")  # so that a value of a test does not stay
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(thread_limits, "_of_torch", None)
    monkeypatch.setitem(sys.modules, "torch", None)


class Torch:
    """The number of threads of torch."""

    count = 8

    def get_num_threads(self):
        return self.count

    def set_num_threads(self, count):
        self.count = count


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


def test_torch_that_is_loaded_already_is_limited_until_the_limit_is_lifted(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch := Torch())
    for threads in (4, 2):
        thread_limits.limit(threads)
        assert torch.count == threads
    thread_limits.lift()
    assert torch.count == 8


def test_torch_keeps_its_threads_if_the_program_sets_the_variable(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch := Torch())
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    thread_limits.limit(2)
    assert torch.count == 8


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


WITH_TORCH_IN_THE_TEMPLATE = """
import torch
import syncline

syncline.init(num_cpus=4)

@syncline.remote
def threads():
    return torch.get_num_threads()

print(syncline.get([threads.remote(), threads.options(num_cpus=3).remote()]))
"""


@pytest.mark.processes
def test_torch_in_workers_has_a_thread_per_cpu_of_the_task():
    with run_program(WITH_TORCH_IN_THE_TEMPLATE) as program:
        assert program.wait().check().stdout == "[1, 3]\n"
