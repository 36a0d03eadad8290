"""Freed memory is used again without page faults, unless the environment sets malloc."""

from __future__ import annotations

import sys

import pytest

from syncline.data.execute.heap import keep_freed_memory
from syncline.testing import run_program

FAULTS = """
import resource
import numpy as np
from syncline.data.execute.heap import keep_freed_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def work():
    arrays = [np.ones(3 * 2**20, np.uint8) for _ in range(8)]

KEEP
work()
before = faults()
work()
print(faults() - before)
"""


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="the setting is one of glibc")
def test_freed_memory_is_used_again():
    found = {}
    for first in ("keep_freed_memory()", ""):
        with run_program(FAULTS.replace("KEEP", first)) as program:
            found[first] = int(program.wait().check().stdout)
    assert found["keep_freed_memory()"] < 100 < found[""], found


@pytest.mark.parametrize(
    "environment", [{"MALLOC_ARENA_MAX": "1"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=0"}]
)
def test_settings_of_the_environment_stay(environment):
    assert not keep_freed_memory(environment)
