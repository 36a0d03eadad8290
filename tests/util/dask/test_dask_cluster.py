"""Dask on a Ray cluster of two nodes gives exactly what plain Dask gives, with values that stay in
the object store.
"""

from __future__ import annotations

import importlib.util
import io
import operator
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("dask")

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from dask.diagnostics import ProgressBar
from rich.console import Console

import syncline
from syncline.testing.clusters import RayCluster
from syncline.util.dask import (
    ProgressBarCallback,
    RayDaskCallback,
    disable_dask_on_syncline,
    enable_dask_on_ray,
    enable_dask_on_syncline,
    ray_dask_get,
    ray_dask_get_sync,
    ray_dask_persist,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
]

ON_SECOND = {"resources": {"second": 0.001}}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with RayCluster(num_cpus=2) as cluster:
        cluster.add_node("second", num_cpus=1, resources={"second": 1})
        syncline.init(address=cluster.address)
        with enable_dask_on_ray():
            yield
        syncline.shutdown()


def test_preparation_of_the_taxi_data_gives_exactly_what_dask_gives(taxi_rides: Any) -> None:
    plain = taxi_rides.compute(scheduler="threads")
    assert 500 < len(plain) < 5000
    pd.testing.assert_frame_equal(taxi_rides.compute(), plain, check_exact=True)
    pd.testing.assert_frame_equal(taxi_rides.persist().compute(), plain, check_exact=True)
    by_day = taxi_rides.groupby("day_of_week").is_big_tip.mean()
    pd.testing.assert_series_equal(
        by_day.compute(), by_day.compute(scheduler="threads"), check_exact=True
    )
    lengths = taxi_rides.shuffle("hour", npartitions=3).map_partitions(len)
    assert lengths.compute().tolist() == lengths.compute(scheduler="threads").tolist()


def test_every_collection_gives_what_dask_gives() -> None:
    array = da.arange(1000, chunks=100).reshape(20, 50)
    array = (array @ array.T + array.sum(axis=1)).rechunk((7, 7))
    np.testing.assert_array_equal(array.compute(), array.compute(scheduler="threads"))
    words = (
        db.from_sequence(["a b", "b c", "c d c"], npartitions=3)
        .map(str.split)
        .flatten()
        .frequencies()
    )
    assert sorted(words.compute()) == [("a", 1), ("b", 2), ("c", 3), ("d", 1)]
    graph = {
        "a": 1,
        "b": (operator.add, "a", 1),
        ("c", 0): (sum, ["a", "b", (operator.neg, "b")]),
        "d": ("c", 0),
    }
    wanted = ["d", ["b", ("c", 0)]]
    assert (
        ray_dask_get(graph, wanted) == dask.get(graph, wanted) == ray_dask_get_sync(graph, wanted)
    )


def test_schedulers_are_switched_on_and_off() -> None:
    here, elsewhere = os.getpid(), delayed(os.getpid)
    assert elsewhere().compute() != here
    with disable_dask_on_syncline():
        assert elsewhere().compute(scheduler="threads") == here
        assert elsewhere().compute(scheduler=ray_dask_get) != here
        with enable_dask_on_syncline():
            assert elsewhere().compute() != here


def test_tasks_run_on_every_node_and_share_large_values() -> None:
    def seen(block: np.ndarray) -> np.ndarray:
        return np.array([not block.flags.owndata and not block.flags.writeable])

    def node(_: Any = None) -> str:
        return str(syncline.get_runtime_context().get_node_id())

    array = da.arange(400_000, chunks=100_000).persist()
    for options in ({}, ON_SECOND):
        shared = array.map_blocks(seen, dtype=bool, chunks=(1,)).compute(ray_remote_args=options)
        assert shared.all()
    assert (
        delayed(node)().compute(ray_remote_args=ON_SECOND)
        != syncline.get_runtime_context().get_node_id()
    )


def test_persisted_values_stay_where_they_are() -> None:
    def mark(block: np.ndarray, path: str) -> np.ndarray:
        with open(path, "a") as file:
            file.write("x")
        return block + 1

    marks = Path(os.environ["HOME"], "marks")
    for persist in (dask.persist, ray_dask_persist):
        marks.unlink(missing_ok=True)
        (array,) = persist(
            da.zeros(100, chunks=50).map_blocks(
                mark, path=str(marks), dtype=float, meta=np.empty(0)
            )
        )
        assert all(
            isinstance(value.ref, syncline.ObjectRef)
            for value in dict(array.__dask_graph__()).values()
        )
        assert array.sum().compute() == (array + 1).sum().compute() - 100 == 100
        assert marks.read_text() == "xx"


@pytest.mark.skipif(
    int(pd.__version__.partition(".")[0]) < 3, reason="pandas copies on write since 3"
)
def test_tasks_write_to_their_own_tables_and_the_caller_to_the_results() -> None:
    table = (
        dd.from_pandas(pd.DataFrame({"a": np.arange(200_000.0)}), npartitions=2)
        .map_partitions(lambda part: part * 2)
        .persist()
    )

    def write(part: pd.DataFrame) -> pd.DataFrame:
        part.loc[part.a > 10, "a"] = 0.0
        return part

    changed, kept = dask.compute(table.map_partitions(write), table)
    assert (changed.a.max(), kept.a.max()) == (10.0, 399_998.0)
    kept.iloc[0, 0] = 7.0
    assert table.compute().iloc[0, 0] == 0.0


def test_callbacks_of_program_and_workers(tmp_path: Path) -> None:
    class Log(RayDaskCallback):
        def __init__(self) -> None:
            super().__init__()
            self.submitted: list[Any] = []

        def _ray_presubmit(self, task: Any, key: Any, deps: dict[Any, Any]) -> Any:
            return 100 if key == "skipped" else None

        def _ray_postsubmit(
            self, task: Any, key: Any, deps: dict[Any, Any], object_ref: Any
        ) -> None:
            self.submitted.append((key, isinstance(object_ref, syncline.ObjectRef)))

        def _ray_pretask(self, key: Any, object_refs: list[Any]) -> int:
            return os.getpid()

        def _ray_posttask(self, key: Any, result: Any, pre_state: int) -> None:
            (tmp_path / str(key)).write_text(f"{result} {pre_state == os.getpid()}")

    log = Log()
    with log:
        assert (
            ray_dask_get(
                {"skipped": (operator.truediv, 1, 0), "a": (operator.add, "skipped", 1)}, "a"
            )
            == 101
        )
    assert log.submitted == [("a", True)]
    assert (tmp_path / "a").read_text() == "101 True"


def test_progress_bars_of_both_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    total, shown = da.arange(100, chunks=10).sum(), io.StringIO()
    with ProgressBarCallback(Console(file=shown, force_terminal=True, width=100)):
        assert total.compute() == 4950
    assert "Dask" in shown.getvalue()
    with ProgressBar():
        assert total.compute() == 4950
    assert "100%" in capsys.readouterr().out


def test_error_names_its_key_and_a_graph_may_start_another() -> None:
    with pytest.raises(ZeroDivisionError, match="'the-key'"):
        delayed(operator.truediv)(1, 0, dask_key_name="the-key").compute()

    def nested(n: int) -> int:
        return int(
            delayed(sum)([delayed(abs)(i) for i in range(n)]).compute(scheduler=ray_dask_get)
        )

    assert dask.compute(*[delayed(nested)(n) for n in range(3)]) == (0, 0, 1)
