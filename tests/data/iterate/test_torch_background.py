"""The import of torch by the first `iter_torch_batches` of a program."""

from __future__ import annotations

import pytest

from syncline.testing import run_program

pytestmark = pytest.mark.processes

PROGRAM = """
import os, sys, tempfile, threading, time
from importlib.machinery import PathFinder
import syncline
import syncline.data

mark = os.path.join(tempfile.mkdtemp(), "mark")

class Late:
    '''A finder that delays the import of torch until the first block is made.'''

    def find_spec(self, name, path=None, target=None):
        if name != "torch" or threading.current_thread() is threading.main_thread():
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def late(module):
            deadline = time.monotonic() + 60
            while not os.path.exists(mark) and time.monotonic() < deadline:
                time.sleep(0.01)
            execute(module)

        spec.loader.exec_module = late
        return spec

def made(batch):
    open(mark, "w").close()
    return batch

syncline.init(num_cpus=1)
dataset = syncline.data.range(4).map_batches(made)
sys.meta_path.insert(0, Late())
began = time.monotonic()
batches = [batch["id"] for batch in dataset.iter_torch_batches(batch_size=2)]
print(batches, time.monotonic() - began < 60, hasattr(sys.modules["torch"], "Tensor"))
pid = os.fork()  # waits for the import
if pid == 0:
    os._exit(0)
print(os.waitpid(pid, 0)[1])
"""


def test_a_pass_begins_while_torch_is_imported() -> None:
    with run_program(PROGRAM) as program:
        lines = program.wait().check().stdout.splitlines()
    assert lines == ["[tensor([0, 1]), tensor([2, 3])] True True", "0"]


ABSENT = """
import sys
import syncline.data

sys.modules["torch"] = None
try:
    syncline.data.range(1).iter_torch_batches()
except ImportError as error:
    print(error)
"""


def test_an_absent_torch_is_an_error_of_the_call() -> None:
    with run_program(ABSENT) as program:
        assert "pip install 'torch'" in program.wait().check().stdout
