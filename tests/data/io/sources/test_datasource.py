"""Read tasks, and sources without files."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from syncline.data.context import DataContext
from syncline.data.io.sources.datasource import (
    BlockMetadata,
    Datasource,
    ReadTask,
    limit_tasks,
    slice_bounds,
)
from syncline.data.io.sources.huggingface import HuggingFaceDatasource
from syncline.data.io.sources.range import RandomIntRowDatasource, RangeDatasource
from syncline.data.io.sources.torch_dataset import TorchDatasource


def read(source: Datasource, parallelism: int = 3, limit: int | None = None) -> pa.Table:
    tasks = [pickle.loads(pickle.dumps(task)) for task in source.get_read_tasks(parallelism, limit)]
    return pa.concat_tables(
        [table for task in tasks for table in task()], promote_options="permissive"
    )


def test_tasks_convert_batches_to_tables():
    task = ReadTask(
        lambda: [{"a": [1]}, pd.DataFrame({"a": [2]}), pa.table({"a": [3]})],
        BlockMetadata(3, None, None, None),
    )
    assert [table["a"].to_pylist() for table in task()] == [[1], [2], [3]]


def test_tasks_stop_reading_at_their_limit():
    def tables():
        yield pa.table({"a": [1, 2, 3]})
        yield pa.table({"a": [4, 5, 6]})
        raise AssertionError("read too far")

    task = ReadTask(tables, BlockMetadata(100, None), per_task_row_limit=5)
    assert [table["a"].to_pylist() for table in task()] == [[1, 2, 3], [4, 5]]
    assert task.num_rows == 5


def test_task_without_rows_yields_its_schema():
    empty = pa.table({"a": pa.array([], pa.int8())})
    assert [table.schema for table in ReadTask(lambda: [empty, empty], BlockMetadata(0, 0))()] == [
        empty.schema
    ]


def test_metadata_is_hashable_and_keeps_files_as_a_tuple():
    assert BlockMetadata(1, 2, input_files=["a"]).input_files == ("a",)
    assert hash(BlockMetadata(1, 2, input_files=["a"])) == hash(
        BlockMetadata(1, 2, input_files=("a",))
    )


@pytest.mark.parametrize("limit", [0, 1, 9, 10, 11, 25, 100])
def test_a_limit_needs_only_the_first_tasks(limit):
    tasks = limit_tasks(RangeDatasource(30, column_name="id").get_read_tasks(3), limit)
    assert sum(table.num_rows for task in tasks for table in task()) == min(limit, 30)
    assert len(tasks) == min(3, -(-limit // 10))


def test_a_limit_keeps_tasks_of_unknown_size():
    tasks = [
        ReadTask(list, BlockMetadata(None, None)),
        ReadTask(list, BlockMetadata(5, None)),
        ReadTask(list, BlockMetadata(5, None)),
    ]
    assert len(limit_tasks(tasks, 5)) == 2


def test_projections_and_predicates_make_copies():
    class Source(Datasource):
        pass

    source = Source()
    narrow = source.apply_projection({"a": "x", "b": "b"}).apply_projection(["b", "c"])
    assert narrow.get_projection_map() == {"b": "b"}
    assert source.get_projection_map() is None
    assert source.get_name() == "Source"
    assert source.identity() == Source().identity() != narrow.identity()
    with pytest.raises(NotImplementedError, match="get_read_tasks"):
        source.get_read_tasks(1)


@pytest.mark.parametrize(("rows", "count"), [(0, 3), (1, 3), (10, 3), (10, 10), (10, 100)])
def test_slices_cover_the_rows_and_differ_by_one(rows, count):
    slices = slice_bounds(rows, count)
    assert [row for start, end in slices for row in range(start, end)] == list(range(rows))
    lengths = [end - start for start, end in slices]
    assert not lengths or max(lengths) - min(lengths) <= 1


def test_range_uses_the_block_size_of_the_context():
    source = RangeDatasource(100, column_name="id")
    assert read(source)["id"].to_pylist() == list(range(100))
    assert (source.num_rows(), source.estimate_inmemory_data_size(), source.schema().names) == (
        100,
        800,
        ["id"],
    )
    context = DataContext(target_max_block_size=80)
    (task,) = source.get_read_tasks(1, None, context)
    assert [table.num_rows for table in task()] == [10] * 10
    assert RangeDatasource(0, column_name="id").get_read_tasks(4) == []
    with pytest.raises(ValueError, match="at least 0"):
        RangeDatasource(-1, column_name="id")


def test_range_of_tensors_fills_each_with_its_number():
    source = RangeDatasource(5, "tensor", (2, 2))
    table = read(source)
    assert table.schema == source.schema()
    assert table["data"].combine_chunks().to_numpy_ndarray()[3].tolist() == [[3, 3], [3, 3]]


class Squares:
    def __len__(self):
        return 300

    def __getitem__(self, index):
        return np.full(3, index * index)


class Stream:
    def __iter__(self):
        return iter(range(300))


def test_map_style_torch_datasets_are_read_in_slices():
    source = TorchDatasource(Squares())
    assert [task.num_rows for task in source.get_read_tasks(3)] == [100, 100, 100]
    table = read(source)
    assert [row[0] for row in table["item"].combine_chunks().to_numpy_ndarray()] == [
        index * index for index in range(300)
    ]
    assert len(TorchDatasource(Squares(), local_read=True).get_read_tasks(3)) == 1
    assert not TorchDatasource(Squares(), local_read=True).supports_distributed_reads


def test_iterable_torch_datasets_are_one_task_of_unknown_length():
    source = TorchDatasource(Stream())
    (task,) = source.get_read_tasks(3)
    assert task.metadata.num_rows is None
    assert read(source, limit=130)["item"].to_pylist() == list(range(130))
    with pytest.raises(TypeError, match="has neither"):
        TorchDatasource(3)


class FakeHuggingFace:
    """As `datasets.Dataset` behaves: slices are tables in the format "arrow"."""

    _fingerprint, dataset_size = "abc", 800

    def with_format(self, name):
        assert name == "arrow"
        return self

    def __len__(self):
        return 100

    def __getitem__(self, rows):
        return pa.table({"a": list(range(100))}).slice(rows.start, rows.stop - rows.start)


def test_hugging_face_datasets_are_read_in_slices_and_identified_by_fingerprint():
    source = HuggingFaceDatasource(FakeHuggingFace(), batch_size=7)
    assert read(source)["a"].to_pylist() == list(range(100))
    assert [task.metadata.num_rows for task in source.get_read_tasks(4)] == [25] * 4
    assert source.identity() == HuggingFaceDatasource(FakeHuggingFace()).identity()
    with pytest.raises(TypeError, match="dataset\\['train'\\]"):
        HuggingFaceDatasource({"train": FakeHuggingFace()})


def test_ranges_have_rays_formats():
    (task,) = RangeDatasource(2).get_read_tasks(1)
    assert [table.to_pydict() for table in task()] == [{"value": [0, 1]}]
    (task,) = RangeDatasource(2, "tensor", (2,), column_name="x").get_read_tasks(1)
    (table,) = task()
    assert table["x"].combine_chunks().to_numpy_ndarray().tolist() == [[0, 0], [1, 1]]
    with pytest.raises(ValueError, match="block_format='list'"):
        RangeDatasource(2, "list")


def test_random_rows_are_the_same_when_a_task_runs_again():
    source = RandomIntRowDatasource(10, num_columns=2)
    tasks = source.get_read_tasks(3)
    first, again = ([next(iter(task())) for task in tasks] for _ in range(2))
    assert [table.to_pydict() for table in first] == [table.to_pydict() for table in again]
    assert sum(table.num_rows for table in first) == source.num_rows() == 10
    assert first[0].column_names == ["c_0", "c_1"]
