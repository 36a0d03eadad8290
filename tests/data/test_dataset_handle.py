"""Datasets as values: immutable, picklable, with their own context; they are not sequences."""

import pickle
from collections.abc import Iterator

import cloudpickle
import pyarrow as pa
import pytest

import syncline
from syncline.data.columnar.expressions import col
from syncline.data.context import DataContext
from syncline.data.dataset import Dataset, MaterializedDataset
from syncline.data.execute import block_store
from syncline.data.from_memory import from_items
from syncline.data.plan.nodes import HeldBlock
from syncline.data.read import range as numbers
from syncline.exceptions import ObjectLostError


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
    assert repr(ds).startswith("name: three\nshape: (3, 1)")
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


def test_repr_shows_what_is_known_and_runs_nothing() -> None:
    def never(row: object) -> object:
        raise AssertionError("this must not run")

    ds = numbers(3).map(never).limit(2)
    assert repr(ds).splitlines() == [
        "shape: (2, ?)",
        "(ReadRange -> Map(never) -> Limit(2): take() or schema() computes rows and tells the "
        "columns)",
    ]
    assert "Map(never)" in ds._repr_html_()
    assert repr(numbers(3)).splitlines() == [
        "shape: (3, 1)",
        "┌───────┐",
        "│ id    │",
        "│ ---   │",
        "│ int64 │",
        "└───────┘",
        "(nothing is computed yet: take() computes rows, explain() prints the plan)",
    ]


def test_repr_of_materialized_rows_shows_both_ends() -> None:
    lines = repr(numbers(1234, override_num_blocks=3).materialize()).splitlines()
    assert lines[0] == "shape: (1_234, 1)"
    assert [line.strip("│ ") for line in lines[6:-1]] == [
        *"01234",
        "…",
        *(str(number) for number in range(1229, 1234)),
    ]
    few = repr(numbers(7, override_num_blocks=3).materialize()).splitlines()
    assert [line.strip("│ ") for line in few[6:-1]] == list("0123456")
    assert repr(from_items([])).splitlines() == ["shape: (0, ?)"]
    assert "null" in from_items([{"a": None}])._repr_html_()


def test_repr_without_a_block_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    ds = numbers(9, override_num_blocks=3).materialize()
    table_of = block_store.table_of

    def present(block: HeldBlock) -> pa.Table:
        table = table_of(block)
        if table["id"][0].as_py() == 3:
            raise ObjectLostError("the block in the middle is lost")
        return table

    monkeypatch.setattr(block_store, "table_of", present)
    assert repr(ds).splitlines()[0] == "shape: (9, 1)"


def test_repr_shows_the_rows_that_take_returned() -> None:
    ds = numbers(3).map(lambda row: {"double": row["id"] * 2})
    ds.take(2)
    assert [line.strip("│ ") for line in repr(ds).splitlines()[2:-2]] == [
        "double",
        "---",
        "int64",
        "╞════════╡",
        "0",
        "2",
    ]
    assert "take() returned" in repr(ds)


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
