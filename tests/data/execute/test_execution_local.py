"""Executions in the program's own thread: what they deliver, how they fail, where they start again,
what they count.
"""

import gc
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import syncline
from syncline.data.columnar.kernels import partition
from syncline.data.context import DataContext
from syncline.data.execute.physical_plan import Chain, ExchangeRows, Stage, Threads
from syncline.data.execute.steps.heads import concatenate
from syncline.exceptions import UserCodeException
from tests.data.execute.handmade import actors, batch_step, execute, held, ids, mapped, numbers


@pytest.fixture(autouse=True)
def local_engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def doubled(batch):
    return {"id": batch["id"] * 2}


def fails_on_42(batch):
    if 42 in batch["id"]:
        raise ValueError("cannot take 42")
    return batch


def test_blocks_come_in_order_with_the_numbers_of_their_first_rows():
    execution = execute(numbers(100, 10), mapped(doubled))
    blocks = list(execution)
    assert [block.restart.index for block in blocks] == list(range(0, 100, 10))
    assert [row for block in blocks for row in block.table()["id"].to_pylist()] == list(
        range(0, 200, 2)
    )
    with pytest.raises(StopIteration):
        next(execution)


def test_functions_run_in_the_calling_thread_and_only_when_a_block_is_asked_for():
    threads, batches = set(), []

    def note(batch):
        threads.add(threading.get_ident())
        batches.append(len(batch["id"]))
        return batch

    before = threading.active_count()
    execution = execute(numbers(50, 10), mapped(note))
    assert not batches
    next(execution)
    assert 0 < len(batches) < 10
    execution.close()
    assert threads == {threading.get_ident()}
    assert threading.active_count() == before


def test_held_blocks_go_through_as_they_are():
    table = pa.table({"id": [1, 2, 3]})
    with execute(held(table)) as execution:
        block = next(execution)
        assert block.table() is table
        assert syncline.get(block.reference()).equals(table)


def test_an_error_of_a_function_names_operator_rows_and_frames_and_is_of_its_class():
    execution = execute(numbers(100, 10), mapped(fails_on_42))
    with pytest.raises(ValueError, match="cannot take 42") as caught:
        list(execution)
    error = caught.value
    assert isinstance(error, UserCodeException)
    lines = str(error).splitlines()
    assert (
        lines[0] == "MapBatches(fails_on_42) failed on rows 0 to 9 of its task with ValueError: "
        "cannot take 42"
    )
    assert "in fails_on_42" in str(error)
    assert lines[-1] == "ValueError: cannot take 42"
    assert "/syncline/" not in str(error), "syncline's own frames are left out"
    with pytest.raises(StopIteration):
        next(execution)


def test_the_original_error_is_raised_where_the_context_says_so():
    context = DataContext(raise_original_map_exception=True)
    with pytest.raises(ValueError, match="cannot take 42") as caught:
        list(execute(numbers(100, 10), mapped(fails_on_42), context=context))
    assert type(caught.value) is ValueError


def test_an_excused_error_drops_its_block():
    context = DataContext(max_errored_blocks=1)
    assert ids(execute(numbers(100, 10), mapped(fails_on_42), context=context)) == [
        *range(40),
        *range(50, 100),
    ]


def test_a_task_is_tried_again_after_errors_that_the_context_lists():
    attempts = []

    def fails_twice(batch):
        attempts.append(1)
        if len(attempts) < 3:
            raise ConnectionError("no answer")
        return batch

    context = DataContext(retried_map_errors=[ConnectionError], max_map_retries=2)
    assert ids(execute(numbers(5, 1), mapped(fails_twice), context=context)) == list(range(5))
    attempts.clear()
    with pytest.raises(ConnectionError):
        ids(
            execute(
                numbers(5, 1),
                mapped(fails_twice),
                context=DataContext(retried_map_errors=True, max_map_retries=1),
            )
        )


def test_rows_left_out_are_counted_with_their_places():
    execution = execute(numbers(100, 2), mapped(fails_on_42, batch_size=10, on_error="skip"))
    assert ids(execution) == [*range(40), *range(50, 100)]
    (skipped,) = execution.stats().skipped
    assert (skipped.task, skipped.rows.first_row, skipped.rows.rows) == (0, 40, 10)
    assert "10 rows were left out" in execution.stats().to_string()


@pytest.mark.parametrize("taken", [0, 1, 4, 9])
def test_an_execution_starts_again_at_any_block(taken):
    stages = (numbers(100, 10), mapped(doubled))
    blocks = list(execute(*stages))
    restart = blocks[taken].restart
    assert restart.point[:2] == [2, 64 * 2**20]
    again = execute(*stages, first_row=restart.index, point=restart.point[2])
    rest = list(again)
    assert [block.restart for block in rest] == [block.restart for block in blocks[taken:]]
    assert [block.table() for block in rest] == [block.table() for block in blocks[taken:]]


