"""Datasets as values: immutable, picklable, with a context of their own; what they are not:
sequences.
"""

import pickle
from collections.abc import Iterator

import cloudpickle
import pyarrow as pa
import pytest

import syncline
from syncline.data.columnar.expressions import col
from syncline.data.context import DataContext
from syncline.data.dataset import Dataset, MaterializedDataset
from syncline.data.from_memory import from_items
from syncline.data.read import range as numbers


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Iterator[None]:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def test_a_dataset_keeps_the_settings_of_its_creation() -> None:
    before = DataContext.get_current().max_errored_blocks
    with DataContext.current(DataContext.get_current().copy()) as context:
        context.max_errored_blocks = 7
        ds = numbers(3)
        context.max_errored_blocks = 8
    assert ds.context.max_errored_blocks == 7
    assert DataContext.get_current().max_errored_blocks == before


def test_what_is_made_of_a_dataset_has_a_copy_of_its_settings() -> None:
    ds = numbers(3)
    ds.context.max_errored_blocks = 5
    derived = ds.limit(2)
    ds.context.max_errored_blocks = 6
    assert derived.context.max_errored_blocks == 5
    assert derived.materialize().context.max_errored_blocks == 5


def test_lazy_datasets_are_pickled_as_plans() -> None:
    ds = numbers(10).filter(col("id") > 6).map(lambda row: {"x": row["id"]})
    ds.set_name("large")
    ds.count()
    copy = pickle.loads(cloudpickle.dumps(ds))
    assert isinstance(copy, Dataset)
    assert copy.name == "large"
    assert copy._query.observations.num_rows is None
    assert copy.take_all() == [{"x": 7}, {"x": 8}, {"x": 9}]


def test_names_are_for_people() -> None:
    ds = numbers(3)
    assert ds.name is None
    ds.set_name("three")
    assert ds.name == "three"
    assert "name=three" in repr(ds)
    assert ds.materialize().name == "three"


def test_a_lineage_can_be_kept_where_others_can_read_the_source() -> None:
    ds = numbers(5).filter(col("id") > 2)
    assert ds.has_serializable_lineage()
    assert Dataset.deserialize_lineage(ds.serialize_lineage()).take_all() == [{"id": 3}, {"id": 4}]
    held = ds.materialize().limit(1)
    assert not held.has_serializable_lineage()
    with pytest.raises(ValueError, match="write it to files"):
        held.serialize_lineage()
    with pytest.raises(TypeError, match="serialize_lineage"):
        Dataset.deserialize_lineage(pickle.dumps(5))


def test_a_dataset_is_no_sequence_but_true() -> None:
    ds = numbers(0)
    with pytest.raises(AttributeError, match="count()"):
        len(ds)
    with pytest.raises(TypeError, match="iter_rows"):
        iter(ds)
    assert ds


def test_repr_shows_operators_and_shape_and_runs_nothing() -> None:
    def never(row: object) -> object:
        raise AssertionError("this must not run")

    ds = numbers(3).map(never).limit(2)
    assert repr(ds).splitlines() == [
        "Limit(2)",
        "+- Map(never)",
        "   +- ReadRange",
        "Dataset(num_rows=2, schema=?)",
    ]
    assert "Map(never)" in ds._repr_html_()
    assert repr(numbers(3)).splitlines()[-1] == "Dataset(num_rows=3, schema={id: int64})"
    assert repr(from_items([{"a": 1}])) == "MaterializedDataset(num_rows=1, schema={a: int64})"


def test_only_materialized_datasets_know_their_blocks() -> None:
    ds = numbers(9, override_num_blocks=3)
    with pytest.raises(NotImplementedError, match="materialize"):
        ds.num_blocks()
    held = ds.materialize()
    assert isinstance(held, MaterializedDataset)
    assert held.num_blocks() == 3
    assert type(held.limit(1)) is Dataset


def test_a_materialized_dataset_is_not_computed_again() -> None:
    calls = []

    def noted(row: dict[str, int]) -> dict[str, int]:
        calls.append(row["id"])
        return row

    held = numbers(3).map(noted).materialize()
    assert held.materialize()._node.blocks == held._node.blocks  # type: ignore[attr-defined]
    assert held.take_all() == held.take_all() == [{"id": 0}, {"id": 1}, {"id": 2}]
    assert (held.count(), held.schema().names) == (3, ["id"])
    assert calls == [0, 1, 2]


def test_block_references_hold_the_rows() -> None:
    for ds in (numbers(4, override_num_blocks=2), from_items([{"id": n} for n in range(4)])):
        tables = syncline.get(ds.get_internal_block_refs())
        assert pa.concat_tables(tables)["id"].to_pylist() == [0, 1, 2, 3]
