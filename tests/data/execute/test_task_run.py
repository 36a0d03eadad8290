import copy
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.context import DataContext
from syncline.data.execute.physical_plan import Chain, Ports, Step, TaskState
from syncline.data.execute.steps.function_steps import MapRowsStep
from syncline.data.execute.steps.heads import pass_blocks
from syncline.data.execute.steps.user_functions import UserFunctionError
from syncline.data.execute.task_run import close_chain, open_chain, run_chain
from syncline.data.io.sinks.datasink import TaskContext
from syncline.data.plan.nodes import UserFunction


def chain_of(*steps: Step, **limits: Any) -> Chain:
    return Chain(head=pass_blocks, steps=steps, context=DataContext(), **limits)


def ids(count: int, start: int = 0) -> pa.Table:
    return pa.table({"id": np.arange(start, start + count)})


def shapes(chain: Chain, tables: list[pa.Table], **options: Any) -> list[tuple[list[int], bool]]:
    open_chain(chain)
    outputs = run_chain(chain, [tables], None, TaskState(), **options)
    return [(output.table.column("id").to_pylist(), output.is_last) for output in outputs]


def sizes(chain: Chain, tables: list[pa.Table]) -> list[int]:
    return [len(rows) for rows, _ in shapes(chain, tables)]


def test_small_blocks_are_put_together_and_the_last_is_known() -> None:
    assert shapes(chain_of(max_block_bytes=1000), [ids(2), ids(0), ids(1, 2)]) == [
        ([0, 1, 2], True)
    ]


def test_blocks_above_the_limit_are_cut_evenly() -> None:
    assert sizes(chain_of(max_block_bytes=80), [ids(25)]) == [9, 8, 8] or sizes(
        chain_of(max_block_bytes=80), [ids(25)]
    ) == [8, 8, 9]
    assert sizes(chain_of(max_block_rows=4), [ids(10)]) == [3, 3, 4]


def test_a_row_above_the_limit_is_a_block() -> None:
    assert sizes(chain_of(max_block_bytes=1), [ids(3)]) == [1, 1, 1]


def test_blocks_are_put_together_up_to_the_limit_but_not_beyond() -> None:
    assert sizes(chain_of(max_block_bytes=80), [ids(4)] * 5) == [8, 8, 4]
    assert sizes(chain_of(max_block_rows=5), [ids(2)] * 5) == [4, 4, 2]
    assert sizes(chain_of(max_block_bytes=80), [ids(2), ids(9)]) == [2, 9]


def test_blocks_of_a_task_grow_from_the_first_on() -> None:
    growing = chain_of(max_block_bytes=640, first_block_bytes=80)
    assert sizes(growing, [ids(1)] * 300) == [10, 20, 40, 80, 80, 70]
    assert sizes(chain_of(max_block_bytes=40, first_block_bytes=80), [ids(1)] * 12) == [5, 5, 2]
    whole = sizes(growing, [ids(300)])
    assert all(
        rows <= most for rows, most in zip(whole, [10, 20, 40, 80, 80, 80, 80], strict=False)
    )
    assert sum(whole) == 300


@pytest.mark.parametrize("skip_rows", [0, 5, 10, 35, 200])
def test_growing_blocks_end_where_they_do_whatever_is_skipped(skip_rows: int) -> None:
    growing = chain_of(max_block_bytes=640, first_block_bytes=80)
    ends = [rows[-1] for rows, _ in shapes(growing, [ids(300)])]
    assert [rows[-1] for rows, _ in shapes(growing, [ids(300)], skip_rows=skip_rows)] == [
        end for end in ends if end >= skip_rows
    ]


def test_a_full_block_is_passed_on_before_the_next_is_made() -> None:
    made: list[int] = []

    def tables() -> Iterator[pa.Table]:
        for number in range(3):
            made.append(number)
            yield ids(10, 10 * number)

    class Head:
        def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
            return tables()

    outputs = run_chain(
        Chain(head=Head(), context=DataContext(), max_block_bytes=100), [], None, TaskState()
    )
    assert next(outputs).table.num_rows == 10
    assert made == [0]


def test_without_limits_a_task_makes_one_block() -> None:
    assert sizes(chain_of(), [ids(10), ids(1000)]) == [1010]