def exchange(sample=None, prepare=None, *, direct_bytes=0) -> Stage:
    def at_random(table, parts, prepared, number):
        return partition.at_random(table, parts, [7, number])

    grouping = ExchangeRows(
        partition=(at_random,),
        parts=3,
        default_parts=3,
        direct_bytes=direct_bytes,
        sample=sample,
        prepare=prepare,
        executor=Threads(),
    )
    return Stage(
        name="Shuffle",
        inputs=(0,),
        grouping=grouping,
        chain=Chain(head=concatenate, context=DataContext()),
    )


def test_an_exchange_delivers_every_row_once():
    blocks = [block.table()["id"].to_pylist() for block in execute(numbers(100, 5), exchange())]
    assert len(blocks) == 3
    assert sorted(row for block in blocks for row in block) == list(range(100))


def test_samples_are_prepared_in_order_once():
    seen = []

    def prepare(samples, parts):
        seen.append(([sample["id"][0].as_py() for sample in samples], parts))
        return "prepared"

    execution = execute(numbers(50, 5), exchange(lambda table, number: table.slice(0, 1), prepare))
    assert sorted(ids(execution)) == list(range(50))
    assert seen == [([0, 10, 20, 30, 40], 3)]


def test_an_error_while_samples_are_prepared_ends_the_execution():
    def prepare(samples, parts):
        raise TypeError("cannot be sorted")

    with pytest.raises(TypeError, match="cannot be sorted") as caught:
        list(execute(numbers(50, 5), exchange(lambda table, number: table.slice(0, 1), prepare)))
    assert "Shuffle failed with TypeError" in str(caught.value)


def test_a_class_is_constructed_once_and_its_error_is_the_program_s():
    made = []

    class Adds:
        def __init__(self, amount):
            made.append(amount)
            if amount < 0:
                raise ValueError("only more")

        def __call__(self, batch):
            return {"id": batch["id"] + made[0]}

    stage = mapped(Adds, executor=actors(), constructor_args=(5,))
    assert ids(execute(numbers(20, 4), stage)) == list(range(5, 25))
    assert made == [5]
    with pytest.raises(ValueError, match="only more"):
        ids(execute(numbers(20, 4), mapped(Adds, executor=actors(), constructor_args=(-1,))))


def test_a_closed_execution_lets_go_of_its_blocks_and_ends():
    execution = execute(numbers(100, 10))
    block = next(execution)
    execution.close()
    execution.close()
    with pytest.raises(StopIteration):
        next(execution)
    assert block.table().num_rows == 10, "what was taken stays"


def test_an_interrupt_in_a_function_ends_the_execution():
    def interrupted(batch):
        raise KeyboardInterrupt

    execution = execute(numbers(10, 2), mapped(interrupted))
    with pytest.raises(KeyboardInterrupt):
        next(execution)
    with pytest.raises(StopIteration):
        next(execution)


def test_statistics_count_what_each_operator_did():
    execution = execute(numbers(1000, 10), mapped(doubled, batch_size=10))
    ids(execution)
    stats = execution.stats()
    read, work = stats.operators
    assert (read.name, read.tasks, read.blocks, read.rows, read.size_bytes) == (
        "ReadRange",
        10,
        10,
        1000,
        8000,
    )
    assert (work.tasks, work.rows) == (10, 1000)
    assert 0 < work.function_s <= work.wall_s <= stats.wall_s
    assert read.function_s == 0
    assert (stats.rows, stats.blocks) == (1000, 10)


def test_a_step_that_changes_a_chain_of_arrays_sees_the_context_of_the_dataset():
    seen = []

    def look(batch):
        seen.append(DataContext.get_current().get_config("colour"))
        return batch

    context = DataContext()
    context.set_config("colour", "blue")
    ids(execute(numbers(10, 2), mapped(look, context=context)))
    assert set(seen) == {"blue"}


def test_a_read_error_is_an_error_of_the_operator():
    def broken(batch):
        return {"id": np.zeros(3), "other": np.zeros(4)}

    with pytest.raises(ValueError, match="equally long"):
        ids(execute(numbers(10, 2, steps=[batch_step(broken)])))


def test_an_execution_that_has_ended_is_freed_without_a_garbage_collection():
    class Big:
        def __call__(self, batch):
            return batch

    gc.collect()
    gc.disable()
    try:
        function = Big()
        gone = weakref.ref(function)
        ids(execute(numbers(10, 2), mapped(function)))
        del function
        assert gone() is None
    finally:
        gc.enable()
