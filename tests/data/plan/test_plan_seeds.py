"""Seeds of random nodes."""

import pyarrow as pa

from syncline.data.columnar.expressions import col
from syncline.data.context import DataContext
from syncline.data.plan import nodes as n
from syncline.data.plan import seeds
from syncline.data.plan.rules import optimize
from tests.data.plan.plan_helpers import held, where

TABLE = pa.table({"a": [1, 2, 3], "b": [1, 2, 3]})


def shuffled(node: n.Node, seed: n.Seed = None) -> n.RandomShuffle:
    return n.RandomShuffle(input=node, seed=seed)


def drawn(plan: n.Node, execution_seed: int = 1, epoch: int = 0) -> list[int]:
    found = [node for node in n.walk(plan) if isinstance(node, n.RandomShuffle)]
    return [seeds.resolve(node.seed, execution_seed=execution_seed, epoch=epoch) for node in found]


def test_int_seed_is_the_same_in_every_epoch() -> None:
    plan = seeds.with_indices(shuffled(held(TABLE), 42))
    assert drawn(plan, 1, 0) == drawn(plan, 2, 5) == [42]


def test_none_depends_on_execution_epoch_and_node() -> None:
    plan = seeds.with_indices(shuffled(shuffled(held(TABLE))))
    first, second = drawn(plan)
    assert first != second
    assert drawn(plan) == [first, second]
    assert not {first, second} & {*drawn(plan, execution_seed=2), *drawn(plan, epoch=1)}


def test_config_with_a_seed_depends_on_it_and_the_epoch_alone() -> None:
    fixed = n.RandomSeedConfig(seed=3, reseed_after_execution=False)
    moving = n.RandomSeedConfig(seed=3)
    plan = seeds.with_indices(shuffled(shuffled(held(TABLE), fixed), moving))
    assert drawn(plan, 1, 0) == drawn(plan, 2, 0)
    before, after = drawn(plan, 1, 0), drawn(plan, 1, 1)
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_config_without_a_seed_may_keep_the_order_of_an_execution() -> None:
    plan = seeds.with_indices(
        shuffled(held(TABLE), n.RandomSeedConfig(reseed_after_execution=False))
    )
    assert drawn(plan, 1, 0) == drawn(plan, 1, 3) != drawn(plan, 2, 0)


def test_numbers_are_the_same_in_every_version() -> None:
    assert seeds.derive(1, 2, 3) == 63003607247023404


def test_node_used_twice_has_one_seed_after_optimization() -> None:
    base = shuffled(held(TABLE))
    plan = n.Union(parts=(where(base, col("a") > 1), base, shuffled(held(TABLE))))
    first, second, other = drawn(optimize(plan, DataContext()))
    assert first == second != other


def test_indices_are_idempotent() -> None:
    plan = seeds.with_indices(shuffled(held(TABLE)))
    assert seeds.with_indices(plan) is plan