@pytest.mark.parametrize("skipped", range(12))
def test_skipped_rows_do_not_change_where_blocks_are_cut(skipped: int) -> None:
    chain = chain_of(max_block_rows=4)
    whole = shapes(chain, [ids(5), ids(6, 5)])
    expected = []
    left = skipped
    for rows, is_last in whole:
        if rows[left:]:
            expected.append((rows[left:], is_last))
        left = max(0, left - len(rows))
    assert shapes(chain, [ids(5), ids(6, 5)], skip_rows=skipped) == expected


def test_a_task_without_rows_keeps_the_schema() -> None:
    (output,) = run_chain(chain_of(), [[pa.table({}), ids(0), ids(0)]], None, TaskState())
    assert output.table.schema == ids(0).schema
    assert output.is_last
    assert list(run_chain(chain_of(), [[]], None, TaskState())) == []


def test_rows_without_columns_are_counted() -> None:
    nothing = ids(5).select([])
    assert [
        output.table.num_rows
        for output in run_chain(chain_of(), [[nothing, nothing]], None, TaskState())
    ] == [10]


def test_the_contexts_are_current_while_blocks_are_made_and_not_in_between() -> None:
    context = DataContext()
    seen: list[Any] = []

    def look(row: dict[str, Any]) -> dict[str, Any]:
        task = TaskContext.get_current()
        seen.append((DataContext.get_current() is context, task.task_idx if task else None))
        return row

    step = MapRowsStep(function=UserFunction(function=look), name="Map")
    chain = Chain(head=pass_blocks, steps=(step,), context=context, max_block_rows=1)
    open_chain(chain)
    outputs = run_chain(chain, [[ids(2)]], None, TaskState(task=7))
    next(outputs)
    assert TaskContext.get_current() is None
    assert DataContext.get_current() is not context
    assert seen[0] == (True, 7)


def test_the_blocks_of_a_task_may_be_asked_for_on_different_threads() -> None:
    outputs = run_chain(chain_of(max_block_rows=1), [[ids(2)]], None, TaskState())
    found = [next(outputs).table.num_rows]
    thread = threading.Thread(target=lambda: found.append(next(outputs).table.num_rows))
    thread.start()
    thread.join(30)
    assert found == [1, 1]


class Recorder(Step):
    """Notes when it is opened and closed."""

    def __init__(self, events: list[str], name: str, fails: bool = False) -> None:
        self.events, self.name, self.fails = events, name, fails

    def open(self) -> None:
        if self.fails:
            raise UserFunctionError(self.name, range(0), RuntimeError("no model"))
        self.events.append(f"open {self.name}")

    def run(self, blocks: Iterator[pa.Table], task: TaskState) -> Iterator[pa.Table]:
        return blocks

    def close(self) -> None:
        self.events.append(f"close {self.name}")


def test_the_steps_of_a_chain_are_opened_and_closed_in_order() -> None:
    events: list[str] = []
    chain = chain_of(Recorder(events, "a"), Recorder(events, "b"))
    open_chain(chain)
    close_chain(chain)
    assert events == ["open a", "open b", "close a", "close b"]


def test_what_was_opened_is_closed_when_a_step_cannot_be_opened() -> None:
    events: list[str] = []
    chain = chain_of(Recorder(events, "a"), Recorder(events, "b", fails=True))
    for _ in range(2):
        with pytest.raises(UserFunctionError, match="no model"):
            open_chain(chain)
    assert events == ["open a", "close a"] * 2


def test_a_chain_can_be_pickled_before_and_after_it_is_opened() -> None:
    step = MapRowsStep(function=UserFunction(function=copy.copy), name="Map")
    chain = pickle.loads(pickle.dumps(chain_of(step)))
    for _ in range(2):
        assert shapes(chain, [ids(3)]) == [([0, 1, 2], True)]
        chain = pickle.loads(pickle.dumps(chain))


def test_time_of_reading_and_of_functions_is_told_apart() -> None:
    class SlowHead:
        def __call__(self, ports: Ports, payload: Any, task: TaskState) -> Iterator[pa.Table]:
            time.sleep(0.02)
            yield ids(2)

    def slow(row: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.03)
        return row

    task = TaskState()
    step = MapRowsStep(function=UserFunction(function=slow), name="Map")
    chain = Chain(head=SlowHead(), steps=(step,), context=DataContext())
    open_chain(chain)
    list(run_chain(chain, [], None, task))
    assert task.read_s >= 0.02
    assert task.function_s >= 0.06


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(UserFunctionError("Map(f)", range(3, 4), KeyError("x"))))
    assert str(error) == "Map(f) failed on row 3 of its task: KeyError: 'x'"
    assert isinstance(error.__cause__, KeyError)
