from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.data.columnar.aggregate import Count, Sum
from syncline.data.columnar.expressions import col, monotonically_increasing_id, random, star, uuid
from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.execute.physical_plan import TaskState
from syncline.data.execute.steps.block_steps import (
    AggregateStep,
    FilterExprStep,
    ProjectStep,
    RandomSampleStep,
    WriteStep,
)
from syncline.data.execute.steps.function_steps import MapRowsStep
from syncline.data.execute.steps.heads import AggregateHead
from syncline.data.execute.steps.user_functions import UserFunctionError
from syncline.data.io.sinks.datasink import Datasink, TaskContext, WriteResult
from syncline.data.io.sinks.parquet import ParquetDatasink
from syncline.data.plan.nodes import UserFunction

Run = Callable[..., pa.Table]
TABLE = pa.table({"a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"]})


def pieces(table: pa.Table, *cuts: int) -> list[pa.Table]:
    bounds = [0, *cuts, table.num_rows]
    return [
        table.slice(start, stop - start) for start, stop in zip(bounds, bounds[1:], strict=False)
    ]


def test_project_computes_columns(run_steps: Run) -> None:
    made = run_steps(
        [TABLE], ProjectStep(name="Project", expressions=(star(), (col("a") * 2).alias("c")))
    )
    assert made.column_names == ["a", "b", "c"]
    assert made.column("c").to_pylist() == [2, 4, 6, 8]


def test_project_drops_and_renames(run_steps: Run) -> None:
    assert run_steps([TABLE], ProjectStep(name="Project", dropped=("a",))).column_names == ["b"]
    assert run_steps(
        [TABLE], ProjectStep(name="Project", renamed={"b": "a", "a": "b"})
    ).to_pydict() == {"b": [1, 2, 3, 4], "a": ["w", "x", "y", "z"]}


def test_unknown_columns_and_names_given_twice_are_errors(run_steps: Run) -> None:
    for step in (
        ProjectStep(name="P", dropped=("c",)),
        ProjectStep(name="P", renamed={"c": "d"}),
        ProjectStep(name="P", expressions=(col("c"),)),
    ):
        with pytest.raises(UserFunctionError) as raised:
            run_steps([TABLE], step)
        assert isinstance(raised.value.original, UnknownColumnError)
    with pytest.raises(UserFunctionError, match="several columns named 'b'"):
        run_steps([TABLE], ProjectStep(name="P", renamed={"a": "b"}))


def test_project_to_no_columns_counts_rows(run_steps: Run) -> None:
    assert run_steps(pieces(TABLE, 1), ProjectStep(name="P", dropped=("a", "b"))).num_rows == 4


def test_filter_keeps_rows_and_the_schema(run_steps: Run) -> None:
    assert run_steps([TABLE], FilterExprStep(name="Filter", predicate=col("a") > 2)).column(
        "b"
    ).to_pylist() == ["y", "z"]
    assert (
        run_steps([TABLE], FilterExprStep(name="Filter", predicate=col("a") > 9)).schema
        == TABLE.schema
    )


