"""`DataIterator` over a whole dataset: passes, batches, state, statistics. With executions that
need no executor.
"""

import json
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import syncline
from syncline.data.iterate.batch_source import DatasetSource
from syncline.data.iterate.cursor import CursorError
from syncline.data.iterator import DataIterator
from tests.data.execution_fake import FakeDataset


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Any:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def iterator_of(dataset: FakeDataset) -> DataIterator:
    return DataIterator(DatasetSource(dataset, run=dataset.run))


def values(batches: Any) -> list[int]:
    return [int(value) for batch in batches for value in batch["v"]]


def test_batches_cross_blocks_and_keep_the_order() -> None:
    batches = list(iterator_of(FakeDataset(block_rows=[7, 3, 12])).iter_batches(batch_size=8))
    assert [len(batch["v"]) for batch in batches] == [8, 8, 6]
    assert values(batches) == list(range(22))


@pytest.mark.parametrize(
    ("batch_format", "kind"), [("default", dict), ("pyarrow", pa.Table), (None, pa.Table)]
)
def test_batches_come_in_the_format_that_was_asked_for(batch_format: Any, kind: type) -> None:
    (batch,) = iterator_of(FakeDataset(block_rows=[3])).iter_batches(batch_format=batch_format)
    assert isinstance(batch, kind)


@pytest.mark.parametrize(
    "arguments", [{"batch_format": "arrow"}, {"batch_size": 0}, {"prefetch_batches": -1}]
)
def test_impossible_arguments_are_errors_at_the_call(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        iterator_of(FakeDataset(block_rows=[3])).iter_batches(**arguments)


def test_every_loop_is_the_next_epoch() -> None:
    dataset = FakeDataset(block_rows=[5] * 8, shuffled=True)
    batches = iterator_of(dataset).iter_batches(batch_size=4)
    first, second = values(batches), values(batches)
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second
    assert [run["epoch"] for run in dataset.runs] == [0, 1]
    assert len({run["seed"] for run in dataset.runs}) == 1


def test_rows_are_dicts() -> None:
    rows = list(iterator_of(FakeDataset(block_rows=[2, 1])).iter_rows())
    assert rows == [{"v": 0}, {"v": 1}, {"v": 2}]


def test_leaving_a_loop_closes_the_execution() -> None:
    dataset = FakeDataset(block_rows=[100])
    opened = []
    source = DatasetSource(
        dataset,
        run=lambda *args, **kwargs: opened.append(dataset.run(*args, **kwargs)) or opened[-1],
    )
    for _ in DataIterator(source).iter_batches(batch_size=10):
        break
    assert opened[0].closed.is_set()


@pytest.mark.parametrize("shuffle", [None, 12])
def test_a_loaded_state_continues_at_the_next_row_and_then_with_the_next_epoch(
    shuffle: int | None,
) -> None:
    dataset = FakeDataset(block_rows=[9, 4, 30, 1], shuffled=True)
    whole = iterator_of(dataset)
    options: dict[str, Any] = {"batch_size": 4, "local_shuffle_buffer_size": shuffle}
    got, state = [], {}
    for number, batch in enumerate(whole.iter_batches(**options)):
        got.append(batch["v"])
        if number == 4:
            state = json.loads(json.dumps(whole.state_dict()))
    recompute = iterator_of(dataset)
    recompute.load_state_dict(state)
    batches = recompute.iter_batches(**options)
    assert values(batches) == [int(value) for batch in got[5:] for value in batch]
    assert values(batches) == values(whole.iter_batches(**options))


def test_a_state_before_the_first_pass_is_that_which_was_loaded() -> None:
    dataset = FakeDataset(block_rows=[10])
    first = iterator_of(dataset)
    next(iter(first.iter_batches(batch_size=4)))
    second, third = iterator_of(dataset), iterator_of(dataset)
    second.load_state_dict(first.state_dict())
    third.load_state_dict([second.state_dict()])
    assert values(third.iter_batches(batch_size=3)) == list(range(4, 10))
    assert values(iterator_of(dataset).iter_batches()) == list(range(10))


def test_a_fresh_state_means_the_beginning() -> None:
    dataset = FakeDataset(block_rows=[10])
    loaded = iterator_of(dataset)
    loaded.load_state_dict(iterator_of(dataset).state_dict())
    assert values(loaded.iter_batches()) == list(range(10))


def test_a_state_of_other_data_is_refused_at_once() -> None:
    first = iterator_of(FakeDataset(block_rows=[10]))
    list(first.iter_batches())
    with pytest.raises(CursorError, match="another dataset"):
        iterator_of(FakeDataset(block_rows=[11])).load_state_dict(first.state_dict())
    with pytest.raises(CursorError, match="not a int"):
        first.load_state_dict(7)


def test_errors_of_the_pipeline_come_out_of_the_loop_after_what_was_read() -> None:
    iterator = iterator_of(FakeDataset(block_rows=[5, 5], fails_at=1))
    got = []
    with pytest.raises(ValueError, match="block 1 is broken"):
        got.extend(batch["v"].tolist() for batch in iterator.iter_batches(batch_size=5))
    assert got == [[0, 1, 2, 3, 4]]


def test_statistics_count_passes_batches_and_waiting() -> None:
    iterator = iterator_of(FakeDataset(block_rows=[10]))
    for _ in range(2):
        list(iterator.iter_batches(batch_size=4))
    statistics = iterator.statistics()
    assert (statistics.passes, statistics.items) == (2, 6)
    assert statistics.waited_s > 0
    assert "2 passes, 6 batches" in iterator.stats()
    assert "fake statistics" in iterator.stats()


def test_a_pickled_iterator_reads_the_same() -> None:
    copied = pickle.loads(pickle.dumps(iterator_of(FakeDataset(block_rows=[4, 4]))))
    assert values(copied.iter_batches()) == list(range(8))


def test_an_iterator_itself_is_not_looped_over() -> None:
    with pytest.raises(TypeError, match="iter_batches"):
        iter(iterator_of(FakeDataset(block_rows=[1])))


@pytest.mark.parametrize(
    ("method", "library"), [("iter_tf_batches", "tensorflow"), ("iter_jax_batches", "jax")]
)
def test_a_missing_framework_is_named(
    method: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    monkeypatch.delitem(
        __import__("sys").modules, f"syncline.data.iterate.{library}", raising=False
    )
    with pytest.raises(ImportError, match=library):
        getattr(iterator_of(FakeDataset(block_rows=[1])), method)()


def test_arrays_of_a_batch_within_a_block_are_views_of_it() -> None:
    table = pa.table({"v": np.arange(5)})
    dataset = FakeDataset(block_rows=[5])
    dataset.tables = [table]
    (batch,) = iterator_of(dataset).iter_batches()
    assert batch["v"].ctypes.data == table["v"].chunk(0).buffers()[1].address
