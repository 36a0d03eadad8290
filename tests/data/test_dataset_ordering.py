"""`limit`, `random_sample`, `repartition`, shuffles, `sort`, `cache`: their nodes, and what they
refuse at the call.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from syncline.data.columnar.schemas import UnknownColumnError
from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_arrow
from syncline.data.plan.nodes import (
    Cache,
    HashPartition,
    Limit,
    RandomizeBlocks,
    RandomSample,
    RandomSeedConfig,
    RandomShuffle,
    Repartition,
    Sort,
)


@pytest.fixture
def ds() -> Dataset:
    return from_arrow(pa.table({"a": [1, 2], "b": ["x", "y"], "c": [[1], [2]]}))


def test_nodes_carry_the_arguments(ds: Dataset, tmp_path: Path) -> None:
    limit = ds.limit(3)._node
    assert isinstance(limit, Limit)
    assert limit.limit == 3
    sample = ds.random_sample(0.5, seed=1)._node
    assert isinstance(sample, RandomSample)
    assert (sample.fraction, sample.seed) == (0.5, 1)
    shuffle = ds.random_shuffle(seed=RandomSeedConfig(3))._node
    assert isinstance(shuffle, RandomShuffle)
    assert shuffle.seed == RandomSeedConfig(seed=3)
    blocks = ds.randomize_block_order(seed=4)._node
    assert isinstance(blocks, RandomizeBlocks)
    assert blocks.seed == 4
    cache = ds.cache(tmp_path)._node
    assert isinstance(cache, Cache)
    assert cache.path == str(tmp_path)


def test_repartition_has_several_kinds(ds: Dataset) -> None:
    evenly = ds.repartition(4)._node
    assert isinstance(evenly, Repartition)
    assert (evenly.num_blocks, evenly.target_num_rows) == (4, None)
    by_rows = ds.repartition(target_num_rows_per_block=10, strict=True)._node
    assert isinstance(by_rows, Repartition)
    assert (by_rows.num_blocks, by_rows.target_num_rows, by_rows.strict) == (None, 10, True)
    by_keys = ds.repartition(4, keys=["a"], sort=True)._node
    assert isinstance(by_keys, HashPartition)
    assert (by_keys.keys, by_keys.num_blocks, by_keys.sort) == (("a",), 4, True)
    shuffled = ds.repartition(4, shuffle=True)._node
    assert isinstance(shuffled, Repartition)
    assert shuffled.num_blocks == 4
    assert isinstance(shuffled.input, RandomShuffle)
    assert isinstance(shuffled.input.seed, int)


@pytest.mark.parametrize(
    "arguments",
    [
        {"target_num_rows_per_block": 5, "keys": ["a"]},
        {"target_num_rows_per_block": 5, "sort": True},
        {"num_blocks": 5, "strict": True},
        {"num_blocks": 5, "sort": True},
    ],
)
def test_repartition_warns_of_what_it_ignores(ds: Dataset, arguments: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="is ignored") as caught:
        ds.repartition(**arguments)
    assert caught[0].filename == __file__


def test_sort_takes_keys_directions_and_boundaries(ds: Dataset) -> None:
    node = ds.sort(["a", "b"], descending=[True, False], boundaries=[3, 1, 3])._node
    assert isinstance(node, Sort)
    assert (node.keys, node.descending, node.boundaries) == (("a", "b"), (True, False), (1, 3))
    one = ds.sort("a", descending=True)._node
    assert isinstance(one, Sort)
    assert (one.keys, one.descending, one.boundaries) == (("a",), (True,), None)


def test_a_key_that_is_not_there_is_an_unknown_column_and_a_wrong_value(ds: Dataset) -> None:
    for error in (KeyError, ValueError, UnknownColumnError):
        with pytest.raises(error, match="'aa'"):
            ds.sort("aa")
    assert isinstance(ds.map(lambda row: row).sort("aa")._node, Sort)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda ds: ds.limit(-1), ValueError),
        (lambda ds: ds.limit(1.5), TypeError),
        (lambda ds: ds.limit(True), TypeError),
        (lambda ds: ds.random_sample(-0.1), ValueError),
        (lambda ds: ds.random_sample(1.1), ValueError),
        (lambda ds: ds.random_sample(float("nan")), ValueError),
        (lambda ds: ds.random_sample("half"), TypeError),
        (lambda ds: ds.random_sample(0.5, seed="x"), TypeError),
        (lambda ds: ds.random_shuffle(seed=1.5), TypeError),
        (lambda ds: ds.random_shuffle(num_blocks=0), ValueError),
        (lambda ds: ds.random_shuffle(num_cpu=1), TypeError),
        (lambda ds: ds.randomize_block_order(seed="x"), TypeError),
        (lambda ds: ds.repartition(), ValueError),
        (lambda ds: ds.repartition(0), ValueError),
        (lambda ds: ds.repartition(2, 2), ValueError),
        (lambda ds: ds.repartition(target_num_rows_per_block=0), ValueError),
        (lambda ds: ds.repartition(target_num_rows_per_block=2, shuffle=True), ValueError),
        (lambda ds: ds.repartition(2, keys=[]), ValueError),
        (lambda ds: ds.repartition(2, keys=["aa"]), KeyError),
        (lambda ds: ds.repartition(2, keys=["c"]), TypeError),
        (lambda ds: ds.sort(None), ValueError),
        (lambda ds: ds.sort([]), ValueError),
        (lambda ds: ds.sort("c"), TypeError),
        (lambda ds: ds.sort("a", descending=[True, False]), ValueError),
        (lambda ds: ds.sort("a", descending="yes"), TypeError),
        (lambda ds: ds.sort("a", boundaries=["x"]), ValueError),
    ],
)
def test_what_does_not_fit_fails_at_the_call(
    ds: Dataset, call: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(ds)
