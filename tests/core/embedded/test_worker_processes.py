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
