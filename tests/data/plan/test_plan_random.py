"""Random plans: rules do not change the rows, and stages give the rows of the plan."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from syncline.data.columnar import expressions
from syncline.data.columnar.aggregate import AsList, Count, Max, Sum
from syncline.data.columnar.expressions import Expr, col, lit, star
from syncline.data.context import DataContext
from syncline.data.io.sources.parquet import ParquetDatasource
from syncline.data.plan import nodes as n
from syncline.data.plan.rules import optimize
from tests.data.plan.plan_helpers import (
    function,
    grouped,
    held,
    interpreted,
    lowered,
    memory,
    project,
    rows_of,
    shown,
    where,
)

CASES = 300
COLUMNS = ["a", "b", "c"]
Table: TypeAlias = pa.Table


def some_table(choice: random.Random, rows: int) -> Table:
    return pa.table(
        {
            "a": pa.array([choice.choice([None, 0, 1, 2, 3, 4]) for _ in range(rows)], pa.int64()),
            "b": pa.array([choice.randrange(5) for _ in range(rows)], pa.int64()),
            "c": pa.array(range(rows), pa.int64()),
        }
    )


def mapped_row(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if value is None else value + 1 for name, value in row.items()}


def mapped_batch(batch: Table) -> Table:
    return batch.set_column(0, batch.column_names[0], pc.add(batch.column(0), 1))


class Plans:
    """Makes plans whose rows do not depend on chance: sorts before limits, no samples."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.choice = random.Random(seed)
        self.seed = seed
        self.folder = folder

    def source(self) -> n.Node:
        table = some_table(self.choice, self.choice.choice([0, 1, 7, 25]))
        kind = self.choice.randrange(3)
        if kind == 0:
            path = self.folder / f"{self.seed}-{self.choice.random()}.parquet"
            pq.write_table(table, path, row_group_size=5)
            return n.Read(source=ParquetDatasource(str(path)))
        return memory(table) if kind == 1 else held(table.slice(0, 3), table.slice(3))

    def plan(self, depth: int) -> n.Node:
        node = self.source()
        for _ in range(depth):
            node = self.step(node, names_of(node))
        return node

    def step(self, node: n.Node, names: list[str]) -> n.Node:
        makers: list[Callable[[], n.Node]] = [
            lambda: where(node, self.predicate(names)),
            lambda: where(node, self.predicate(names)),
            lambda: project(
                node, *map(col, self.choice.sample(names, self.choice.randint(1, len(names))))
            ),
            lambda: project(
                node, star(), self.value(names).alias(self.choice.choice([*names, "x", "y"]))
            ),
            lambda: project(node, *(col(name).alias(f"{name}{name}") for name in names[:3])),
            lambda: n.Project(input=node, dropped=tuple(names[1:2])),
            lambda: n.Project(
                input=node,
                renamed={names[0]: "renamed"}
                if "renamed" not in names
                else {names[-1]: f"{names[-1]}_"},
            ),
            lambda: self.sorted(node, names),
            lambda: n.Limit(input=self.sorted(node, names), limit=self.choice.randint(0, 12)),
            lambda: n.RandomShuffle(input=node, seed=self.choice.choice([None, 3])),
            lambda: n.Repartition(input=node, num_blocks=self.choice.randint(1, 4)),
            lambda: n.RandomizeBlocks(input=node),
            lambda: n.HashPartition(input=node, keys=tuple(names[:1]), num_blocks=2),
            lambda: n.MapRows(input=node, function=function(mapped_row)),
            lambda: n.MapBatches(
                input=node,
                function=function(mapped_batch),
                batch_format="pyarrow",
                keeps_row_count=True,
            ),
            lambda: grouped(node, [names[0]], Count(), Sum(names[-1]), Max(names[-1])),
            lambda: grouped(self.sorted(node, names), [names[0]], AsList(names[-1])),
            lambda: grouped(node, [], Count()),
            lambda: n.Union(parts=(node, where(node, self.predicate(names)), node)),
            lambda: self.joined(node, names),
        ]
        return self.choice.choice(makers)()

    def sorted(self, node: n.Node, names: list[str]) -> n.Sort:
        keys = self.choice.sample(names, len(names))
        return n.Sort(
            input=node, keys=tuple(keys), descending=tuple(self.choice.random() < 0.5 for _ in keys)
        )

    def joined(self, node: n.Node, names: list[str]) -> n.Join:
        other = held(some_table(self.choice, 6))
        kind = self.choice.choice(["inner", "left_outer", "left_semi", "full_outer"])
        keys = {"left_on": (names[0],), "right_on": ("c",)}
        return n.Join(
            parts=(node, other),
            join_type=kind,
            left_suffix="_l",
            right_suffix="_r",
            num_blocks=2,
            **keys,
        )

    def predicate(self, names: list[str]) -> Expr:
        name, number = col(self.choice.choice(names)), self.choice.randrange(5)
        kinds = [
            name > number,
            name == number,
            name.is_not_null(),
            name.is_in([1, number]),
            (name + 1) * 2 > number,
            ~(name < number),
        ]
        chosen: Expr = self.choice.choice(kinds)
        return chosen & self.predicate(names) if self.choice.random() < 0.4 else chosen

    def value(self, names: list[str]) -> Expr:
        name = col(self.choice.choice(names))
        chosen: Expr = self.choice.choice(
            [name, name + 1, lit(3), name * col(names[0]), name.is_null()]
        )
        return chosen if chosen.name is None else chosen + 0


