import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from syncline.data.execute.physical_plan import TaskState
from syncline.data.execute.steps.block_steps import WriteStep
from syncline.data.execute.steps.function_steps import MapRowsStep
from syncline.data.execute.steps.user_functions import UserFunctionError
from syncline.data.io.sinks.datasink import Datasink, TaskContext, WriteResult
from syncline.data.io.sinks.parquet import ParquetDatasink
from syncline.data.plan.nodes import UserFunction

Run = Callable[..., pa.Table]
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
