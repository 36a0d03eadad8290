"""`Dataset.cache`: functions run once per row over many passes, rows and order stay the same, and
nothing stale is ever read.
"""

import gc
import json
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import syncline
from syncline.core.refs import ObjectRef
from syncline.data import RandomSeedConfig
from syncline.data.columnar.expressions import col, random
from syncline.data.context import DataContext
from syncline.data.dataset import Dataset
from syncline.data.execute.cache import Origin, uses_of_caches
from syncline.data.execute.execution import start_execution
from syncline.data.execute.physical_plan import ExecutionLimits
from syncline.data.from_memory import from_arrow, from_items
from syncline.data.iterate.position import Restart
from syncline.data.plan import nodes as n
from syncline.data.read import range as numbers
from syncline.data.read import read_parquet
from syncline.exceptions import UserCodeException

BLOCKS = 4


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


class Counting:
    """A function, and how often it was called. What it adds is part of its code, what it counts is
    not.
    """

    def __init__(self) -> None:
        self.calls = 0

    def mapped(self, ds: Dataset) -> Dataset:
        def count(batch: dict[str, Any]) -> dict[str, Any]:
            self.calls += 1
            return {"v": batch["id"] + 1}

        return ds.map_batches(count)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture(params=["memory", "path", "fsspec"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    if request.param == "fsspec":
        pytest.importorskip("fsspec")
        return f"memory://cache{tmp_path}"
    return None if request.param == "memory" else str(tmp_path / "cache")


def source(rows: int = 100) -> Dataset:
    return numbers(rows, override_num_blocks=BLOCKS)


def values(ds: Dataset, column: str = "v") -> list[int]:
    return [row[column] for row in ds.iter_rows()]


def test_functions_run_once_per_row_over_many_passes(counting: Counting, where: str | None) -> None:
    ds = counting.mapped(source()).cache(where)
    for _ in range(3):
        assert values(ds) == list(range(1, 101))
    assert values(ds.map(lambda row: {"v": -row["v"]})) == list(range(-1, -101, -1))
    assert counting.calls == BLOCKS


def test_objects_stay_objects(where: str | None) -> None:
    ds = source(3).map(lambda row: {"object": {row["id"], "a member"}}).cache(where)
    for _ in range(2):
        assert values(ds, "object") == [{number, "a member"} for number in range(3)]


def test_what_comes_after_a_cache_differs_from_pass_to_pass(
    counting: Counting, where: str | None
) -> None:
    ds = counting.mapped(source()).cache(where).random_shuffle()
    passes = [tuple(values(ds)) for _ in range(3)]
    assert len(set(passes)) == 3
    assert all(sorted(each) == list(range(1, 101)) for each in passes)
    assert counting.calls == BLOCKS


@pytest.mark.parametrize(
    "random_before",
    [
        lambda ds: ds.random_shuffle(),
        lambda ds: ds.random_sample(0.5),
        lambda ds: ds.random_shuffle(seed=RandomSeedConfig(3)),
        lambda ds: ds.with_column("r", random()),
    ],
)
def test_what_is_random_before_a_cache_is_drawn_once(
    random_before: Callable[[Dataset], Dataset],
) -> None:
    ds = random_before(source()).cache()
    epochs = [tuple(map(str, ds.iter_rows())) for _ in range(3)]
    assert len(set(epochs)) == 1


@pytest.mark.parametrize(
    "after",
    [
        lambda ds: ds.random_sample(0.5),
        lambda ds: ds.map_batches(lambda batch: batch, batch_size=7).random_sample(0.5),
        lambda ds: ds.random_shuffle(),
        lambda ds: ds.randomize_block_order(),
        lambda ds: ds.with_column("r", random()),
        lambda ds: ds.filter(col("v") % 2 == 0).limit(30),
        lambda ds: ds.union(ds).limit(150),
    ],
)
def test_rows_are_the_same_before_and_after_it_is_filled(
    counting: Counting, where: str | None, after: Callable[[Dataset], Dataset]
) -> None:
    cached = counting.mapped(source()).cache(where)
    ds = after(cached)

    def rows() -> list[dict[str, Any]]:
        with start_execution(ds._node, ds.context, seed=5, epoch=2) as execution:
            return [row for block in execution for row in block.table().to_pylist()]

    unfilled = rows()
    cached.materialize()
    calls = counting.calls
    assert rows() == unfilled
    assert counting.calls == calls


def test_passes_that_are_not_complete_keep_nothing(counting: Counting, where: str | None) -> None:
    ds = counting.mapped(source()).cache(where)
    ds.take(3)
    next(iter(ds.iter_rows()))
    assert len(ds.limit(60).take_all()) == 60
    before = counting.calls
    assert values(ds) == list(range(1, 101))
    assert counting.calls == before + BLOCKS
    values(ds)
    assert counting.calls == before + BLOCKS


def test_counting_and_materializing_fill_it_and_questions_are_answered_from_it(
    counting: Counting, where: str | None
) -> None:
    ds = counting.mapped(source()).cache(where)
    assert ds.schema(fetch_if_missing=False) is None
    assert ds.count() == 100
    assert counting.calls == BLOCKS
    other = ds.select_columns(["v"])
    assert (other.count(), other.schema(fetch_if_missing=False).names) == (100, ["v"])
    assert ds.materialize().count() == 100
    assert counting.calls == BLOCKS


def test_text_for_people_tells_whether_it_is_filled(
    counting: Counting, where: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    ds = counting.mapped(source()).cache(where)
    ds.explain()
    assert "Cache  (to be filled)" in capsys.readouterr().out
    values(ds)
    assert "MapBatches(count)" in ds.stats()
    ds.explain()
    filled = capsys.readouterr().out
    assert "to be filled" not in filled
    assert f"Cache  ({BLOCKS} " in filled
    values(ds)
    assert "Cache" in ds.stats()
    assert "MapBatches(count)" not in ds.stats()


def test_caches_in_caches(counting: Counting, where: str | None) -> None:
    inner = counting.mapped(source()).cache(where)
    outer = counting.mapped(inner.rename_columns({"v": "id"})).cache(where)
    assert values(outer) == list(range(2, 102))
    assert values(inner) == list(range(1, 101))
    assert values(outer) == list(range(2, 102))
    assert counting.calls == 2 * BLOCKS


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows: int, where: str | None) -> None:
    ds = source(10).filter(col("id") < rows).cache(where)
    assert [values(ds, "id") for _ in range(3)] == [list(range(rows))] * 3
    assert ds.schema().names == ["id"]


def test_skipped_rows_stay_out_but_excused_blocks_keep_nothing(where: str | None) -> None:
    calls = []

    def fails(row: dict[str, int]) -> dict[str, int]:
        calls.append(row["id"])
        if row["id"] == 30:
            raise ValueError("no")
        return row

    skipping = source().map(fails, on_error="skip").cache(where)
    assert [len(values(skipping, "id")) for _ in range(2)] == [99, 99]
    assert len(calls) == 100
    calls.clear()
    excused = source().map(fails).cache(where)
    excused.context.max_errored_blocks = 1
    assert [len(values(excused, "id")) for _ in range(2)] == [75, 75]
    assert calls.count(0) == 2


def test_a_failed_pass_keeps_nothing(where: str | None) -> None:
    fails = [True]

    def timed_out_calls(row: dict[str, int]) -> dict[str, int]:
        if fails[0] and row["id"] == 60:
            raise ValueError("no")
        return row

    ds = source().map(timed_out_calls).cache(where)
    with pytest.raises(UserCodeException):
        values(ds, "id")
    fails[0] = False
    assert values(ds, "id") == list(range(100))


def cache_node(ds: Dataset) -> n.Cache:
    assert isinstance(ds._node, n.Cache)
    return ds._node


def test_copies_that_travel_begin_empty_in_memory_but_share_a_path(
    counting: Counting, tmp_path: Path
) -> None:
    for path, calls in ((None, 2 * BLOCKS), (tmp_path, BLOCKS)):
        counting.calls = 0
        ds = counting.mapped(source()).cache(path)
        values(ds)
        node = cache_node(ds)
        slot = pickle.loads(pickle.dumps(node.slot))
        copy = Dataset(n.Cache(input=node.input, path=node.path, slot=slot), ds.context)
        assert values(copy) == values(ds)
        assert counting.calls == calls


def test_blocks_are_let_go_with_the_last_handle(counting: Counting) -> None:
    ds = counting.mapped(source()).cache()
    values(ds)
    node = cache_node(ds)
    held = node.slot.cached_rows(node).rows
    blocks = [weakref.ref(block.value) for block in held.blocks]
    assert all(isinstance(each(), ObjectRef) for each in blocks)
    derived = ds.limit(5)
    del ds, node, held
    gc.collect()
    assert all(each() is not None for each in blocks)
    del derived
    gc.collect()
    assert all(each() is None for each in blocks)


# -- files


def manifests(path: Path) -> list[Path]:
    return sorted(path.glob("*/manifest.json"))


def test_another_function_or_input_has_other_rows(tmp_path: Path) -> None:
    table = pa.table({"v": list(range(100))})
    pq.write_table(table, tmp_path / "in.parquet")

    def read() -> Dataset:
        return read_parquet(tmp_path / "in.parquet")

    assert values(read().map(lambda row: {"v": row["v"] + 1}).cache(tmp_path / "cache"))[0] == 1
    assert values(read().map(lambda row: {"v": row["v"] + 2}).cache(tmp_path / "cache"))[0] == 2
    pq.write_table(pa.table({"v": list(range(500, 601))}), tmp_path / "in.parquet")
    assert values(read().map(lambda row: {"v": row["v"] + 1}).cache(tmp_path / "cache"))[0] == 501
    assert len(manifests(tmp_path / "cache")) == 3


@pytest.mark.parametrize("make", [from_arrow, lambda table: from_arrow(table).materialize()])
def test_rows_in_memory_are_told_apart_by_all_their_content(
    tmp_path: Path, make: Callable[[pa.Table], Dataset]
) -> None:
    first = list(range(1000))
    second = [*first[:500], -1, *first[501:]]
    for rows in (first, second, first):
        assert values(make(pa.table({"v": rows})).map(lambda row: row).cache(tmp_path)) == rows
    assert len(manifests(tmp_path)) == 2


def test_unfinished_files_are_not_seen_and_are_deleted_by_the_next(
    counting: Counting, tmp_path: Path
) -> None:
    ds = counting.mapped(source()).cache(tmp_path)
    node = cache_node(ds)
    place = node.slot.location(node)
    left = Path(place.directory) / "data-killed"
    left.mkdir(parents=True)
    (left / "000000.arrow").write_bytes(b"half a bl")
    assert values(ds) == list(range(1, 101))
    (manifest,) = manifests(tmp_path)
    (data,) = manifest.parent.glob("data-*")
    assert data != left
    assert len(list(data.iterdir())) == BLOCKS


def test_two_that_fill_it_at_once_do_not_meet(counting: Counting, tmp_path: Path) -> None:
    ds = counting.mapped(source()).cache(tmp_path)
    with (
        start_execution(ds._node, ds.context) as first,
        start_execution(ds._node, ds.context) as second,
    ):
        tables = [[block.table() for block in execution] for execution in (second, first)]
    assert pa.concat_tables(tables[0]) == pa.concat_tables(tables[1])
    assert values(ds) == list(range(1, 101))
    (manifest,) = manifests(tmp_path)
    assert len(list(manifest.parent.glob("data-*"))) == 1


def test_an_abandoned_pass_leaves_no_files(counting: Counting, tmp_path: Path) -> None:
    ds = counting.mapped(source()).cache(tmp_path)
    ds.take(30)
    assert not list(tmp_path.rglob("*.arrow"))


def test_a_path_that_no_library_knows_fails_at_the_call() -> None:
    with pytest.raises(ValueError, match="nowhere://x"):
        source().cache("nowhere://x")


# -- continuing


def pieces(ds: Dataset, **options: Any) -> list[tuple[Restart, list[int]]]:
    with start_execution(ds._node, ds.context, **options) as execution:
        return [(block.restart, block.table()["v"].to_pylist()) for block in execution]


def continued(ds: Dataset, restart: Restart, **options: Any) -> list[int]:
    """The rows from the restart point on, as a consumer gets them."""
    restart = Restart(index=restart.index, point=json.loads(json.dumps(restart.point)))
    found = pieces(ds, restart=restart, **options)
    assert found[0][0].index in (0, restart.index)
    return [value for _, rows in found for value in rows][restart.index - found[0][0].index :]


PLANS: dict[str, Callable[[Dataset], Dataset]] = {
    "plain": lambda ds: ds,
    "mapped": lambda ds: ds.map(lambda row: row),
    "shuffled": lambda ds: ds.random_shuffle(),
    "sampled": lambda ds: ds.random_sample(0.7),
    "twice": lambda ds: ds.map(lambda row: row).cache().random_sample(0.9),
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("random_before", [False, True])
@pytest.mark.parametrize("filled_before", [False, True])
@pytest.mark.parametrize("filled_after", ["no", "yes", "by another"])
def test_a_restart_point_holds_whether_it_is_filled_or_not(
    plan: str, random_before: bool, filled_before: bool, filled_after: str
) -> None:
    def build() -> Dataset:
        with DataContext.current(
            DataContext(target_max_block_size=80)
        ):  # several blocks from every task
            ds = source().map(lambda row: {"v": row["id"]})
        return (ds.random_shuffle(num_blocks=BLOCKS) if random_before else ds).cache()

    cached = build()
    if filled_before:
        pieces(cached, seed=3)
    ds = PLANS[plan](cached)
    found = pieces(ds, seed=1, epoch=2)
    whole = [value for _, rows in found for value in rows]
    restart = found[len(found) // 2][0]
    again = build()
    if filled_after == "yes":
        pieces(again, seed=3 if filled_before else 1)
    elif filled_after == "by another":
        pieces(again, seed=99)
    assert continued(PLANS[plan](again), restart, seed=1, epoch=2) == whole[restart.index :]


def test_an_execution_that_starts_in_the_middle_keeps_nothing(
    counting: Counting, where: str | None
) -> None:
    ds = counting.mapped(source()).cache(where)
    with start_execution(ds._node, ds.context, seed=1) as execution:
        next(execution)
        restart = next(execution).restart
    assert continued(ds, restart, seed=1) == list(range(restart.index + 1, 101))
    assert (
        uses_of_caches(
            ds._node, Origin(seed=0, limits=ExecutionLimits(cpus=1, budget_bytes=1))
        ).states[0][0]
        is False
    )


def test_an_iterator_continues_across_a_filled_cache(counting: Counting, where: str | None) -> None:
    ds = counting.mapped(source()).cache(where).random_shuffle()
    iterator = ds.iterator()
    batches = iterator.iter_batches(batch_size=10)
    got = []
    for batch in batches:
        got += batch["v"].tolist()
        if len(got) == 40:
            break
    state = json.loads(json.dumps(iterator.state_dict()))
    ds.materialize()
    iterator.load_state_dict(state)
    got += [
        value for batch in iterator.iter_batches(batch_size=10) for value in batch["v"].tolist()
    ]
    assert sorted(got) == list(range(1, 101))


def test_restart_points_of_plans_with_other_caches_are_refused() -> None:
    ds = source().cache()
    ((restart, _), *_) = pieces(ds.rename_columns({"id": "v"}))
    with pytest.raises(ValueError, match="belongs to another plan"):
        start_execution(source()._node, DataContext(), restart=restart)


def test_a_signature_does_not_depend_on_a_cache_being_filled(counting: Counting) -> None:
    ds = counting.mapped(source()).cache()
    iterator = ds.iterator()
    values(ds)
    state = ds._iterator.state_dict()
    iterator.load_state_dict(state)


def test_items_may_be_cached_too() -> None:
    ds = from_items([1, 2, 3]).cache()
    assert [values(ds, "item") for _ in range(2)] == [[1, 2, 3]] * 2
