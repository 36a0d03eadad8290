"""Programs that end in the middle of an execution."""

import pytest

from syncline.testing.programs import assert_nothing_left, run_program

pytestmark = pytest.mark.processes

PROGRAM = """
import time
import syncline
from syncline.data.context import DataContext
from syncline.data.execute.execution import start_execution
from syncline.data.plan.nodes import MapBatches, Read, UserFunction
from syncline.data.io.sources.range import RangeDatasource


def sleeps(batch):
    time.sleep(0.05)
    return batch


node = MapBatches(
    input=Read(source=RangeDatasource(100_000, column_name="id"), parallelism=50),
    function=UserFunction(function=sleeps),
)
execution = start_execution(node, DataContext())
print(next(execution).num_rows > 0, flush=True)
{end}
"""


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("", ""),  # the last reference is dropped by the interpreter
        ("syncline.shutdown()", ""),
        ("raise KeyError('lost')", "KeyError: 'lost'"),
    ],
)
def test_a_program_may_end_in_the_middle(end: str, error: str):
    with run_program(PROGRAM.format(end=end)) as program:
        ended = program.wait()
        assert ended.stdout == "True\n"
        assert ended.stderr.rstrip().endswith(error)
        assert bool(ended.stderr) is bool(error), ended.stderr
        assert_nothing_left(program)


def test_a_program_whose_stderr_is_no_terminal_prints_nothing_of_its_own():
    text = PROGRAM.format(end="time.sleep(1.5); print(sum(block.num_rows for block in execution))")
    with run_program(text) as program:
        ended = program.wait().check()
        assert len(ended.stdout.splitlines()) == 2
        assert ended.stderr == ""
