"""Executions that lose blocks, as on a cluster whose nodes die: the output goes on at the first
missing row, or ends in an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import syncline
from syncline import data
from syncline.core import api
from syncline.data.context import DataContext
from syncline.data.execute.execution import Execution, start_execution
from syncline.exceptions import ObjectLostError

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    with DataContext.current(DataContext(enable_progress_bars=False)):
        yield
    syncline.shutdown()


def numbers() -> data.Dataset:
    return data.range(60, override_num_blocks=6).map_batches(lambda batch: {"id": batch["id"]})


def filled(cached: data.Dataset) -> data.Dataset:
    cached.take_all()
    return cached


PIPELINES: dict[str, Callable[[], data.Dataset]] = {
    "tasks": numbers,
    "limit": lambda: numbers().limit(47),
    "shuffle": lambda: numbers().random_shuffle().repartition(4, keys=["id"]),
    "order": lambda: numbers().randomize_block_order(),
    "zip": lambda: numbers().zip(
        data.range(60, override_num_blocks=4).rename_columns({"id": "other"})
    ),
    "union": lambda: numbers().union(numbers()),
    "rows": lambda: numbers().repartition(target_num_rows_per_block=7, strict=True),
    "cache, empty": lambda: numbers().cache().map_batches(lambda batch: {"id": -batch["id"]}),
    "cache, filled": lambda: filled(numbers().cache()).map_batches(
        lambda batch: {"id": -batch["id"]}
    ),
    "mix": lambda: numbers().mix(numbers(), weights=[0.7, 0.3]),
}


def begun(dataset: data.Dataset) -> Execution:
    return start_execution(dataset._node, dataset.context, seed=3)


def ids(blocks: Iterator[Any]) -> list[int]:
    return [row for block in blocks for row in block.table()["id"].to_pylist()]


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("after", [0, 2])
def test_what_was_not_taken_is_executed_again(name: str, after: int) -> None:
    with begun(PIPELINES[name]()) as undisturbed:
        expected = ids(undisturbed)
    with begun(PIPELINES[name]()) as execution:
        found = [row for _ in range(after) for row in next(execution).table()["id"].to_pylist()]
        execution._driver.fail(ObjectLostError("a block is gone"))
        assert found + ids(execution) == expected


@pytest.mark.parametrize("lost", [0, 3])
def test_rows_that_were_taken_but_lost_are_made_again(
    monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    calls = []

    def loses_one(reference: Any) -> Any:
        calls.append(reference)
        if len(calls) == lost + 1:
            raise ObjectLostError("a block is gone")
        return syncline.get(reference)

    monkeypatch.setattr(api, "get", loses_one)
    with (
        begun(numbers().sort("id")) as one,
        begun(numbers().map_batches(lambda batch: batch, num_cpus=0.5)) as other,
    ):
        assert ids(one) == ids(other) == list(range(60))
    assert len(calls) > lost


def test_a_block_is_made_again_although_others_were_taken_since() -> None:
    with begun(numbers()) as execution:
        blocks = list(execution)
    for block in blocks:
        assert block._recompute is not None
        made = block._recompute(block.restart, block.num_rows, ObjectLostError("a block is gone"))
        assert made["id"].to_pylist() == list(
            range(block.restart.index, block.restart.index + block.num_rows)
        )


def test_a_loss_that_comes_again_and_again_is_an_error() -> None:
    error = ObjectLostError("a block is gone")
    with begun(numbers()) as execution:
        block = next(execution)
        for _ in range(3):
            assert execution._recompute(block.restart, block.num_rows, error)[
                "id"
            ].to_pylist() == list(range(10))
        with pytest.raises(ObjectLostError, match=r"Row 0 was lost 4 times\. a block is gone"):
            execution._recompute(block.restart, block.num_rows, error)


def test_without_order_nothing_can_be_made_again() -> None:
    context = DataContext(enable_progress_bars=False)
    context.execution_options.preserve_order = False
    with DataContext.current(context):
        dataset = numbers()
    with begun(dataset) as execution:
        execution._driver.fail(ObjectLostError("a block is gone"))
        with pytest.raises(ObjectLostError, match="preserve_order=False"):
            list(execution)
