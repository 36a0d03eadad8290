"""Signatures: differences that they detect or ignore, and equality in all processes."""

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from syncline.data.columnar.aggregate import Count, Quantile, Sum
from syncline.data.columnar.expressions import col, random, udf
from syncline.data.io.sources.range import RangeDatasource
from syncline.data.plan import nodes as n
from syncline.data.plan.compute import TaskPoolStrategy
from syncline.data.plan.signature import digest_of, signature
from tests.data.plan.plan_helpers import (
    batches,
    function,
    grouped,
    held,
    mapped,
    numbers,
    parquet,
    project,
    where,
)

TABLE = pa.table({"a": [1, 2, 3]})

PROGRAM = """
    import functools
    import numpy as np
    from syncline.data.columnar.aggregate import Sum
    from syncline.data.columnar.expressions import col, udf
    from syncline.data.plan import nodes as n
    from syncline.data.plan.signature import signature
    from syncline.data.io.sources.range import RangeDatasource
    import pyarrow as pa

    WORDS = 3

    def helper(value):
        return value in {"red", "green", "blue", ("a", 1)}

    def outer(scale, seen):
        def inner(row):
            seen.append(helper(row["id"]))
            return {"id": row["id"] * scale}
        return inner

    class Model:
        names = ("x", "y")
        def __init__(self, weights):
            self.weights = weights
        def __call__(self, batch):
            return {"id": [each for each in batch["id"] if each not in {1, 2, 3}]}

    @udf(return_dtype=pa.int64())
    class Scale:
        def __init__(self, factor):
            self.factor = factor
        def __call__(self, values):
            return values

    plan = n.Read(source=RangeDatasource(100, column_name="id"), parallelism=4)
    plan = n.MapRows(input=plan, function=n.UserFunction(function=outer(3, [])))
    partial = functools.partial(outer, seen={"a", "b", "c"})
    plan = n.MapRows(input=plan, function=n.UserFunction(function=partial))
    model = n.UserFunction(
        function=Model, constructor_args=(np.arange(5),), kwargs={"tags": {"p", "q"}}
    )
    plan = n.MapBatches(input=plan, function=model)
    plan = n.Project(input=plan, expressions=(Scale(2)(col("id")).alias("id"),))
    plan = n.Aggregate(input=plan, keys=("id",), aggregates=(Sum("id"),))
    print(signature(plan))
"""