def test_an_error_of_an_expression_names_operator_and_rows(run_steps: Run) -> None:
    with pytest.raises(UserFunctionError) as raised:
        run_steps(
            pieces(TABLE, 3),
            ProjectStep(name="Project", expressions=((col("a") // (col("a") - 4)).alias("c"),)),
        )
    assert raised.value.operator == "Project"
    assert raised.value.rows == range(3, 4)
    assert isinstance(raised.value.original, ZeroDivisionError)


DRAWN = (
    random(seed=3).alias("r"),
    random().alias("s"),
    random().alias("t"),
    uuid().alias("u"),
    monotonically_increasing_id().alias("i"),
)


def test_what_is_drawn_is_the_same_when_a_task_runs_again_in_other_pieces(run_steps: Run) -> None:
    table = pa.table({"a": np.arange(100)})
    step = ProjectStep(name="Project", expressions=(star(), *DRAWN))
    task = {"stage": "S", "task": 3, "seed": 11, "epoch": 2}
    first = run_steps([table], step, task=TaskState(**task))
    assert (
        run_steps(pieces(table, 1, 6, 7, 50), step, task=TaskState(**task)).to_pydict()
        == first.to_pydict()
    )
    for changed in ({"task": 4}, {"seed": 12}, {"epoch": 3}):
        other = run_steps([table], step, task=TaskState(**{**task, **changed}))
        assert other.column("s").to_pylist() != first.column("s").to_pylist()
        assert not set(other.column("u").to_pylist()) & set(first.column("u").to_pylist())


def test_each_drawn_column_has_values_of_its_own(run_steps: Run) -> None:
    expressions = (*DRAWN, (random() - random()).alias("difference"))
    made = run_steps(
        [pa.table({"a": np.arange(1000)})], ProjectStep(name="Project", expressions=expressions)
    )
    assert made.column("s").to_pylist() != made.column("t").to_pylist()
    assert all(difference != 0 for difference in made.column("difference").to_pylist())
    assert len(set(made.column("u").to_pylist())) == 1000
    assert all(0 <= number < 1 for number in made.column("s").to_pylist())
    assert abs(np.mean(made.column("s").to_pylist()) - 0.5) < 0.05
    assert all(text[14] == "4" and text[19] in "89ab" for text in made.column("u").to_pylist())


def test_a_sample_is_drawn_by_task_and_row_whatever_the_pieces(run_steps: Run) -> None:
    table = pa.table({"a": np.arange(10_000)})
    step = RandomSampleStep(name="Sample", fraction=0.3, seed=5)
    kept = run_steps([table], step).column("a").to_pylist()
    assert 2700 < len(kept) < 3300
    assert kept == sorted(kept)
    assert run_steps(pieces(table, 3, 4097, 8000), step).column("a").to_pylist() == kept
    assert run_steps([table], step, task=TaskState(task=1)).column("a").to_pylist() != kept
    assert (
        run_steps([table], RandomSampleStep(name="Sample", fraction=0.3, seed=6))
        .column("a")
        .to_pylist()
        != kept
    )


def test_a_sample_without_a_seed_uses_that_of_the_execution(run_steps: Run) -> None:
    table = pa.table({"a": np.arange(1000)})
    step = RandomSampleStep(name="Sample", fraction=0.5)
    drawn = [
        run_steps([table], step, task=TaskState(seed=seed)).column("a").to_pylist()
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert run_steps([table], RandomSampleStep(name="Sample", fraction=1.0)).num_rows == 1000
    assert run_steps([table], RandomSampleStep(name="Sample", fraction=0.0)).schema == table.schema


def test_aggregate_gives_states_that_the_head_merges(run_steps: Run) -> None:
    aggregates = (Count(), Sum("a"))
    tables = [pa.table({"k": ["x", "y", "x"], "a": [1, 2, 3]}), pa.table({"k": ["y"], "a": [4]})]
    states = [
        run_steps([table], AggregateStep(name="Aggregate", keys=("k",), aggregates=aggregates))
        for table in tables
    ]
    (made,) = AggregateHead(keys=("k",), aggregates=aggregates)([states], None, TaskState())
    assert made.to_pydict() == {"k": ["x", "y"], "count()": [2, 2], "sum(a)": [4, 6]}


def test_an_error_of_an_aggregation_names_the_operator(run_steps: Run) -> None:
    with pytest.raises(UserFunctionError, match="Aggregate failed"):
        run_steps([TABLE], AggregateStep(name="Aggregate", keys=(), aggregates=(Sum("nothing"),)))


TABLES = [pa.table({"id": [1, 2]}), pa.table({"id": [3]})]


class TeeBlocks(Datasink[dict[str, Any]]):
    """Returns what it was given."""

    def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> dict[str, Any]:
        return {
            "sizes": [block.num_rows for block in blocks],
            "position": ctx.task_idx,
            "operator": ctx.op_name,
            "kwargs": ctx.kwargs,
        }


def test_a_task_is_one_call_on_its_blocks_and_one_row(run_steps: Run) -> None:
    made = run_steps(
        TABLES, WriteStep(name="Write", sink=TeeBlocks(), job="j1"), task=TaskState(task=4)
    )
    (row,) = made.to_pylist()
    assert row["num_rows"] == 3
    assert row["size_bytes"] == 24
    assert pickle.loads(row["return"]) == {
        "sizes": [2, 1],
        "position": 4,
        "operator": "Write",
        "kwargs": {"write_uuid": "j1"},
    }


def test_a_task_without_rows_is_written_too(run_steps: Run) -> None:
    (row,) = run_steps(
        [TABLES[0].slice(0, 0)], WriteStep(name="Write", sink=TeeBlocks())
    ).to_pylist()
    assert row["num_rows"] == 0


def test_errors_of_steps_before_are_not_those_of_the_sink(run_steps: Run) -> None:
    fails = MapRowsStep(function=UserFunction(function=lambda row: row["nothing"]), name="Map")
    with pytest.raises(UserFunctionError, match="Map failed"):
        run_steps(TABLES, fails, WriteStep(name="Write", sink=TeeBlocks()))


def test_errors_of_the_sink_are_raised_as_they_are(run_steps: Run) -> None:
    class Broken(Datasink[None]):
        def write(self, blocks: Iterable[pa.Table], ctx: TaskContext) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run_steps(TABLES, WriteStep(name="Write", sink=Broken()))


def test_files_appear_when_the_write_is_complete(run_steps: Run, tmp_path: Path) -> None:
    sink = ParquetDatasink(str(tmp_path / "out"))
    sink.on_write_start(TABLES[0].schema)
    (row,) = run_steps(TABLES, WriteStep(name="Write", sink=sink)).to_pylist()
    sink.on_write_complete(
        WriteResult(num_rows=3, size_bytes=24, write_returns=[pickle.loads(row["return"])])
    )
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(path).column("id").to_pylist() == [1, 2, 3]
