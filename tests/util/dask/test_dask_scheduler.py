"""Dask on syncline gives what Dask gives, whatever the collection, the form of the graph and the
engine.
"""

from __future__ import annotations

import functools
import io
import operator
import threading
from collections import namedtuple
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
from dask._task_spec import Alias, DataNode, Dict, List, Task, TaskRef
from dask.callbacks import Callback
from rich.console import Console

import syncline
from syncline.core.engine import current_engine
from syncline.exceptions import RayTaskError
from syncline.util import dask as on_syncline
from syncline.util.dask import RayDaskCallback, ray_dask_get, ray_dask_get_sync, ray_dask_persist

Point = namedtuple("Point", ["x", "y"])


@pytest.fixture(autouse=True)
def engine() -> Iterator[None]:
    syncline.init(local_mode=True, num_cpus=2)
    with dask.config.set(scheduler=ray_dask_get):
        yield
    syncline.shutdown()


def inc(x: int) -> int:
    return x + 1


def pair(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    return args, kwargs


@pytest.mark.parametrize("name", on_syncline.__all__)
def test_exported_name_is_there(name: str) -> None:
    assert getattr(on_syncline, name) is not None


GRAPHS: dict[str, tuple[dict[Any, Any], Any]] = {
    "literal": ({"a": 1}, "a"),
    "legacy tuple": ({"a": 1, "b": (inc, "a"), "c": (operator.add, "a", "b")}, "c"),
    "nested keys": ({"a": 1, ("b", 0): (inc, "a")}, ["a", [("b", 0), ["a"]]]),
    "key twice": ({"a": 1, "b": (inc, "a")}, ["b", "b"]),
    "task in an argument": ({"a": 1, "b": (sum, [(inc, "a"), (inc, (inc, "a")), 5])}, "b"),
    "keys in lists and dicts": ({"a": 1, "b": (pair, ["a", ["a", {"k": "a"}]], {"k": "a"})}, "b"),
    "alias": ({"a": 1, "b": (inc, "a"), "c": "b", "d": "c"}, ["d", "c"]),
    "named tuple": ({"a": 1, "b": (pair, Point("a", (inc, "a")))}, "b"),
    "text that is no key": ({"a": (pair, "text", ("tuple", 1))}, "a"),
    "None": ({"a": None, "b": (pair, "a")}, ["a", "b"]),
    "task": ({"a": Task("a", inc, 1), "b": Task("b", pair, TaskRef("a"), named=TaskRef("a"))}, "b"),
    "containers": (
        {
            "a": DataNode("a", 1),
            "b": Task("b", pair, List(TaskRef("a"), Dict({"k": Alias("a")})), x=3),
        },
        "b",
    ),
    "alias of a task": ({"a": Task("a", inc, 1), "b": Alias("b", "a")}, "b"),
    "fused": (
        {
            "c": Task.fuse(
                Task("a", inc, 1), Task("b", inc, TaskRef("a")), Task("c", inc, TaskRef("b"))
            )
        },
        "c",
    ),
}


@pytest.mark.parametrize(("graph", "keys"), GRAPHS.values(), ids=list(GRAPHS))
def test_graph_gives_what_dask_gives(graph: dict[Any, Any], keys: Any) -> None:
    expected = dask.get(dict(graph), keys)
    assert ray_dask_get(dict(graph), keys) == expected
    assert ray_dask_get_sync(dict(graph), keys) == expected


def test_missing_key_and_cycle_are_refused() -> None:
    with pytest.raises(KeyError, match="b"):
        ray_dask_get({"a": 1}, "b")
    with pytest.raises(RuntimeError, match="[Cc]ycle"):
        ray_dask_get({"a": (inc, "b"), "b": (inc, "a")}, "a")


def test_scheduler_may_be_given_in_every_way_of_dask() -> None:
    x = delayed(inc)(1)
    assert dask.compute(x, [x, {"k": x}], 5, scheduler=ray_dask_get) == (2, [2, {"k": 2}], 5)
    with dask.config.set(scheduler=None):
        with on_syncline.enable_dask_on_ray():
            assert dask.config.get("scheduler") is ray_dask_get
            assert dask.config.get("dataframe.shuffle.method") == "tasks"
            assert x.compute() == 2
        assert dask.config.get("scheduler") is None
        on_syncline.enable_dask_on_syncline(shuffle=None)
        on_syncline.disable_dask_on_syncline()
        assert dask.config.get("scheduler") is None


def test_array() -> None:
    x = da.arange(1000, chunks=100).reshape(20, 50)
    y = (x @ x.T + x.sum(axis=1)).rechunk((7, 7))
    np.testing.assert_array_equal(y.compute(), y.compute(scheduler="sync"))


def test_large_array_of_the_program_is_put_once(monkeypatch: pytest.MonkeyPatch) -> None:
    put = []
    engine = current_engine()
    monkeypatch.setattr(
        engine,
        "put",
        lambda value, put_for_real=engine.put: put.append(value) or put_for_real(value),
    )
    large = np.ones(100_000)
    graph: dict[Any, Any] = {
        "x": large,
        **{("get", i): (operator.getitem, "x", i) for i in range(10)},
    }
    assert ray_dask_get(graph, [("get", i) for i in range(10)]) == (1.0,) * 10
    assert len(put) == 1


def test_bag() -> None:
    words = db.from_sequence(["a b", "b c", "c d c"], npartitions=3).map(str.split).flatten()
    assert sorted(words.frequencies().compute()) == [("a", 1), ("b", 2), ("c", 3), ("d", 1)]
    assert (
        db.range(100, npartitions=4).map(lambda x: x + 1).filter(lambda x: x % 2).sum().compute()
        == 2500
    )


@pytest.fixture
def frame() -> dd.DataFrame:
    rng = np.random.default_rng(0)
    data = {
        "key": rng.integers(0, 7, 500),
        "x": rng.normal(size=500),
        "name": rng.choice(["a", "b", None], 500),
    }
    return dd.from_pandas(pd.DataFrame(data), npartitions=5)


@pytest.mark.parametrize("shuffle", ["tasks", "disk"])
def test_dataframe(frame: dd.DataFrame, shuffle: str) -> None:
    with dask.config.set({"dataframe.shuffle.method": shuffle}):
        results = [
            frame.groupby("key").x.mean(),
            frame.shuffle("key").map_partitions(len),
            frame.merge(frame.groupby("key").x.sum().reset_index(), on="key").x_y.sum(),
            frame.set_index("x").name.value_counts(),
        ]
        for ours, plain in zip(
            dask.compute(*results), dask.compute(*results, scheduler="sync"), strict=True
        ):
            if hasattr(plain, "sort_index"):
                pd.testing.assert_series_equal(ours.sort_index(), plain.sort_index())
            else:
                assert ours == pytest.approx(plain)


@pytest.mark.parametrize("persist", [dask.persist, ray_dask_persist])
def test_persisted_partitions_stay_in_the_object_store(frame: dd.DataFrame, persist: Any) -> None:
    calls = []

    def note(x: Any) -> Any:
        calls.append(1)
        return x

    collections = persist(
        da.arange(10, chunks=5).map_blocks(note, dtype=int),
        frame,
        db.range(10, npartitions=2),
        delayed(inc)(1),
    )
    array, table, bag, single = collections
    computed = len(calls)
    values = list(dict(array.__dask_graph__()).values())
    assert all(isinstance(value.ref, syncline.ObjectRef) for value in values)
    assert array.sum().compute() == (array + 1).sum().compute() - 10 == 45
    assert len(calls) == computed
    assert table.x.sum().compute() == frame.x.sum().compute()
    assert bag.map(inc).sum().compute() == 55
    assert delayed(operator.add)(single, single).compute() == 4
    again = dask.persist(array + array)[0]
    assert again.sum().compute() == 90


def test_reference_in_a_graph_is_its_value() -> None:
    ref = syncline.put(41)
    assert delayed(inc)(ref).compute() == 42
    assert ray_dask_get({"a": ref, "b": (inc, "a")}, ["a", "b"]) == (41, 42)
    assert delayed(sum)([ref, 1]).compute() == 42


def fail(x: int) -> float:
    return 1 / x


def test_error_is_itself_and_names_the_key() -> None:
    broken = delayed(fail)(0, dask_key_name="the-key")
    with pytest.raises(ZeroDivisionError, match="'the-key'") as caught:
        delayed(inc)(broken).compute()
    assert isinstance(caught.value, RayTaskError)
    assert "the-key" in str(caught.value.__cause__)
    assert "in fail" in str(caught.value.__cause__)


def test_failing_task_runs_again_here_for_a_debugger() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        delayed(fail)(0).compute(rerun_exceptions_locally=True)
    assert type(caught.value) is ZeroDivisionError
    assert caught.traceback[-1].name == "fail"


def resources_of_this_task(_: Any = None) -> float:
    return dict(syncline.get_runtime_context().get_assigned_resources()).get("CPU", 0)


def test_options_come_from_annotation_surroundings_and_argument() -> None:
    with dask.annotate(ray_remote_args={"num_cpus": 2}):
        annotated = delayed(resources_of_this_task)()
    plain = delayed(resources_of_this_task)(1)
    assert dask.compute(annotated, plain, optimize_graph=False) == (2, 1)
    assert dask.compute(
        annotated, plain, ray_remote_args={"num_cpus": 0.5}, optimize_graph=False
    ) == (2, 0.5)
    with dask.annotate(ray_remote_args={"num_cpus": 0.25}):
        assert plain.compute() == 0.25


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"num_cpu": 1}, ValueError, "num_cpu"),
        (["num_cpus"], TypeError, "dict of options"),
        ({"num_returns": "dynamic"}, ValueError, "dynamic"),
    ],
)
def test_impossible_options_are_refused(options: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        delayed(inc)(1).compute(ray_remote_args=options)


def split(x: list[int]) -> list[int]:
    return [sum(x), len(x), max(x)]


def test_items_of_a_task_with_several_returns_are_kept_apart() -> None:
    with dask.annotate(ray_remote_args={"num_returns": 3}):
        parts = delayed(split)([1, 2, 5])
    items = [delayed(operator.getitem)(parts, i) for i in (0, 1, -1)]
    shown: dict[Any, Any] = {}
    watch = RayDaskCallback(ray_postsubmit=lambda task, key, deps, ref: shown.update({key: ref}))
    with watch:
        assert dask.compute(*items, parts, delayed(sum)(parts), optimize_graph=False) == (
            8,
            3,
            5,
            [8, 3, 5],
            16,
        )
    assert len(shown[parts.key]) == 3
    assert not {item.key for item in items} & shown.keys(), "taking an item is no task"


def test_wrong_number_of_returns_is_told() -> None:
    with pytest.raises(ValueError, match=r"num_returns=2.*3 items"):
        delayed(split)([1]).compute(ray_remote_args={"num_returns": 2})


def test_dask_callbacks_see_what_they_see_in_dask() -> None:
    graph = {"a": 1, "b": (inc, "a"), "c": (inc, "b"), "d": "c"}

    def watched(get: Any) -> list[Any]:
        seen: list[Any] = []
        callback = Callback(
            start=lambda dsk: seen.append(("start", set(dsk))),
            start_state=lambda dsk, state: seen.append(("state", list(state["ready"]))),
            pretask=lambda key, dsk, state: seen.append(("pre", key, set(state["running"]))),
            posttask=lambda key, value, dsk, state, worker: seen.append(
                ("post", key, value, set(state["finished"]))
            ),
            finish=lambda dsk, state, failed: seen.append(("finish", failed)),
        )
        with callback:
            get(dict(graph), "d")
        return seen

    assert watched(ray_dask_get) == watched(dask.get)


def test_finish_is_told_of_a_failure() -> None:
    seen: list[bool] = []
    with (
        Callback(finish=lambda dsk, state, failed: seen.append(failed)),
        pytest.raises(ZeroDivisionError),
    ):
        delayed(fail)(0).compute()
    assert seen == [True]


def test_values_stay_away_from_the_program_unless_a_callback_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetched: list[Any] = []
    engine = current_engine()
    real = engine.get

    def get(wanted: Any, timeout_s: float | None) -> list[Any]:
        values = real(wanted, timeout_s)
        fetched.extend(values)
        return values

    monkeypatch.setattr(engine, "get", get)
    assert ray_dask_get({"a": (str.upper, "intermediate"), "b": (len, "a")}, "b") == 12
    assert 12 in fetched
    assert "INTERMEDIATE" not in fetched


class Recorder(RayDaskCallback):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def _ray_presubmit(self, task: Any, key: Any, deps: dict[Any, Any]) -> Any:
        self.seen.append(("presubmit", key))
        return 100 if key == "skipped" else None

    def _ray_postsubmit(self, task: Any, key: Any, deps: dict[Any, Any], object_ref: Any) -> None:
        self.seen.append(("postsubmit", key, sorted(deps), type(object_ref)))

    def _ray_pretask(self, key: Any, object_refs: list[Any]) -> str:
        return f"state of {key}"

    def _ray_posttask(self, key: Any, result: Any, pre_state: Any) -> None:
        self.seen.append(("posttask", key, result, pre_state))

    def _ray_postsubmit_all(self, object_refs: list[Any], dsk: Any) -> None:
        self.seen.append(("all", syncline.get(object_refs)))

    def _ray_finish(self, result: Any) -> None:
        self.seen.append(("finish", result))


def test_ray_callbacks_follow_every_task() -> None:
    recorder = Recorder()
    graph = {"skipped": (fail, 0), "b": (inc, "skipped")}
    with recorder:
        assert ray_dask_get(graph, "b") == 101
    ours = [event for event in recorder.seen if event[0] != "posttask"]
    assert ours == [
        ("presubmit", "skipped"),
        ("presubmit", "b"),
        ("postsubmit", "b", ["skipped"], syncline.ObjectRef),
        ("all", [101]),
        ("finish", 101),
    ]
    recorder.seen.clear()
    assert ray_dask_get({"a": 1}, "a") == 1
    assert recorder.seen == [], "outside of the `with` statement it sees nothing"


def append_to(path: str, key: Any, result: Any, pre_state: Any) -> None:
    with Path(path).open("a") as file:
        file.write(f"{key} {result} {pre_state}\n")


def test_task_callbacks_run_around_the_task(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    callback = RayDaskCallback(
        ray_pretask=lambda key, object_refs: len(object_refs),
        ray_posttask=functools.partial(append_to, path),
    )
    assert ray_dask_get({"a": (inc, 1), "b": (inc, "a")}, "b", ray_callbacks=[callback]) == 3
    assert Path(path).read_text().splitlines() == ["a 2 0", "b 3 1"]


def test_callback_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="RayDaskCallback"):
        delayed(inc)(1).compute(ray_callbacks=[print])


def test_progress_bar_counts_in_terminals_and_is_silent_elsewhere() -> None:
    for terminal in (True, False):
        shown = io.StringIO()
        with on_syncline.ProgressBarCallback(
            Console(file=shown, force_terminal=terminal, width=100)
        ):
            da.arange(10, chunks=1).sum().compute(optimize_graph=False)
        assert ("100%" in shown.getvalue() or "/" in shown.getvalue()) is terminal
        assert bool(shown.getvalue()) is terminal


def test_dataframe_optimize_joins_chains_and_keeps_results() -> None:
    graph = {"a": 1, "b": (inc, "a"), "c": (inc, "b"), "unneeded": (inc, "c")}
    optimized = on_syncline.dataframe_optimize(graph, ["c"])
    assert len(optimized) < 3
    assert ray_dask_get(optimized, "c") == 3


def test_task_may_compute_a_graph_itself() -> None:
    def nested(n: int) -> int:
        return int(delayed(sum)([delayed(inc)(i) for i in range(n)]).compute())

    assert delayed(nested)(4).compute() == 10


def test_graphs_may_run_in_several_threads() -> None:
    results: list[int] = []
    threads = [
        threading.Thread(
            target=lambda n=n: results.append(delayed(inc)(n).compute(scheduler=ray_dask_get))
        )
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == [1, 2, 3, 4]
