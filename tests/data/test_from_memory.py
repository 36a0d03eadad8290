"""Datasets of what a program holds: rows, types, numbers of blocks."""

import sys
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import syncline
from syncline import data
from syncline.core.cgroups import machine_limits
from syncline.data.columnar import block as blocks
from syncline.data.plan.nodes import Held, Read


def blocks_of(dataset) -> list[pa.Table]:
    assert isinstance(dataset, data.MaterializedDataset)
    assert isinstance(dataset._node, Held)
    return [block.value for block in dataset._node.blocks]


def rows_of(dataset) -> list[dict]:
    return list(blocks.rows(blocks.concat(blocks_of(dataset))))


@pytest.fixture
def local_mode():
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def test_items_are_rows_or_values_of_the_column_item():
    assert rows_of(data.from_items([{"x": 1}, {"x": 2.5}])) == [{"x": 1.0}, {"x": 2.5}]
    assert rows_of(data.from_items(["a", "b"])) == [{"item": "a"}, {"item": "b"}]
    assert blocks_of(data.from_items([])) == []


def test_override_num_blocks_keeps_the_rows_of_several_tables_in_order():
    tables = [pa.table({"a": [0, 1, 2]}), pa.table({"a": [3]}), pa.table({"a": [4, 5]})]
    dataset = data.from_arrow(tables, override_num_blocks=4)
    assert [block["a"].to_pylist() for block in blocks_of(dataset)] == [[0], [1, 2], [3], [4, 5]]


def test_few_items_are_spread_over_the_cpus():
    assert len(blocks_of(data.from_items(list(range(1000))))) == 2 * machine_limits().cpus
    assert len(blocks_of(data.from_items([1, 2, 3]))) == min(3, 2 * machine_limits().cpus)


def test_many_bytes_are_more_blocks():
    context = data.DataContext(target_max_block_size=8000)
    with data.DataContext.current(context):
        dataset = data.from_items(list(range(20_000)))
    assert max(blocks.size_bytes(block) for block in blocks_of(dataset)) <= 8000


@pytest.mark.parametrize(("count", "expected"), [(1, [6]), (4, [1, 2, 1, 2]), (9, [1] * 6)])
def test_override_num_blocks_holds_but_no_block_is_empty(count: int, expected: list[int]):
    assert [
        block.num_rows
        for block in blocks_of(data.from_items(list(range(6)), override_num_blocks=count))
    ] == expected
    frame = pd.DataFrame({"x": range(6)})
    assert [
        block.num_rows for block in blocks_of(data.from_pandas(frame, override_num_blocks=count))
    ] == expected
    table = pa.table({"x": range(6)})
    assert [
        block.num_rows
        for block in blocks_of(data.from_arrow([table[:2], table[2:]], override_num_blocks=count))
    ] == expected


def test_override_num_blocks_below_one_is_refused():
    with pytest.raises(ValueError, match="override_num_blocks=0"):
        data.from_items([1], override_num_blocks=0)
    with pytest.raises(ValueError, match="override_num_blocks=-2"):
        data.from_pandas(pd.DataFrame({"x": [1]}), override_num_blocks=-2)


def test_values_of_no_common_type_are_refused_with_their_rows():
    with pytest.raises(TypeError, match="'x'"):
        data.from_items([{"x": 1}, {"x": "one"}])


def test_frames_arrays_and_tables_are_one_block_each():
    frame = pd.DataFrame({"x": [1, 2]}, index=[7, 8])
    assert [block.num_rows for block in blocks_of(data.from_pandas([frame, frame]))] == [2, 2]
    assert rows_of(data.from_pandas(frame)) == [{"x": 1}, {"x": 2}]
    arrays = data.from_numpy([np.zeros((2, 3)), np.ones((1, 3))])
    assert [block.num_rows for block in blocks_of(arrays)] == [2, 1]
    assert rows_of(arrays)[2]["data"].tolist() == [1, 1, 1]
    assert [
        block.num_rows for block in blocks_of(data.from_blocks([pa.table({"x": [1]}), frame]))
    ] == [1, 2]


def test_tables_are_not_copied():
    table = pa.table({"x": np.arange(1000)})
    (block,) = blocks_of(data.from_arrow(table))
    assert block["x"].chunk(0).buffers()[1].address == table["x"].chunk(0).buffers()[1].address


def test_a_large_table_is_cut():
    with data.DataContext.current(data.DataContext(target_max_block_size=800)):
        assert len(blocks_of(data.from_arrow(pa.table({"x": np.arange(1000)})))) == 10


