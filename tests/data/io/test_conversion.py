"""Datasets as what other libraries hold."""

import importlib.util
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import syncline
from syncline import data
from syncline.data.columnar.schemas import UnknownColumnError


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


@pytest.fixture
def dataset() -> data.Dataset:
    return data.range(10, override_num_blocks=3).map_batches(
        lambda batch: {"id": batch["id"], "half": batch["id"] / 2}
    )


def test_to_pandas(dataset):
    pd.testing.assert_frame_equal(
        dataset.to_pandas(), pd.DataFrame({"id": np.arange(10), "half": np.arange(10) / 2})
    )


def test_to_pandas_refuses_more_rows_than_the_limit(dataset):
    assert len(dataset.to_pandas(limit=10)) == 10
    with pytest.raises(ValueError, match="at least 10 rows, more than limit=9"):
        dataset.to_pandas(limit=9)
    with pytest.raises(ValueError, match="has 10 rows, more than limit=9"):
        data.range(10).to_pandas(limit=9)


def test_references(dataset):
    tables = syncline.get(dataset.to_arrow_refs())
    assert [type(table) for table in tables] == [pa.Table] * len(tables)
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(10))
    assert pd.concat(syncline.get(dataset.to_pandas_refs()))["half"].tolist() == [
        n / 2 for n in range(10)
    ]
    arrays = syncline.get(dataset.to_numpy_refs())
    assert np.concatenate([each["id"] for each in arrays]).tolist() == list(range(10))
    assert np.concatenate(syncline.get(dataset.to_numpy_refs(column="half"))).tolist() == [
        n / 2 for n in range(10)
    ]
    assert np.concatenate(
        [each["id"] for each in syncline.get(data.range(4).to_numpy_refs())]
    ).tolist() == [0, 1, 2, 3]


def test_an_unknown_column_of_references_is_an_error(dataset):
    with pytest.raises(UnknownColumnError, match="'id'"):
        syncline.get(dataset.to_numpy_refs(column="idd"))


def test_to_dask_has_a_partition_for_each_block_in_order(dataset):
    pytest.importorskip("dask.dataframe")
    frame = dataset.to_dask()
    assert list(frame.columns) == ["id", "half"]
    assert frame.npartitions == len(dataset.to_arrow_refs())
    assert frame["id"].compute().tolist() == list(range(10))
    assert frame["half"].sum().compute() == 22.5


def test_to_dask_computes_with_dasks_own_schedulers_too(dataset):
    pytest.importorskip("dask.dataframe")
    assert dataset.to_dask()["id"].compute(scheduler="synchronous").tolist() == list(range(10))


def test_to_dask_and_back(dataset):
    pytest.importorskip("dask.dataframe")
    assert data.from_dask(dataset.to_dask()).take_all() == dataset.take_all()


def test_to_dask_of_no_rows():
    pytest.importorskip("dask.dataframe")
    assert len(data.from_items([]).to_dask().compute()) == 0


def test_to_dask_takes_the_names_and_types_of_the_program(dataset):
    pytest.importorskip("dask.dataframe")
    frame = dataset.to_dask(meta={"id": "int64", "half": "float64"})
    assert frame.dtypes.tolist() == [np.dtype("int64"), np.dtype("float64")]


def test_to_torch(dataset):
    pytest.importorskip("torch")
    batches = list(dataset.to_torch(label_column="half", batch_size=5))
    assert [label.shape for _, label in batches] == [(5, 1), (5, 1)]


LIBRARIES = {
    "to_modin": "modin",
    "to_mars": "mars",
    "to_daft": "daft",
    "to_spark": "pyspark",
    "to_tf": "tensorflow",
}


@pytest.mark.parametrize(("method", "library"), LIBRARIES.items())
def test_a_library_that_is_missing_is_named_with_what_to_install(
    dataset, method: str, library: str
):
    if importlib.util.find_spec(library) is not None:
        pytest.skip(f"{library} is installed")
    arguments = {"to_spark": (None,), "to_tf": ("id", "half")}.get(method, ())
    with pytest.raises(ImportError, match=f"{library}.*pip install"):
        getattr(dataset, method)(*arguments)
