"""Plans and stages as text."""

from pathlib import Path

import pyarrow as pa

from syncline.data.columnar.aggregate import Sum
from syncline.data.columnar.expressions import col, star
from syncline.data.context import DataContext
from syncline.data.plan import explain
from syncline.data.plan import nodes as n
from syncline.data.plan.compute import ActorPoolStrategy
from tests.data.plan.plan_helpers import (
    SHAPE,
    batches,
    grouped,
    mapped,
    numbers,
    parquet,
    project,
    sorted_by,
    where,
)


def add(row: object) -> object:
    return row


def test_chain_names_the_operators_from_the_source_to_the_result() -> None:
    plan = n.Limit(input=n.Zip(parts=(mapped(numbers(), add), sorted_by(numbers(), "id"))), limit=5)
    assert explain.chain(plan) == "ReadRange -> Map(add) -> Zip -> Limit(5)"


def test_text_shows_plan_optimized_plan_and_stages(tmp_path: Path) -> None:
    read = parquet(
        tmp_path / "a.parquet", pa.table({"a": range(20), "b": range(20), "c": range(20)})
    )
    prepared = where(project(read, star(), (col("a") * 2).alias("d")), col("a") > 3)
    plan = grouped(batches(prepared, add, compute=ActorPoolStrategy(size=2)), ["b"], Sum("d"))
    assert explain.text(plan, DataContext(), SHAPE) == "\n".join(
        [
            "",
            "-------- Logical Plan --------",
            "Aggregate[sum(d) by ['b']]",
            "+- MapBatches(add)",
            "   +- Filter[col('a') > 3]",
            "      +- Project[star(), (col('a') * 2).alias('d')]",
            "         +- ReadParquet",
            "",
            "-------- Logical Plan (Optimized) --------",
            "Aggregate[sum(d) by ['b']]",
            "+- MapBatches(add)",
            "   +- Project[star(), (col('a') * 2).alias('d')]",
            "      +- ReadParquet[where col('a') > 3]",
            "",
            "-------- Stages --------",
            "Aggregate  (64 partitions, threads)",
            "+- MapBatches(add)->PartialAggregate  (2 actors)",
            "   +- ReadParquet->Project  (2 tasks, threads)",
            "",
        ]
    )
