"""Rows and batches in the program."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import syncline
from syncline.data.dataset import Dataset
from syncline.data.plan.nodes import RandomSeedConfig
from syncline.data.read import range as numbers


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


@pytest.fixture
def ds() -> Dataset:
    return numbers(50, override_num_blocks=5).map_batches(
        lambda batch: {"id": batch["id"], "half": batch["id"] / 2}
    )


def test_take_gives_the_first_rows_as_dicts(ds: Dataset) -> None:
    assert ds.take(2) == [{"id": 0, "half": 0.0}, {"id": 1, "half": 0.5}]
    assert [row["id"] for row in ds.take(15)] == list(range(15))
    assert len(ds.take()) == 20
    assert ds.take(0) == []
    with pytest.raises(ValueError, match="limit=-1"):
        ds.take(-1)


def test_take_all_refuses_more_than_its_limit(ds: Dataset) -> None:
    assert [row["id"] for row in ds.take_all()] == list(range(50))
    assert len(ds.take_all(limit=50)) == 50
    with pytest.raises(ValueError, match="limit=49"):
        ds.take_all(limit=49)


def test_take_batch_has_every_format(ds: Dataset) -> None:
    batch = ds.take_batch(15)
    assert isinstance(batch["id"], np.ndarray)
    assert batch["id"].tolist() == list(range(15))
    assert isinstance(ds.take_batch(3, batch_format="pandas"), pd.DataFrame)
    assert isinstance(ds.take_batch(3, batch_format="pyarrow"), pa.Table)
    assert len(ds.take_batch(100)["id"]) == 50
    with pytest.raises(ValueError, match="no rows"):
        ds.limit(0).take_batch()
    with pytest.raises(ValueError, match="batch_size=0"):
        ds.take_batch(0)
    with pytest.raises(ValueError, match="batch_format"):
        ds.take_batch(batch_format="list")


def test_show_prints_rows(ds: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    ds.show(2)
    assert capsys.readouterr().out == "{'id': 0, 'half': 0.0}\n{'id': 1, 'half': 0.5}\n"


def test_loops_over_rows_and_batches(ds: Dataset) -> None:
    assert [row["id"] for row in ds.iter_rows()] == list(range(50))
    batches = ds.iter_batches(batch_size=20)
    assert [len(batch["id"]) for batch in batches] == [20, 20, 10]
    assert [len(batch["id"]) for batch in batches] == [20, 20, 10]
    with pytest.raises(ValueError, match="batch_size"):
        ds.iter_batches(batch_size=0)


def test_each_loop_is_the_next_epoch() -> None:
    shuffled = numbers(100).random_shuffle(seed=RandomSeedConfig(seed=1))
    orders = [[row["id"] for row in shuffled.iter_rows()] for _ in range(3)]
    assert [sorted(order) for order in orders] == [list(range(100))] * 3
    assert len({tuple(order) for order in orders}) == 3
    again = numbers(100).random_shuffle(seed=RandomSeedConfig(seed=1))
    assert [[row["id"] for row in again.iter_rows()] for _ in range(3)] == orders


def test_an_int_as_seed_gives_one_order_for_every_execution() -> None:
    shuffled = numbers(100).random_shuffle(seed=1)
    first = shuffled.take_all()
    assert first != numbers(100).take_all()
    assert shuffled.take_all() == first
    assert list(shuffled.iter_rows()) == first
    assert list(shuffled.iter_rows()) == first


def test_every_iterator_is_one_of_its_own(ds: Dataset) -> None:
    first, second = ds.iterator(), ds.iterator()
    next(iter(first.iter_batches(batch_size=10)))
    assert (first.statistics().passes, second.statistics().passes) == (1, 0)


def test_torch_batches(ds: Dataset) -> None:
    torch = pytest.importorskip("torch")
    batches = list(ds.iter_torch_batches(batch_size=30))
    assert torch.cat([batch["id"] for batch in batches]).tolist() == list(range(50))
