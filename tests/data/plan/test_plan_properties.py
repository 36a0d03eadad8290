"""Properties of plans that are known without running them."""

from pathlib import Path

import pyarrow as pa
import pytest

from syncline.data.columnar.aggregate import Count, Sum
from syncline.data.columnar.expressions import col, lit, star
from syncline.data.plan import nodes as n
from syncline.data.plan import properties
from tests.data.plan.plan_helpers import (
    batches,
    grouped,
    held,
    mapped,
    memory,
    numbers,
    parquet,
    project,
    sorted_by,
    where,
)

TABLE = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (numbers(100), 100),
        (held(TABLE, TABLE), 6),
        (n.Limit(input=numbers(100), limit=7), 7),
        (n.Limit(input=where(numbers(100), col("id") > 1), limit=0), 0),
        (n.Limit(input=where(numbers(100), col("id") > 1), limit=9), None),
        (where(numbers(100), col("id") > 1), None),
        (sorted_by(project(mapped(numbers(100), str), star()), "id"), 100),
        (mapped(numbers(100), str, on_error="skip"), None),
        (batches(numbers(100), str), None),
        (batches(numbers(100), str, keeps=True), 100),
        (n.Union(parts=(numbers(100), held(TABLE))), 103),
        (n.Zip(parts=(numbers(3), held(TABLE))), 3),
        (n.Zip(parts=(numbers(4), held(TABLE))), None),
        (n.Mix(parts=(numbers(4), held(TABLE)), weights=(0.5, 0.5)), None),
        (n.Mix(parts=(numbers(4), held(TABLE)), weights=(0.5, 0.5), stop_when="longest"), 7),
        (grouped(where(numbers(9), col("id") > 1), [], Count()), 1),
        (grouped(numbers(9), ["id"], Count()), None),
    ],
)
def test_known_rows(plan: n.Node, rows: int | None) -> None:
    assert properties.known_rows(plan) == rows


@pytest.mark.parametrize(
    ("plan", "columns"),
    [
        (memory(TABLE), {"a": "int64", "b": "string"}),
        (
            project(held(TABLE), star(), (col("a") / 2).alias("half"), lit("t").alias("b")),
            {"a": "int64", "b": "string", "half": "double"},
        ),
        (n.Project(input=held(TABLE), renamed={"a": "c"}), {"c": "int64", "b": "string"}),
        (n.Project(input=held(TABLE), dropped=("a",)), {"b": "string"}),
        (grouped(held(TABLE), ["b"], Sum("a")), {"b": "string", "sum(a)": "int64"}),
        (
            n.Zip(parts=(held(TABLE), held(TABLE))),
            {"a": "int64", "b": "string", "a_1": "int64", "b_1": "string"},
        ),
        (
            n.Union(parts=(held(TABLE), held(pa.table({"a": [1.5]})))),
            {"a": "double", "b": "string"},
        ),
        (
            n.Join(
                parts=(held(TABLE), held(TABLE)),
                join_type="inner",
                left_on=("a",),
                right_on=("a",),
                right_suffix="_r",
            ),
            {"a": "int64", "b": "string", "b_r": "string"},
        ),
        (sorted_by(where(held(TABLE), col("a") > 1), "a"), {"a": "int64", "b": "string"}),
    ],
)
def test_known_schema(plan: n.Node, columns: dict[str, str]) -> None:
    schema = properties.known_schema(plan)
    assert schema is not None
    assert {field.name: str(field.type) for field in schema} == columns


@pytest.mark.parametrize(
    "plan",
    [
        mapped(held(TABLE), str),
        project(held(TABLE), col("unknown")),
        n.Union(parts=(held(TABLE), mapped(held(TABLE), str))),
        n.Union(parts=(held(TABLE), held(pa.table({"a": ["text"]})))),
        sorted_by(mapped(held(TABLE), str), "a"),
        grouped(held(TABLE), [], Sum("a")),
    ],
)
def test_schema_is_unknown_after_functions_and_for_failing_plans(plan: n.Node) -> None:
    assert properties.known_schema(plan) is None


def test_schema_of_a_deep_plan_is_found_quickly() -> None:
    plan: n.Node = held(TABLE)
    for _ in range(3000):
        plan = n.Limit(input=plan, limit=3)
    assert properties.known_schema(plan) == TABLE.schema


def test_bytes_are_estimated_from_metadata_only() -> None:
    assert properties.estimated_bytes(numbers(100)) == 800
    assert properties.estimated_bytes(n.Limit(input=numbers(100), limit=10)) == 80
    assert properties.estimated_bytes(n.Union(parts=(numbers(100), numbers(50)))) == 1200
    assert properties.estimated_bytes(where(numbers(100), col("id") > 1)) is None
    assert properties.estimated_input_bytes(where(numbers(100), col("id") > 1)) == 800
    assert properties.estimated_input_bytes(mapped(numbers(100), str)) is None


def test_input_files_are_listed_once(tmp_path: Path) -> None:
    first, second = parquet(tmp_path / "a.parquet", TABLE), parquet(tmp_path / "b.parquet", TABLE)
    plan = n.Union(parts=(where(first, col("a") > 1), second, first))
    assert properties.input_files(plan) == [
        str(tmp_path / "a.parquet"),
        str(tmp_path / "b.parquet"),
    ]


def test_deep_plans_do_not_overflow_the_stack() -> None:
    node: n.Node = numbers(100)
    for _ in range(3000):
        node = n.Sort(input=n.Limit(input=node, limit=50), keys=("id",), descending=(False,))
    assert properties.known_rows(node) == 50
    schema = properties.known_schema(node)
    assert schema is not None
    assert schema.names == ["id"]
    assert properties.estimated_input_bytes(
        n.FilterExpr(
            input=n.Sort(input=numbers(100), keys=("id",), descending=(False,)),
            predicate=col("id") > 3,
        )
    )
