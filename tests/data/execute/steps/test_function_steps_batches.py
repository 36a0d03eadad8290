import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.columnar import block as block_functions
from syncline.data.execute.physical_plan import TaskState
from syncline.data.execute.steps.function_steps import MapBatchesStep, MapRowsStep
from syncline.data.execute.steps.user_functions import UserFunctionError
from syncline.data.plan.nodes import UserFunction

Run = Callable[..., pa.Table]
LIMIT_S = 30


def step(
    function: Any,
    *,
    batch_size: Any = None,
    batch_format: Any = "default",
    zero_copy: bool = True,
    **options: Any,
) -> MapBatchesStep:
    keeps = options.pop("keeps_row_count", False)
    spec = UserFunction(function=function, **options)
    return MapBatchesStep(
        function=spec,
        name="MapBatches(f)",
        batch_size=batch_size,
        batch_format=batch_format,
        zero_copy=zero_copy,
        keeps_row_count=keeps,
    )


def ids(count: int, start: int = 0) -> pa.Table:
    return pa.table({"id": np.arange(start, start + count)})


def sizes_of(run_steps: Run, tables: list[pa.Table], **options: Any) -> list[int]:
    seen: list[int] = []

    def look(batch: Any) -> Any:
        seen.append(len(batch["id"]))
        return batch

    made = run_steps(tables, step(look, **options))
    assert made.column("id").to_pylist() == [
        number for table in tables for number in table.column("id").to_pylist()
    ]
    return seen


def test_without_a_size_batches_are_the_blocks_that_have_rows(run_steps: Run) -> None:
    assert sizes_of(run_steps, [ids(3), ids(0), ids(4, 3)]) == [3, 4]


def test_batches_of_a_size_go_across_blocks(run_steps: Run) -> None:
    assert sizes_of(run_steps, [ids(3), ids(1, 3), ids(7, 4)], batch_size=4) == [4, 4, 3]
    assert sizes_of(run_steps, [ids(10)], batch_size=100) == [10]


def test_auto_sizes_batches_by_their_bytes(run_steps: Run) -> None:
    table = pa.table({"id": np.arange(40), "payload": pa.array([bytes(1024 * 1024)] * 40)})
    sizes = sizes_of(run_steps, [table], batch_size="auto")
    assert sum(sizes) == 40
    assert 8 <= sizes[0] <= 20


@pytest.mark.parametrize(
    ("batch_format", "kind"),
    [
        ("default", dict),
        ("numpy", dict),
        ("pandas", pd.DataFrame),
        ("pyarrow", pa.Table),
        (None, pa.Table),
    ],
)
def test_batches_have_the_format_asked_for_and_may_be_returned_as_they_are(
    run_steps: Run, batch_format: Any, kind: type
) -> None:
    def look(batch: Any) -> Any:
        assert isinstance(batch, kind)
        return batch

    assert run_steps([ids(3)], step(look, batch_format=batch_format)).to_pydict() == {
        "id": [0, 1, 2]
    }


