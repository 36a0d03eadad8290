"""Dask on worker processes: the taxi program's preparation, large graphs, shared arrays, errors,
interrupts; the import without Dask.
"""

from __future__ import annotations

import _thread
import operator
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dask")

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from dask.diagnostics import ProgressBar

import syncline
from syncline.exceptions import WorkerCrashedError
from syncline.util.dask import (
    ProgressBarCallback,
    RayDaskCallback,
    enable_dask_on_ray,
    ray_dask_get,
)

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    with enable_dask_on_ray():
        yield
    syncline.shutdown()


@pytest.mark.long
def test_preparation_of_the_taxi_data_gives_exactly_what_dask_gives(taxi_rides: Any) -> None:
    plain = taxi_rides.compute(scheduler="sync")
    assert 500 < len(plain) < 5000
    pd.testing.assert_frame_equal(taxi_rides.compute(), plain)
    pd.testing.assert_frame_equal(taxi_rides.persist().compute(), plain)
    big_tips = taxi_rides.groupby("day_of_week").is_big_tip.mean()
    assert big_tips.compute().equals(big_tips.compute(scheduler="sync"))
    shuffled = taxi_rides.shuffle("hour", npartitions=3)
    assert (
        shuffled.map_partitions(len).compute().tolist()
        == shuffled.map_partitions(len).compute(scheduler="sync").tolist()
    )


def test_graph_of_ten_thousand_tasks() -> None:
    def inc(x: int) -> int:
        return x + 1

    graph: dict[Any, Any] = {("inc", i): (inc, i) for i in range(10_000)}
    graph["sum"] = (sum, list(graph))
    assert ray_dask_get(graph, "sum") == sum(range(1, 10_001))


def test_tasks_run_in_other_processes_and_share_large_arrays() -> None:
    def is_shared(x: np.ndarray) -> bool:
        return not x.flags.owndata and not x.flags.writeable

    array = da.arange(200_000, chunks=100_000).persist()
    assert (
        array.map_blocks(lambda block: np.array([is_shared(block)]), dtype=bool, chunks=(1,))
        .compute()
        .all()
    )
    assert delayed(os.getpid)().compute() != os.getpid()


@pytest.mark.skipif(
    int(pd.__version__.partition(".")[0]) < 3, reason="pandas copies on write since 3"
)
def test_task_that_writes_to_a_table_writes_to_its_own() -> None:
    plain = dd.from_pandas(
        pd.DataFrame({"a": np.arange(100_000.0), "b": 1.0}), npartitions=2
    ).map_partitions(lambda part: part * 2)
    before = plain.persist()

    def write(part: pd.DataFrame) -> pd.DataFrame:
        part.loc[part.a > 100, "b"] = 0.0
        part.iloc[0, 0] = -1.0
        part["c"] = part.pop("a")
        return part

    kept, changed = dask.compute(
        before, before.map_partitions(write, meta={"b": float, "c": float})
    )
    pd.testing.assert_frame_equal(
        changed,
        plain.map_partitions(write, meta={"b": float, "c": float}).compute(scheduler="threads"),
    )
    assert kept.b.eq(2.0).all()
    assert list(kept.columns) == ["a", "b"]


def test_task_that_writes_to_an_array_is_told_to_copy_it() -> None:
    def write(block: np.ndarray) -> np.ndarray:
        block[0] = -1
        return block

    array = da.arange(200_000, chunks=100_000).persist()
    with pytest.raises(ValueError, match=r"read-only\..*`x = x.copy\(\)`"):
        array.map_blocks(write).compute()
    assert array.map_blocks(lambda block: write(block.copy())).min().compute() == -1


def test_results_belong_to_the_caller() -> None:
    array = da.arange(200_000, chunks=100_000).compute()
    table = dd.from_pandas(pd.DataFrame({"a": np.arange(200_000.0)}), npartitions=2).compute()
    single, (inside, more) = dask.compute(
        delayed(np.ones)(200_000),
        delayed(lambda: (np.ones(200_000), {"k": pd.Series(np.ones(9))}))(),
    )
    array[0] = single[0] = inside[0] = more["k"].iloc[0] = 5
    table.loc[table.a > 7, "a"] = 0.0
    assert (array[0], single[0], inside[0], more["k"][0], table.a.sum()) == (5, 5, 5, 5, 28)


def test_error_of_a_task_names_its_key() -> None:
    with pytest.raises(ZeroDivisionError, match="'the-key'"):
        delayed(operator.truediv)(1, 0, dask_key_name="the-key").compute()


def test_death_of_a_worker_names_the_key() -> None:
    with pytest.raises(WorkerCrashedError, match="'deadly'"):
        delayed(os._exit)(3, dask_key_name="deadly").compute(ray_remote_args={"max_retries": 0})


def test_interrupt_cancels_what_runs(tmp_path: Path) -> None:
    began, undone = tmp_path / "began", tmp_path / "undone"

    def long() -> None:
        began.touch()
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            undone.touch()
            raise

    def interrupt() -> None:
        wait_for(began)
        _thread.interrupt_main()

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        delayed(long)().compute()
    wait_for(undone)


def wait_for(path: Path) -> None:
    until = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < until, f"{path.name} did not happen"
        time.sleep(0.02)


def test_nested_graphs_do_not_wait_for_one_another_forever() -> None:
    def nested(n: int) -> int:
        return int(
            delayed(sum)([delayed(abs)(i) for i in range(n)]).compute(scheduler=ray_dask_get)
        )

    assert dask.compute(*[delayed(nested)(n) for n in range(5)]) == (0, 0, 1, 3, 6)


def test_task_callbacks_travel_to_the_workers(tmp_path: Path) -> None:
    class Log(RayDaskCallback):
        def _ray_pretask(self, key: Any, object_refs: list[Any]) -> int:
            return os.getpid()

        def _ray_posttask(self, key: Any, result: Any, pre_state: int) -> None:
            (tmp_path / str(key)).write_text(f"{result} {pre_state != 0}")

    with Log():
        assert ray_dask_get({"a": (operator.add, 1, 1), "b": (operator.add, "a", 1)}, "b") == 3
    assert [(tmp_path / key).read_text() for key in "ab"] == ["2 True", "3 True"]


def test_progress_bars_of_both_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    x = da.arange(100, chunks=10).sum()
    with ProgressBarCallback():
        assert x.compute() == 4950
    shown = capsys.readouterr()
    assert shown.out + shown.err == ""
    with ProgressBar():
        assert x.compute() == 4950
    assert "100%" in capsys.readouterr().out


def test_import_without_dask_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['dask'] = None\ntry:\n    import syncline.util.dask\nexcept "
        "ImportError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert 'pip install "syncline[dask]"' in done.stdout, done.stderr