def test_tables_may_be_bytes():
    sink = pa.BufferOutputStream()
    table = pa.table({"x": [1, 2]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert rows_of(data.from_arrow(sink.getvalue().to_pybytes())) == [{"x": 1}, {"x": 2}]


def test_references(local_mode):
    frame, array, table = pd.DataFrame({"x": [1, 2]}), np.arange(3), pa.table({"x": [5]})
    for dataset, expected in (
        (data.from_pandas_refs(syncline.put(frame)), [1, 2]),
        (data.from_numpy_refs([syncline.put(array)]), [0, 1, 2]),
        (data.from_arrow_refs([syncline.put(table), syncline.put(table)]), [5, 5]),
    ):
        held = dataset._node.blocks
        tables = [syncline.get(block.value) for block in held]
        assert blocks.concat(tables).column(0).to_pylist() == expected
        assert [block.num_rows for block in held] == [each.num_rows for each in tables]
        assert [block.size_bytes for block in held] == [blocks.size_bytes(each) for each in tables]
        assert [block.schema for block in held] == [each.schema for each in tables]


def test_a_table_in_the_object_store_stays_where_it_is(local_mode):
    ref = syncline.put(pa.table({"x": [5]}))
    (block,) = data.from_arrow_refs(ref)._node.blocks
    assert block.value == ref


def test_values_instead_of_references_are_refused():
    with pytest.raises(
        TypeError, match="from_pandas_refs takes references, but got DataFrame: use from_pandas"
    ):
        data.from_pandas_refs([pd.DataFrame({"x": [1]})])


class Squares:
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return index * index


def test_torch_datasets_are_read_lazily():
    dataset = data.from_torch(Squares())
    assert isinstance(dataset._node, Read)
    tasks = dataset._node.source.get_read_tasks(2)
    assert blocks.concat([table for task in tasks for table in task()])["item"].to_pylist() == [
        0,
        1,
        4,
        9,
        16,
    ]
    assert len(data.from_torch(Squares(), local_read=True)._node.source.get_read_tasks(4)) == 1
    with pytest.raises(TypeError, match="from_torch takes a dataset"):
        data.from_torch(3)


def test_huggingface_datasets_are_read_lazily():
    class Split:
        def __len__(self):
            return 3

        def with_format(self, name):
            return pa.table({"x": [1, 2, 3]})

    node = data.from_huggingface(Split(), override_num_blocks=2)._node
    assert node.parallelism == 2
    with pytest.raises(TypeError, match="splits"):
        data.from_huggingface({"train": Split()})


def test_frames_of_other_libraries_come_through_their_own_conversions():
    frame, table = pd.DataFrame({"x": [1, 2]}), pa.table({"x": [1, 2]})
    made = {
        data.from_spark: types.SimpleNamespace(toArrow=lambda: table),
        data.from_modin: types.SimpleNamespace(_to_pandas=lambda: frame),
        data.from_mars: types.SimpleNamespace(to_pandas=lambda: frame),
        data.from_daft: types.SimpleNamespace(to_arrow=lambda: table),
        data.from_tf: types.SimpleNamespace(as_numpy_iterator=lambda: iter([{"x": 1}, {"x": 2}])),
    }
    for convert, value in made.items():
        assert rows_of(convert(value)) == [{"x": 1}, {"x": 2}]
        with pytest.raises(TypeError, match=f"{convert.__name__} takes a"):
            convert([1])
    older = types.SimpleNamespace(toPandas=lambda: frame)
    assert len(blocks_of(data.from_spark(older, parallelism=2))) == 2


def test_dask_partitions_become_blocks_in_order(local_mode):
    dataframe = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"x": range(10), "y": list("abcdefghij")}, index=range(100, 110))
    dataset = data.from_dask(dataframe.from_pandas(frame, npartitions=3))
    tables = [syncline.get(block.value) for block in dataset._node.blocks]
    assert len(tables) == 3
    assert blocks.concat(tables).to_pydict() == {"x": list(range(10)), "y": list("abcdefghij")}


def test_what_is_no_dask_frame_is_refused():
    with pytest.raises(
        TypeError,
        match="from_dask takes a dask.dataframe.DataFrame, not DataFrame: use from_pandas",
    ):
        data.from_dask(pd.DataFrame({"x": [1]}))


def test_dask_is_needed_for_dask(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ImportError):
        data.from_dask(types.SimpleNamespace(to_delayed=list, dask={}))