def test_zero_copy_batches_are_read_only_and_others_may_be_changed(run_steps: Run) -> None:
    def add(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        batch["id"] += 1
        return batch

    table = ids(3)
    with pytest.raises(UserFunctionError, match="read-only"):
        run_steps([table], step(add))
    assert run_steps([table], step(add, zero_copy=False)).column("id").to_pylist() == [1, 2, 3]
    assert table.column("id").to_pylist() == [0, 1, 2]


def test_the_identity_on_numpy_batches_copies_nothing(run_steps: Run) -> None:
    table = ids(1000)
    made = run_steps([table], step(lambda batch: batch))
    assert (
        made.column("id").chunk(0).buffers()[1].address
        == table.column("id").chunk(0).buffers()[1].address
    )


def test_the_index_of_a_frame_is_ignored(run_steps: Run) -> None:
    made = run_steps(
        [ids(4)], step(lambda frame: frame[frame["id"] % 2 == 1], batch_format="pandas")
    )
    assert made.to_pydict() == {"id": [1, 3]}


def test_returned_columns_may_be_lists_or_arrays(run_steps: Run) -> None:
    made = run_steps([ids(2)], step(lambda batch: {"a": ["x", "y"], "b": np.ones((2, 2, 2))}))
    assert made.column("a").to_pylist() == ["x", "y"]
    assert made.schema.field("b").type == pa.fixed_shape_tensor(pa.float64(), (2, 2))


def test_a_generator_yields_several_batches_as_they_are_asked_for() -> None:
    yielded: list[int] = []

    def several(batch: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
        for number in range(3):
            yielded.append(number)
            yield {"id": batch["id"] + 10 * number}

    one = step(several)
    one.open()
    tables = one.run(iter([ids(2)]), TaskState())
    assert next(tables).column("id").to_pylist() == [0, 1]
    assert yielded == [0]
    assert [table.column("id").to_pylist() for table in tables] == [[10, 11], [20, 21]]


@pytest.mark.parametrize("returned", [np.arange(3), [1, 2, 3], 5, None, "text"])
def test_what_is_no_batch_is_a_value_error_of_the_function(run_steps: Run, returned: Any) -> None:
    with pytest.raises(UserFunctionError, match=type(returned).__name__) as raised:
        run_steps(
            [ids(3), ids(2, 3)], step(lambda batch: returned if batch["id"][0] == 3 else batch)
        )
    assert isinstance(raised.value.original, ValueError)
    assert raised.value.rows == range(3, 5)


def test_columns_of_different_lengths_are_an_error_of_the_function(run_steps: Run) -> None:
    with pytest.raises(UserFunctionError, match="'a': 1, 'b': 2"):
        run_steps([ids(3)], step(lambda batch: {"a": [1], "b": [1, 2]}))


def test_a_promise_of_as_many_rows_is_held_to(run_steps: Run) -> None:
    assert (
        run_steps([ids(4)], step(lambda batch: {"y": -batch["id"]}, keeps_row_count=True)).num_rows
        == 4
    )
    with pytest.raises(UserFunctionError, match="returned 2 rows for a batch of 4"):
        run_steps([ids(4)], step(lambda batch: {"y": batch["id"][:2]}, keeps_row_count=True))


def test_skip_leaves_out_failing_batches_as_a_whole(run_steps: Run) -> None:
    task = TaskState()

    def fails(batch: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
        yield {"id": batch["id"][:1]}
        if 4 in batch["id"]:
            raise ValueError("four")
        yield {"id": batch["id"][1:]}

    made = run_steps([ids(10)], step(fails, batch_size=3, on_error="skip"), task=task)
    assert made.column("id").to_pylist() == [0, 1, 2, 6, 7, 8, 9]
    assert [(skipped.first_row, skipped.rows, skipped.error) for skipped in task.skipped] == [
        (3, 3, "ValueError: four")
    ]


def test_the_types_of_a_batch_that_is_left_out_do_not_count(run_steps: Run) -> None:
    def fails(batch: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
        if batch["id"][0] == 0:
            yield {"y": ["text"]}
            raise ValueError("first")
        yield {"y": batch["id"]}

    assert run_steps([ids(4)], step(fails, batch_size=1, on_error="skip")).column(
        "y"
    ).to_pylist() == [1, 2, 3]


def test_batches_whose_types_do_not_go_together_are_an_error_that_names_column_and_rows(
    run_steps: Run,
) -> None:
    changing = step(
        lambda batch: {"y": batch["id"] if batch["id"][0] < 4 else ["x"] * len(batch["id"])},
        batch_size=2,
    )
    with pytest.raises(
        UserFunctionError, match=r"rows 4 to 5.*'y' is int64 in one and string in another"
    ):
        run_steps([ids(6)], changing)


def test_a_class_is_constructed_once_and_keeps_what_it_holds(run_steps: Run) -> None:
    class Count:
        def __init__(self, start: int, *, by: int) -> None:
            self.calls, self.by = start, by

        def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
            self.calls += self.by
            return {"calls": [self.calls]}

    counting = step(Count, batch_size=2, constructor_args=(10,), constructor_kwargs={"by": 5})
    assert run_steps([ids(6)], counting).column("calls").to_pylist() == [15, 20, 25]


def test_a_class_that_cannot_be_constructed_names_the_operator(run_steps: Run) -> None:
    class Broken:
        def __init__(self) -> None:
            raise RuntimeError("no model")

        def __call__(self, batch: Any) -> Any:
            return batch

    with pytest.raises(UserFunctionError, match="no model") as raised:
        run_steps([ids(1)], step(Broken))
    assert raised.value.operator == "MapBatches(f)"
    assert not raised.value.rows


class Meeting:
    """Async: a call only returns when `together` calls have begun."""

    def __init__(self, together: int) -> None:
        self.together, self.begun = together, 0
        self.full = asyncio.Event()

    async def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, Any]:
        self.begun += 1
        if self.begun >= self.together:
            self.full.set()
        await asyncio.wait_for(self.full.wait(), LIMIT_S)
        await asyncio.sleep(0.001 * (10 - batch["id"][0]))
        return batch


def test_async_calls_run_together_and_their_results_come_in_order(run_steps: Run) -> None:
    meeting = step(Meeting, batch_size=1, constructor_args=(4,))
    assert run_steps([ids(6)], meeting).column("id").to_pylist() == list(range(6))


def test_async_generators_yield_several_batches(run_steps: Run) -> None:
    async def several(batch: dict[str, np.ndarray]) -> AsyncIterator[dict[str, Any]]:
        for number in range(2):
            await asyncio.sleep(0)
            yield {"id": batch["id"] + 10 * number}

    assert run_steps([ids(4)], step(several, batch_size=2)).column("id").to_pylist() == [
        0,
        1,
        10,
        11,
        2,
        3,
        12,
        13,
    ]


def test_failing_async_calls_are_raised_or_left_out(run_steps: Run) -> None:
    async def fails(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        if 2 in batch["id"]:
            raise KeyError("two")
        return batch

    with pytest.raises(UserFunctionError, match="rows 2 to 3") as raised:
        run_steps([ids(6)], step(fails, batch_size=2))
    assert isinstance(raised.value.original, KeyError)
    task = TaskState()
    made = run_steps([ids(6)], step(fails, batch_size=2, on_error="skip"), task=task)
    assert made.column("id").to_pylist() == [0, 1, 4, 5]
    assert [(skipped.first_row, skipped.rows) for skipped in task.skipped] == [(2, 2)]


def test_an_async_call_that_takes_too_long_is_cancelled_and_left_out(run_steps: Run) -> None:
    cancelled: list[int] = []

    async def timed_out(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        if batch["id"][0] == 1:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append(1)
                raise
        return batch

    task = TaskState()
    made = run_steps(
        [ids(3)], step(timed_out, batch_size=1, timeout_s=0.2, on_error="skip"), task=task
    )
    assert made.column("id").to_pylist() == [0, 2]
    assert cancelled == [1]
    assert task.skipped[0].error == "TimeoutError: the call took longer than 0.2 s"


def test_leaving_the_loop_cancels_async_calls_that_run() -> None:
    cancelled: list[int] = []

    async def first_only(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        if batch["id"][0]:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                cancelled.append(int(batch["id"][0]))
                raise
        return batch

    one = step(first_only, batch_size=1)
    one.open()
    tables: Any = one.run(iter([ids(10)]), TaskState())
    assert next(tables).column("id").to_pylist() == [0]
    tables.close()
    one.close()
    assert cancelled == [1, 2, 3]


def test_an_async_function_of_rows_works_on_several_at_once(run_steps: Run) -> None:
    begun: list[int] = []
    full = asyncio.Event()

    async def wait_for_others(row: dict[str, Any]) -> dict[str, Any]:
        begun.append(row["id"])
        if len(begun) == 10:
            full.set()
        await asyncio.wait_for(full.wait(), LIMIT_S)
        return {"y": row["id"]}

    made = run_steps(
        [ids(10)], MapRowsStep(function=UserFunction(function=wait_for_others), name="Map")
    )
    assert made.column("y").to_pylist() == list(range(10))


def test_writable_pandas_batches_do_not_change_the_block(run_steps: Run) -> None:
    def add(frame: pd.DataFrame) -> pd.DataFrame:
        frame["id"] += 1
        return frame

    table = ids(3)
    assert run_steps([table], step(add, batch_format="pandas", zero_copy=False)).column(
        "id"
    ).to_pylist() == [1, 2, 3]
    assert block_functions.to_batch(table)["id"].tolist() == [0, 1, 2]
