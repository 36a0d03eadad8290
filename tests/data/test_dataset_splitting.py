"""One dataset as several."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import syncline
from syncline.data.context import DataContext
from syncline.data.dataset import Dataset, MaterializedDataset
from syncline.data.from_memory import from_arrow, from_items
from syncline.data.read import range as numbers
from syncline.data.read import read_parquet


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def ids(ds: Dataset) -> list[int]:
    return [row["id"] for row in ds.take_all()]


@pytest.fixture(params=["lazy", "references", "tables"])
def eleven(request: pytest.FixtureRequest) -> Dataset:
    lazy = numbers(11, override_num_blocks=3)
    if request.param == "tables":
        return from_arrow(
            [pa.table({"id": list(range(start, end))}) for start, end in ((0, 4), (4, 8), (8, 11))]
        )
    return lazy if request.param == "lazy" else lazy.materialize()


def test_split_keeps_the_order_and_every_row(eleven: Dataset) -> None:
    for n in (1, 2, 3, 5, 20):
        parts = eleven.split(n)
        assert [type(part) for part in parts] == [MaterializedDataset] * n
        assert [each for part in parts for each in ids(part)] == list(range(11))


def test_split_evens_rows_out_where_there_are_few_blocks(eleven: Dataset) -> None:
    assert [part.count() for part in eleven.split(4)] == [2, 3, 3, 3]


def test_an_equal_split_drops_the_rest(eleven: Dataset) -> None:
    assert [ids(part) for part in eleven.split(2, equal=True)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert [part.count() for part in eleven.split(20, equal=True)] == [0] * 20


def test_split_at_indices(eleven: Dataset) -> None:
    assert [ids(part) for part in eleven.split_at_indices([2, 5, 5, 30])] == [
        [0, 1],
        [2, 3, 4],
        [],
        [5, 6, 7, 8, 9, 10],
        [],
    ]


def test_empty_parts_keep_the_schema(eleven: Dataset) -> None:
    (empty, _) = eleven.split_at_indices([0])
    assert empty.columns() == ["id"]
    assert empty.count() == 0


def test_split_proportionately(eleven: Dataset) -> None:
    assert [part.count() for part in eleven.split_proportionately([0.2, 0.5])] == [2, 5, 4]
    with pytest.raises(ValueError, match="would be empty"):
        numbers(2).split_proportionately([0.1, 0.1, 0.1])


def test_a_part_holds_only_its_own_rows() -> None:
    ds = from_arrow(pa.table({"id": list(range(10_000))})).repartition(1).materialize()
    (first, _) = ds.split_at_indices([10])
    assert first.size_bytes() == 80


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda ds: ds.split(0), ValueError),
        (lambda ds: ds.split(1.5), TypeError),
        (lambda ds: ds.split(2, locality_hints=["a"]), ValueError),
        (lambda ds: ds.split_at_indices([]), ValueError),
        (lambda ds: ds.split_at_indices([3, 2]), ValueError),
        (lambda ds: ds.split_at_indices([-1]), ValueError),
        (lambda ds: ds.split_proportionately([]), ValueError),
        (lambda ds: ds.split_proportionately([0.5, 0.5]), ValueError),
        (lambda ds: ds.split_proportionately([0.5, 0]), ValueError),
        (lambda ds: ds.train_test_split("0.5"), TypeError),
        (lambda ds: ds.train_test_split(1.0), ValueError),
        (lambda ds: ds.train_test_split(0), ValueError),
        (lambda ds: ds.train_test_split(11), ValueError),
        (lambda ds: ds.train_test_split(0.5, shuffle=True, stratify="id"), ValueError),
        (lambda ds: ds.train_test_split(0.5, stratify="idd"), KeyError),
        (lambda ds: ds.streaming_train_test_split(0), ValueError),
        (lambda ds: ds.streaming_train_test_split(0.5, split_type="order"), ValueError),
        (lambda ds: ds.streaming_train_test_split(0.5, split_type="hash"), ValueError),
        (
            lambda ds: ds.streaming_train_test_split(
                0.5, split_type="hash", hash_column="id", seed=1
            ),
            ValueError,
        ),
        (
            lambda ds: ds.streaming_train_test_split(0.5, split_type="hash", hash_column="idd"),
            KeyError,
        ),
        (lambda ds: ds.streaming_train_test_split(0.5, hash_column="id"), ValueError),
    ],
)
def test_what_does_not_fit_fails(call: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        call(numbers(11))


def test_train_test_split_takes_the_last_rows(eleven: Dataset) -> None:
    train, test = eleven.train_test_split(3)
    assert (ids(train), ids(test)) == (list(range(8)), [8, 9, 10])
    train, test = eleven.train_test_split(0.25)
    assert (ids(train), ids(test)) == (list(range(8)), [8, 9, 10])


def test_train_test_split_may_shuffle() -> None:
    train, test = numbers(100).train_test_split(0.2, shuffle=True, seed=1)
    assert sorted(ids(train) + ids(test)) == list(range(100))
    assert ids(test) != list(range(80, 100))
    assert ids(numbers(100).train_test_split(0.2, shuffle=True, seed=1)[1]) == ids(test)


def test_stratified_parts_have_the_same_share_of_each_value_in_order() -> None:
    items = [{"id": n, "kind": "odd" if n % 2 else "even"} for n in range(20)]
    ds = from_items(items).union(from_items([{"id": 20 + n, "kind": "rare"} for n in range(5)]))
    train, test = ds.train_test_split(0.2, stratify="kind")
    assert Counter(row["kind"] for row in test.take_all()) == {"even": 2, "odd": 2, "rare": 1}
    assert ids(test) == [16, 17, 18, 19, 24]
    assert ids(train) == [n for n in range(25) if n not in (16, 17, 18, 19, 24)]
    assert train.columns() == ["id", "kind"]


@pytest.mark.parametrize("options", [{}, {"seed": 3}, {"split_type": "hash", "hash_column": "id"}])
def test_streaming_parts_have_every_row_once(options: dict[str, Any]) -> None:
    ds = numbers(2000, override_num_blocks=7)
    train, test = ds.streaming_train_test_split(0.25, **options)
    assert sorted(ids(train) + ids(test)) == list(range(2000))
    assert 400 < test.count() < 600
    assert ids(test) == sorted(ids(test))


def test_streaming_parts_have_every_row_once_whatever_is_selected_of_them(tmp_path: Path) -> None:
    table = pa.table({"id": list(range(2000)), "text": ["x" * 3000] * 2000})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=20, use_dictionary=False)
    with DataContext.current(DataContext.get_current().copy()) as context:
        context.target_min_block_size = 500_000
        train, test = read_parquet(str(tmp_path)).streaming_train_test_split(0.25)
    assert sorted(ids(train.select_columns("id")) + ids(test)) == list(range(2000))


def test_a_hash_split_goes_by_the_value_alone() -> None:
    _, test = numbers(2000, override_num_blocks=7).streaming_train_test_split(
        0.25, split_type="hash", hash_column="id"
    )
    _, again = (
        numbers(2000)
        .random_shuffle(seed=1)
        .streaming_train_test_split(0.25, split_type="hash", hash_column="id")
    )
    assert sorted(ids(again)) == ids(test)


def test_a_hash_split_has_the_rows_of_rays_documentation() -> None:
    train, test = numbers(8).streaming_train_test_split(
        test_size=0.25, split_type="hash", hash_column="id"
    )
    assert (ids(train), ids(test)) == ([0, 2, 3, 4, 5, 6], [1, 7])


@pytest.mark.parametrize(
    "values",
    [
        [f"user{number}" for number in range(2000)],
        [number * 0.5 for number in range(2000)],
        [number * 1024 for number in range(2000)],
        [b"key%d" % number for number in range(2000)],
    ],
    ids=lambda values: type(values[0]).__name__ + str(values[1]),
)
def test_a_hash_split_meets_its_share_for_keys_of_any_type(values: list[object]) -> None:
    rows = from_items([{"k": value} for value in values])
    train, test = rows.streaming_train_test_split(0.25, split_type="hash", hash_column="k")
    assert train.count() + test.count() == 2000
    assert 440 <= test.count() <= 560  # three standard deviations


def test_iterators_know_how_many_share_the_dataset() -> None:
    assert [iterator.world_size() for iterator in numbers(11).streaming_split(2)] == [2, 2]
    assert numbers(11).iterator().world_size() == 1


def test_streaming_split_shares_rows_out() -> None:
    (only,) = numbers(11).streaming_split(1)
    assert [row["id"] for row in only.iter_rows()] == list(range(11))