def test_other_processes_with_other_hash_seeds_agree(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    results = [
        subprocess.run(
            [sys.executable, str(program)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert results[0] == results[1] != ""


def times(factor: int) -> Callable[[Any], Any]:
    return lambda row: {"id": row["id"] * factor}


def plus(row: Any) -> Any:
    return {"id": row["id"] + 1}


def helped(row: Any) -> Any:
    return plus(row)


@udf(return_dtype=pa.int64())
def double(values: Any) -> Any:
    return values


def variants() -> list[n.Node]:
    """Return plans that are all different."""
    base = numbers(100)
    return [
        base,
        numbers(101),
        numbers(100, tasks=3),
        n.Limit(input=base, limit=3),
        n.Limit(input=base, limit=4),
        mapped(base, times(2)),
        mapped(base, times(3)),
        mapped(base, plus),
        mapped(base, helped),
        mapped(base, plus, args=(1,)),
        mapped(base, plus, kwargs={"x": [1]}),
        mapped(base, plus, kwargs={"x": [2]}),
        mapped(base, plus, kwargs={"x": np.arange(3)}),
        mapped(base, plus, kwargs={"x": np.arange(4)}),
        batches(base, plus),
        batches(base, plus, size=3),
        n.FlatMap(input=base, function=function(plus)),
        where(base, col("id") > 3),
        where(base, col("id") > 4),
        project(base, double(col("id")).alias("id")),
        project(base, random(seed=1).alias("id")),
        project(base, random(seed=2).alias("id")),
        n.RandomShuffle(input=base),
        n.RandomShuffle(input=base, seed=1),
        n.RandomShuffle(input=base, seed=n.RandomSeedConfig(seed=1)),
        grouped(base, ["id"], Count()),
        grouped(base, ["id"], Sum("id")),
        grouped(base, ["id"], Quantile("id", q=0.5)),
        grouped(base, ["id"], Quantile("id", q=0.6, alias_name="quantile(id)")),
        n.Union(parts=(base, base)),
        n.Union(parts=(base, numbers(100))),
        n.Zip(parts=(base, base)),
        held(TABLE),
        held(pa.table({"a": [1, 2, 4]})),
        held(pa.table({"b": [1, 2, 3]})),
    ]


def test_different_plans_have_different_signatures_and_equal_ones_equal() -> None:
    found = [signature(plan) for plan in variants()]
    assert len(set(found)) == len(found)
    assert found == [signature(plan) for plan in variants()]


def test_changed_files_change_the_signature(tmp_path: Path) -> None:
    before = signature(parquet(tmp_path / "a.parquet", TABLE))
    assert signature(parquet(tmp_path / "a.parquet", pa.concat_tables([TABLE, TABLE]))) != before


@pytest.mark.parametrize(
    ("one", "other"), [({"compute": TaskPoolStrategy(2)}, {}), ({"timeout_s": 3.0}, {})]
)
def test_executor_and_resources_do_not_change_the_signature(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert signature(mapped(numbers(), plus, **one)) == signature(mapped(numbers(), plus, **other))


def test_mutable_state_does_not_change_the_signature() -> None:
    seen: list[Any] = []
    plan = mapped(numbers(), lambda row: seen.append(row))
    before = signature(plan)
    seen.append(1)
    assert signature(plan) == before


def test_functions_that_call_themselves_have_a_signature() -> None:
    def count(row: Any) -> Any:
        return row if row["id"] <= 0 else count({"id": row["id"] - 1})

    assert signature(mapped(numbers(), count)) == signature(mapped(numbers(), count))


def test_digest_covers_the_content_of_values() -> None:
    assert (
        digest_of({"a": {1, 2}}, "x")
        == digest_of({"a": {2, 1}}, "x")
        != digest_of({"a": {1, 3}}, "x")
    )
    assert digest_of(("ab", "c")) != digest_of(("a", "bc"))


class Palette:
    """An object of a user program."""

    def __init__(self, colours):
        self.colours = colours


SIZES = [1, 2]
PALETTE = Palette(["red"])


def using(thing: Any) -> n.Node:
    return mapped(numbers(), lambda row: {"id": row["id"], "thing": thing})


def uses_globals(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"] * SIZES[0], "colour": PALETTE.colours[0]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1], [2]),
        (Palette(["red"]), Palette(["blue"])),
        ({"a": Palette(1)}, {"a": Palette(2)}),
        (np.ones(3), np.zeros(3)),
    ],
)
def test_closures_are_covered_only_with_state(one: Any, other: Any) -> None:
    assert signature(using(one)) == signature(using(other))
    assert signature(using(one), with_state=True) != signature(using(other), with_state=True)
    assert signature(using(one), with_state=True) == signature(using(one), with_state=True)


@pytest.mark.parametrize(("name", "value"), [("SIZES", [3]), ("PALETTE", Palette(["blue"]))])
def test_globals_are_covered_only_with_state(
    monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    plan = mapped(numbers(), uses_globals)
    before = signature(plan), signature(plan, with_state=True)
    monkeypatch.setitem(uses_globals.__globals__, name, value)
    assert signature(plan) == before[0]
    assert signature(plan, with_state=True) != before[1]


def test_unpicklable_state_is_ignored() -> None:
    opened = using(threading.Lock())
    assert signature(opened, with_state=True) == signature(opened, with_state=True)


def test_sources_keep_the_names_of_earlier_versions() -> None:
    # Module names are part of signatures: cursors of earlier versions must stay valid.
    plan = n.Read(source=RangeDatasource(100, column_name="id"), parallelism=4)
    assert signature(plan) == "9da325be35c59b36fed56704"
