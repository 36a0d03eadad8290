"""Blocks by number, which of them lie in the object store, and what a program takes out of an
outbox.
"""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

import syncline
from syncline.core.refs import ObjectRef
from syncline.data.execute.block_store import BlockStore, OutputBlock, StoredBlock
from syncline.data.execute.driver_queues import OutputQueue
from syncline.data.execute.physical_plan import (
    ExchangeRows,
    LimitRows,
    RepartitionRows,
    Stage,
    Threads,
    UnionInputs,
    Workers,
    held_blocks,
    stages_to_store,
)
from syncline.data.iterate.position import Restart
from tests.data.execute.handmade import actors, held, mapped, numbers


@pytest.fixture(autouse=True, scope="module")
def local_engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


TABLE = pa.table({"id": list(range(10))})


def test_blocks_are_numbered_and_held_ones_count_backwards():
    store = BlockStore(held_blocks((held(TABLE, TABLE.slice(5)), held(TABLE.slice(8)))))
    assert [store[number].rows for number in (-3, -2, -1)] == [10, 5, 2]
    number = store.add(TABLE, 10, 80)
    assert store[number].value is TABLE
    store.drop(number)
    store.drop(-1)
    assert len(store) == 0
    with pytest.raises(KeyError):
        store[number]


def test_a_table_is_put_once_without_what_it_was_cut_from():
    stored = StoredBlock(TABLE.slice(3, 2), 2, 16)
    reference = stored.in_store()
    assert isinstance(reference, ObjectRef)
    assert stored.in_store() is reference
    assert syncline.get(reference)["id"].to_pylist() == [3, 4]


def passing(grouping, *inputs: int) -> Stage:
    return Stage(name="passes", inputs=inputs, grouping=grouping)


def exchange(executor) -> Stage:
    def partition(table, parts, prepared, number):
        raise NotImplementedError

    return Stage(
        name="Sort",
        inputs=(0,),
        grouping=ExchangeRows(
            partition=(partition,), parts=None, default_parts=2, direct_bytes=0, executor=executor
        ),
    )


@pytest.mark.parametrize(
    ("stages", "stored"),
    [
        ((numbers(4, 2),), set()),
        ((numbers(4, 2), mapped(len)), {0}),
        ((numbers(4, 2), mapped(len, executor=actors())), {0}),
        ((numbers(4, 2), mapped(len, executor=Threads())), set()),
        ((numbers(4, 2), exchange(Threads())), {0}),
        ((numbers(4, 2), exchange(Workers())), {0}),
        ((numbers(4, 2), passing(LimitRows(rows=1), 0)), set()),
        ((numbers(4, 2), passing(LimitRows(rows=1), 0), mapped(len, on=1)), {0, 1}),
        (
            (numbers(4, 2), numbers(4, 2), passing(UnionInputs(), 0, 1), mapped(len, on=2)),
            {0, 1, 2},
        ),
        ((numbers(4, 2), passing(RepartitionRows(parts=2), 0)), {0}),
        ((held(TABLE), mapped(len)), set()),
    ],
)
def test_what_workers_need_and_what_is_gathered_lies_in_the_object_store(
    stages: tuple[Stage, ...], stored: set[int]
):
    assert stages_to_store(stages) == stored


def output(start: int, rows: int) -> OutputBlock:
    return OutputBlock(
        num_rows=rows,
        size_bytes=8 * rows,
        restart=Restart(index=start),
        _stored=StoredBlock(TABLE, 10, 80),
        _start=start,
    )


def test_an_output_block_is_a_slice_here_and_in_the_object_store():
    block = output(4, 3)
    assert block.table()["id"].to_pylist() == [4, 5, 6]
    assert syncline.get(block.reference())["id"].to_pylist() == [4, 5, 6]


def test_an_output_queue_gives_blocks_then_the_error_once_then_the_end():
    queue = OutputQueue()
    assert queue.take(0.0) is None
    first = output(0, 1)
    queue.deliver(first)
    queue.end(KeyError("lost"))
    queue.end(None)
    assert queue.take(None) is first
    with pytest.raises(KeyError):
        queue.take(None)
    with pytest.raises(StopIteration):
        queue.take(None)


def test_an_output_queue_wakes_who_waits():
    queue = OutputQueue()
    taken: list[OutputBlock | None] = []
    thread = threading.Thread(target=lambda: taken.append(queue.take(60)), daemon=True)
    thread.start()
    queue.deliver(output(0, 1))
    thread.join(60)
    assert len(taken) == 1
    assert queue.waited_s < 60


def test_a_cleared_output_queue_is_at_its_end():
    queue = OutputQueue()
    queue.deliver(output(0, 1))
    queue.clear()
    queue.deliver(output(0, 1))
    with pytest.raises(StopIteration):
        queue.take(None)
