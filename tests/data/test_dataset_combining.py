"""`union`, `zip`, `mix`, `join`: their nodes, and what they refuse at the call."""

from typing import Any

import pyarrow as pa
import pytest

from syncline.data.dataset import Dataset
from syncline.data.from_memory import from_arrow
from syncline.data.plan.build import MixStoppingCondition
from syncline.data.plan.nodes import Join, Mix, Union, Zip


@pytest.fixture
def left() -> Dataset:
    return from_arrow(pa.table({"id": [1, 2], "value": [1.0, 2.0]}))


@pytest.fixture
def right() -> Dataset:
    return from_arrow(pa.table({"id": [2, 3], "value": ["x", "y"]}))


def test_union_and_zip_take_any_number_of_datasets(left: Dataset, right: Dataset) -> None:
    union = left.union(right, left)._node
    assert isinstance(union, Union)
    assert union.parts == (left._node, right._node, left._node)
    zipped = left.zip(right, left)
    assert isinstance(zipped._node, Zip)
    assert zipped.columns(fetch_if_missing=False) == [
        "id",
        "value",
        "id_1",
        "value_1",
        "id_2",
        "value_2",
    ]


def test_mix_takes_weights(left: Dataset, right: Dataset) -> None:
    mixed = left.mix(right)._node
    assert isinstance(mixed, Mix)
    assert (mixed.weights, mixed.stop_when) == ((1.0, 1.0), "longest")
    mixed = left.mix(
        right, weights=[3, 1], stopping_condition=MixStoppingCondition.STOP_ON_SHORTEST
    )._node
    assert isinstance(mixed, Mix)
    assert (mixed.weights, mixed.stop_when) == ((3.0, 1.0), "shortest")


def test_join_knows_its_columns(left: Dataset, right: Dataset) -> None:
    joined = left.join(right, "inner", 3, right_suffix="_r")
    assert isinstance(joined._node, Join)
    assert (joined._node.left_on, joined._node.right_on, joined._node.num_blocks) == (
        ("id",),
        ("id",),
        3,
    )
    assert joined.columns(fetch_if_missing=False) == ["id", "value", "value_r"]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda left, right: left.union([right]), TypeError, "not a dataset"),
        (lambda left, right: left.zip(5), TypeError, "not a dataset"),
        (lambda left, right: left.mix(right, weights=[1]), ValueError, "1 weights for 2 datasets"),
        (lambda left, right: left.mix(right, weights=[1, 0]), ValueError, "positive"),
        (lambda left, right: left.mix(right, weights=[1, float("nan")]), ValueError, "positive"),
        (
            lambda left, right: left.mix(right, stopping_condition="shortest"),
            TypeError,
            "MixStoppingCondition",
        ),
        (lambda left, right: left.join(right, "outer", 2), ValueError, "'full_outer'"),
        (lambda left, right: left.join(right, "inner", 0), ValueError, "num_partitions"),
        (lambda left, right: left.join(right, "inner", 2, on="id"), ValueError, "tuple"),
        (
            lambda left, right: left.join(right, "inner", 2, on=("id",), right_on=("id", "value")),
            ValueError,
            "1 keys.*has 2",
        ),
        (
            lambda left, right: left.join(right, "inner", 2, on=("idd",)),
            KeyError,
            "Did you mean 'id'",
        ),
        (
            lambda left, right: left.join(right, "inner", 2, on=("id",), right_on=("idd",)),
            KeyError,
            "Did you mean 'id'",
        ),
        (lambda left, right: left.join(right, "inner", 2, right_on=("value",)), Exception, "value"),
        (lambda left, right: left.join(right, "inner", 2), ValueError, "suffix"),
        (lambda left, right: left.join({"id": [1]}, "inner", 2), TypeError, "not a dataset"),
    ],
)
def test_what_does_not_fit_fails_at_the_call(
    left: Dataset, right: Dataset, call: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call(left, right)


def test_validated_joins_need_keys_of_one_type(left: Dataset, right: Dataset) -> None:
    floats = from_arrow(pa.table({"id": [2.0, 3.0]}))
    texts = from_arrow(pa.table({"id": ["2", "3"]}))
    assert isinstance(left.join(floats, "inner", 2)._node, Join)
    with pytest.raises(ValueError, match="int64 on the left and double on the right"):
        left.join(floats, "inner", 2, validate_schemas=True)
    with pytest.raises(ValueError, match="cannot join column 'id' of type int64"):
        left.join(texts, "inner", 2)
    with pytest.raises(ValueError, match="tuple of keys"):
        left.join(floats, "inner", 2, on=("id",), right_on="id")


def test_a_join_of_unknown_columns_is_not_checked_at_the_call(
    left: Dataset, right: Dataset
) -> None:
    assert isinstance(
        left.map(lambda row: row).join(right, "inner", 2, on=("idd",), right_on=("id",))._node, Join
    )
