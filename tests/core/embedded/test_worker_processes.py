"""Modules that workers inherit from the fork server."""

from __future__ import annotations

import pytest

from syncline.testing import run_program

pytestmark = pytest.mark.processes

PROGRAM = """
import sys
import syncline

@syncline.remote
class Looks:
    def for_modules(self):
        return [name for name in NAMES if name in sys.modules]

NAMES = ("torch", "numpy", "pandas", "syncline.data.dataset")
syncline.init(num_cpus=1)
print("started before:", *syncline.get(Looks.remote().for_modules.remote()))
import syncline.data
dataset = syncline.data.range(1)
print("the program:", *[name for name in NAMES if name in sys.modules])
print("started after:", *syncline.get(Looks.remote().for_modules.remote()))
"""


def test_workers_have_the_programs_imports_and_those_of_first_use() -> None:
    with run_program(PROGRAM) as program:
        lines = program.wait().check().stdout.splitlines()
    assert lines == [
        "started before:",
        "the program: numpy syncline.data.dataset",
        "started after: numpy pandas syncline.data.dataset",
    ]


EXPECTING = """
import sys
import syncline
from syncline.core import worker_imports

@syncline.remote
class Looks:
    def for_module(self):
        return "colorsys" in sys.modules

syncline.init(num_cpus=1)
print("before:", syncline.get(Looks.remote().for_module.remote()))
worker_imports.expect("colorsys", "no_such_module")
print("after:", syncline.get(Looks.remote().for_module.remote()), "colorsys" in sys.modules)
syncline.shutdown()
syncline.init(num_cpus=1)
print("another engine:", syncline.get(Looks.remote().for_module.remote()))
"""


def test_workers_have_the_modules_that_the_program_expects_them_to_import() -> None:
    with run_program(EXPECTING) as program:
        lines = program.wait().check().stdout.splitlines()
    assert lines == ["before: False", "after: True False", "another engine: False"]


DRAWS = """
import numpy, torch  # the template imports them, too
import syncline

@syncline.remote
class Draws:
    def numbers(self):
        import random, numpy, torch
        drawn = random.random(), float(numpy.random.rand()), float(torch.rand(1))
        return *drawn, torch.initial_seed()

syncline.init(num_cpus=2)
first, second = syncline.get([Draws.remote().numbers.remote() for _ in range(2)])
print([a == b for a, b in zip(first, second)])
"""


def test_each_worker_draws_random_numbers_of_its_own() -> None:
    with run_program(DRAWS) as program:
        assert program.wait().check().stdout == "[False, False, False, False]\n"


BROKEN_STARTS = """
import os, signal, subprocess, sys
import syncline
from syncline.core.embedded.fork_server_process import ForkServerProcess

syncline.init(num_cpus=1)
start = ForkServerProcess.start

def start_broken(modules=()):
    server = start(modules)
    server.process.kill()
    return server

ForkServerProcess.start = start_broken
for pid in subprocess.check_output(["pgrep", "-P", str(os.getpid())], text=True).split():
    os.kill(int(pid), signal.SIGKILL)

@syncline.remote(max_retries=1)
def never():
    return 1

try:
    syncline.get(never.remote(), timeout=60)
except syncline.exceptions.WorkerCrashedError as error:
    print(error)
"""


def test_work_fails_with_the_cause_if_no_worker_can_be_started() -> None:
    with run_program(BROKEN_STARTS) as program:
        output = program.wait().check().stdout
    assert "could not be started" in output
    assert "signal 9" in output


WITHOUT_TORCH = """
import sys
import torch
import syncline
import syncline.data

syncline.init(num_cpus=1)

def without(batch):
    return {"found": ["".join(reversed("hcrot")) in sys.modules] * len(batch["id"])}

def mentions(batch):
    return {"found": ["torch" in sys.modules] * len(batch["id"])}

@syncline.remote
def task():
    return "torch" in sys.modules

for function in (without, mentions):
    dataset = syncline.data.range(4).map_batches(function)
    print({row["found"] for row in dataset.iter_rows()})
print(syncline.get(task.remote()))
"""


def test_workers_of_a_dataset_do_not_wait_for_torch_if_its_functions_do_not_use_it() -> None:
    with run_program(WITHOUT_TORCH) as program:
        assert program.wait().check().stdout.splitlines() == ["{False}", "{True}", "True"]