def names_of(node: n.Node) -> list[str]:
    return [str(name) for name in interpreted(node).column_names]


def as_rows(table: Table) -> list[str]:
    """Return the rows sorted; lists and floats in a comparable form."""
    return sorted(repr(row) for row in table.to_pylist())


def is_valid(node: n.Node) -> bool:
    """Plans that fail by themselves (a sum of booleans that became text, names that meet) say
    nothing.
    """
    try:
        return bool(interpreted(node).num_columns)
    except (TypeError, ValueError, KeyError, pa.ArrowException):
        return False


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[n.Node]:
    folder = tmp_path_factory.mktemp("plans")
    made: list[n.Node] = []
    for seed in range(CASES):
        maker = Plans(seed, folder)
        try:
            made.append(maker.plan(maker.choice.randint(1, 6)))
        except (TypeError, ValueError, KeyError, pa.ArrowException):
            continue
    valid = [plan for plan in made if is_valid(plan)]
    assert len(valid) > CASES / 2
    return valid


def test_rules_do_not_change_the_rows(plans: list[n.Node]) -> None:
    changed = 0
    for plan in plans:
        better = optimize(plan, DataContext())
        changed += shown(better) != shown(plan)
        expected, found = interpreted(plan), interpreted(better)
        assert found.column_names == expected.column_names, f"{shown(plan)}\n{shown(better)}"
        assert as_rows(found) == as_rows(expected), f"{shown(plan)}\n{shown(better)}"
    assert changed > len(plans) / 4


def test_stages_give_the_rows_of_the_plan(plans: list[n.Node]) -> None:
    for plan in plans[::3]:
        better = optimize(plan, DataContext())
        expected, found = interpreted(plan), rows_of(lowered(better))
        if expected.num_rows:
            assert as_rows(found) == as_rows(expected), f"{shown(plan)}\n{shown(better)}"
        else:
            assert not found.num_rows


def test_generated_predicates_are_evaluated_alike_by_arrow_scans_and_by_tables(
    tmp_path: Path,
) -> None:
    maker = Plans(0, tmp_path)
    table = some_table(maker.choice, 30)
    path = tmp_path / "rows.parquet"
    pq.write_table(table, path)
    for _ in range(50):
        plan = where(n.Read(source=ParquetDatasource(str(path))), maker.predicate(COLUMNS))
        assert interpreted(optimize(plan, DataContext())).equals(
            expressions.filter_rows(table, plan.predicate)
        )
