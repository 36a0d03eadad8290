"""Rules on small plans; results as text."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from syncline.data.columnar.aggregate import AsList, Count, Sum
from syncline.data.columnar.expressions import (
    UDFExpr,
    col,
    lit,
    monotonically_increasing_id,
    random,
    star,
    udf,
)
from syncline.data.context import DataContext
from syncline.data.plan import nodes as n
from syncline.data.plan.rules import optimize
from tests.data.plan.plan_helpers import (
    batches,
    grouped,
    held,
    mapped,
    numbers,
    parquet,
    project,
    shown,
    sorted_by,
    where,
)

TABLE = pa.table(
    {
        "a": range(40),
        "b": [value % 7 for value in range(40)],
        "c": [str(value) for value in range(40)],
    }
)


def optimized(node: n.Node, context: DataContext | None = None) -> str:
    return shown(optimize(node, context or DataContext()))


@pytest.fixture
def read(tmp_path: Path) -> n.Read:
    return parquet(tmp_path / "rows.parquet", TABLE)


@udf(return_dtype=pa.int64())
def double(values: pa.Array) -> pa.Array:
    return pa.array([2 * value for value in values.to_pylist()])


def identity(row: Any) -> Any:
    return row


# -- filters


def test_filter_moves_into_a_source_with_predicate_pushdown(read: n.Read) -> None:
    assert optimized(where(read, col("a") > 3)) == "Read( where col('a') > 3)"


def test_filter_stays_above_a_source_without_predicate_pushdown() -> None:
    assert optimized(where(numbers(), col("id") > 3)) == "Read() | Filter(col('id') > 3)"


def test_conjunctions_are_split_and_moved_separately(read: n.Read) -> None:
    assert (
        optimized(where(read, (col("a") > 3) & (10 // col("b") > 2)))
        == "Read( where col('a') > 3) | Filter(10 // col('b') > 2)"
    )


def test_filter_moves_through_projections(read: n.Read) -> None:
    plan = where(
        project(read, col("a").alias("x"), (col("b") == 2).alias("is_two")),
        (col("x") > 3) & col("is_two"),
    )
    assert (
        optimized(plan) == "Read(a,b where (col('a') > 3) & (col('b') == 2)) | "
        "Project(col('a').alias('x'), (col('b') == 2).alias('is_two'))"
    )


def test_filter_moves_through_renames_and_drops(read: n.Read) -> None:
    plan = where(
        n.Project(input=n.Project(input=read, dropped=("c",)), renamed={"a": "b", "b": "a"}),
        col("a") > 3,
    )
    assert (
        optimized(plan)
        == "Read(a,b where col('b') > 3) | Project(col('a').alias('b'), col('b').alias('a'))"
    )


def test_filter_on_a_dropped_column_stays(read: n.Read) -> None:
    assert (
        optimized(where(project(read, col("b")), col("a") > 3)) == "Read(b) | Filter(col('a') > 3)"
    )
    renamed = where(n.Project(input=read, renamed={"a": "x"}), col("a") > 3)
    assert optimized(renamed).endswith("| Filter(col('a') > 3)")


def test_filter_on_a_computed_column_stays(read: n.Read) -> None:
    plan = where(
        project(read, star(), (col("a") + 1).alias("next")), (col("next") > 3) & (col("b") > 1)
    )
    assert (
        optimized(plan)
        == "Read( where col('b') > 1) | Project(star(), (col('a') + 1).alias('next')) | "
        "Filter(col('next') > 3)"
    )


@pytest.mark.parametrize(
    "through",
    [
        lambda node: sorted_by(node, "b"),
        lambda node: n.RandomShuffle(input=node, seed=1),
        lambda node: n.Repartition(input=node, num_blocks=2),
        lambda node: n.HashPartition(input=node, keys=("b",)),
    ],
)
def test_filter_moves_through_reordering_nodes(through: Any, read: n.Read) -> None:
    text = optimized(where(through(read), col("a") > 3))
    assert text.startswith("Read( where col('a') > 3) | ")
    assert "Filter" not in text


def test_filter_moves_into_every_input_of_a_union(read: n.Read) -> None:
    assert optimized(where(n.Union(parts=(read, held(TABLE))), col("a") > 3)) == (
        "Union[Read( where col('a') > 3), Held | Filter(col('a') > 3)]"
    )


def test_filter_on_keys_moves_through_grouping(read: n.Read) -> None:
    plan = where(grouped(read, ["b"], Sum("a")), (col("b") > 3) & (col("sum(a)") > 1))
    assert (
        optimized(plan) == "Read(a,b where col('b') > 3) | Aggregate(b) | Filter(col('sum(a)') > 1)"
    )


@pytest.mark.parametrize(
    "barrier",
    [
        lambda node: n.Limit(input=node, limit=5),
        lambda node: n.RandomSample(input=node, fraction=0.5),
        lambda node: mapped(node, identity),
        lambda node: n.FilterRows(input=node, function=n.UserFunction(function=identity)),
        lambda node: n.Cache(input=node),
        lambda node: project(node, star(), monotonically_increasing_id().alias("id")),
        lambda node: project(node, star(), double(col("a")).alias("twice")),
        lambda node: where(node, random(seed=1) < 0.5),
    ],
)
def test_filter_does_not_move_through(barrier: Any, read: n.Read) -> None:
    text = optimized(where(barrier(read), col("a") > 3))
    assert text.endswith("| Filter(col('a') > 3)")
    assert "where" not in text


def test_user_function_in_a_filter_stays_and_is_called_for_fewer_rows(read: n.Read) -> None:
    assert optimized(where(read, (double(col("a")) > 3) & (col("b") > 1))) == (
        "Read( where col('b') > 1) | Filter(double(col('a')) > 3)"
    )


def test_filter_that_may_fail_does_not_move_past_its_guard(read: n.Read) -> None:
    guarded = where(
        where(project(read, star(), (col("b") + 0).alias("x")), col("x") != 0), 10 // col("b") > 2
    )
    assert optimized(guarded).endswith("| Filter(col('x') != 0) | Filter(10 // col('b') > 2)")


def test_adjacent_filters_are_merged() -> None:
    assert (
        optimized(where(where(numbers(), col("id") > 3), col("id") < 9))
        == "Read() | Filter((col('id') > 3) & (col('id') < 9))"
    )


def test_predicate_with_mismatched_types_stays_for_a_clear_error(read: n.Read) -> None:
    assert optimized(where(read, col("c") > 3)) == "Read() | Filter(col('c') > 3)"


# -- columns


def test_selection_moves_into_the_read(read: n.Read) -> None:
    assert optimized(project(read, col("c"), col("a"))) == "Read(c,a)"


def test_selection_of_all_columns_is_dropped(read: n.Read) -> None:
    assert optimized(project(read, col("a"), col("b"), col("c"))) == "Read()"
    assert optimized(project(held(TABLE), col("a"), col("b"), col("c"))) == "Held"


def test_unknown_column_disables_pruning_for_a_complete_error(read: n.Read) -> None:
    assert (
        optimized(project(read, col("a"), col("colour")))
        == "Read() | Project(col('a'), col('colour'))"
    )


def test_columns_that_later_nodes_do_not_need_are_not_read(read: n.Read) -> None:
    assert optimized(grouped(sorted_by(read, "a"), ["b"], Count())) == "Read(b) | Aggregate(b)"
    assert optimized(project(where(sorted_by(read, "b"), 10 // col("a") > 1), col("c"))) == (
        "Read() | Filter(10 // col('a') > 1) | Sort(b) | Project(col('c'))"
    )
    assert (
        optimized(grouped(sorted_by(read, "a"), ["b"], AsList("a")))
        == "Read(a,b) | Sort(a) | Aggregate(b)"
    )


def test_drop_columns_reads_fewer(read: n.Read) -> None:
    assert optimized(n.Project(input=read, dropped=("a",))) == "Read(b,c)"


def test_unneeded_expressions_are_not_computed(read: n.Read) -> None:
    plan = project(sorted_by(project(read, star(), (col("a") * 2).alias("twice")), "b"), col("b"))
    assert optimized(plan) == "Read(b) | Sort(b)"


def test_user_functions_get_all_columns_and_are_always_called(read: n.Read) -> None:
    assert (
        optimized(project(mapped(read, identity), col("a")))
        == "Read() | MapRows | Project(col('a'))"
    )
    plan = project(sorted_by(project(read, star(), double(col("a")).alias("twice")), "b"), col("b"))
    assert (
        optimized(plan)
        == "Read(a,b) | Project(star(), double(col('a')).alias('twice')) | Sort(b) | "
        "Project(col('b'))"
    )


def test_count_reads_the_cheapest_column(read: n.Read) -> None:
    counted = grouped(
        where(sorted_by(project(read, col("c"), col("a")), "a"), 10 // col("a") > 1), [], Count()
    )
    assert optimized(counted) == "Read(a) | Filter(10 // col('a') > 1) | Aggregate()"
    assert (
        optimized(grouped(n.RandomSample(input=read, fraction=0.5), [], Count()))
        == "Read(a) | RandomSample | Aggregate()"
    )


def test_cache_gets_all_columns_of_its_input(read: n.Read) -> None:
    assert optimized(project(n.Cache(input=read), col("a"))) == "Read() | Cache | Project(col('a'))"


def test_join_reads_what_is_needed_and_keeps_suffixes(read: n.Read, tmp_path: Path) -> None:
    other = parquet(tmp_path / "other.parquet", TABLE)
    joined = n.Join(
        parts=(read, other),
        join_type="inner",
        left_on=("a",),
        right_on=("a",),
        left_suffix="_l",
        right_suffix="_r",
    )
    assert (
        optimized(project(joined, col("b_l"))) == "Join[Read(a,b), Read(a,b)] | Project(col('b_l'))"
    )


# -- projections


def test_adjacent_projections_are_merged(read: n.Read) -> None:
    plan = project(
        project(held(TABLE), star(), (col("a") + 1).alias("x")), star(), (col("b") + 1).alias("y")
    )
    assert (
        optimized(plan)
        == "Held | Project(star(), (col('a') + 1).alias('x'), (col('b') + 1).alias('y'))"
    )


def test_projections_are_not_merged_if_a_value_would_be_computed_twice() -> None:
    plan = project(
        project(held(TABLE), star(), (col("a") + 1).alias("x")), star(), (col("x") * 2).alias("y")
    )
    assert optimized(plan).count("Project") == 2
    replaced = project(
        project(held(TABLE), star(), (col("a") + 1).alias("x")), star(), (col("x") * 2).alias("x")
    )
    assert optimized(replaced) == "Held | Project(star(), ((col('a') + 1) * 2).alias('x'))"


def test_projections_with_user_functions_or_random_numbers_are_not_merged() -> None:
    for expr in (double(col("a")).alias("x"), random(seed=1).alias("x")):
        assert (
            optimized(project(project(held(TABLE), star(), expr), star(), lit(1).alias("y"))).count(
                "Project"
            )
            == 2
        )
    assert isinstance(double(col("a")), UDFExpr)


# -- limits


def test_limit_moves_through_nodes_that_keep_rows() -> None:
    plan = n.Limit(
        input=mapped(
            batches(project(numbers(), col("id").alias("x")), identity, keeps=True), identity
        ),
        limit=5,
    )
    assert (
        optimized(plan)
        == "Read() | Limit(5) | Project(col('id').alias('x')) | MapBatches | MapRows"
    )


@pytest.mark.parametrize(
    "barrier",
    [
        lambda node: batches(node, identity),
        lambda node: mapped(node, identity, on_error="skip"),
        lambda node: where(node, col("id") > 1),
        lambda node: sorted_by(node, "id"),
        lambda node: n.RandomizeBlocks(input=n.Cache(input=node)),
    ],
)
def test_limit_does_not_move_through(barrier: Any) -> None:
    assert optimized(n.Limit(input=barrier(numbers()), limit=5)).endswith("| Limit(5)")


def test_limit_stays_above_functions_whose_failing_blocks_are_dropped() -> None:
    context = DataContext(max_errored_blocks=3)
    assert (
        optimized(n.Limit(input=mapped(numbers(), identity), limit=5), context)
        == "Read() | MapRows | Limit(5)"
    )


def test_limits_are_merged_and_copied_into_unions() -> None:
    plan = n.Limit(input=n.Limit(input=n.Union(parts=(numbers(), held(TABLE))), limit=9), limit=5)
    assert optimized(plan) == "Union[Read() | Limit(5), Held | Limit(5)] | Limit(5)"


# -- nodes without effect


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (lambda read: sorted_by(n.RandomShuffle(input=read), "a"), "Sort(a)"),
        (lambda read: sorted_by(sorted_by(read, "a"), "a", "b"), "Sort(a,b)"),
        (lambda read: sorted_by(sorted_by(read, "b"), "a"), "Sort(b) | Sort(a)"),
        (lambda read: grouped(n.RandomShuffle(input=read), ["b"], Sum("a")), "Aggregate(b)"),
        (
            lambda read: grouped(n.RandomShuffle(input=read), ["b"], AsList("a")),
            "RandomShuffle | Aggregate(b)",
        ),
        (
            lambda read: n.RandomShuffle(
                input=n.Repartition(input=n.RandomShuffle(input=read), num_blocks=3)
            ),
            "RandomShuffle",
        ),
        (lambda read: n.RandomShuffle(input=sorted_by(read, "a")), "RandomShuffle"),
        (
            lambda read: n.RandomShuffle(input=sorted_by(read, "a"), seed=3),
            "Sort(a) | RandomShuffle",
        ),
        (
            lambda read: n.Repartition(input=n.Repartition(input=read, num_blocks=3), num_blocks=4),
            "Repartition",
        ),
        (lambda read: grouped(sorted_by(project(read, col("a")), "a"), [], Count()), "Aggregate()"),
    ],
)
def test_nodes_whose_work_is_undone_are_dropped(plan: Any, expected: str) -> None:
    assert optimized(plan(held(TABLE))) == f"Held | {expected}"


def test_unions_of_unions_are_flat() -> None:
    plan = n.Union(parts=(n.Union(parts=(held(TABLE), numbers())), held(TABLE)))
    assert optimized(plan) == "Union[Held, Read(), Held]"


# -- order of blocks


def test_randomized_block_order_becomes_a_read_order() -> None:
    assert (
        optimized(n.RandomizeBlocks(input=mapped(numbers(), identity)))
        == "Read( shuffled) | MapRows"
    )
    assert optimized(n.RandomizeBlocks(input=held(TABLE))) == "Held | RandomizeBlocks"
    assert (
        optimized(n.RandomizeBlocks(input=sorted_by(numbers(), "id")))
        == "Read() | Sort(id) | RandomizeBlocks"
    )


def test_rules_do_not_change_the_given_plan(read: n.Read) -> None:
    plan = n.Limit(input=where(project(read, star(), lit(1).alias("x")), col("a") > 3), limit=3)
    before = shown(plan)
    optimize(plan, DataContext())
    assert shown(plan) == before
