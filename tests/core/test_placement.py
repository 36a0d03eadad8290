"""Placement groups and scheduling strategies as values."""

import pickle

import pytest

from syncline.core.placement import (
    Exists,
    In,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroup,
    PlacementGroupSchedulingStrategy,
)


def test_a_placement_group_can_be_pickled_and_compares_by_id():
    group = PlacementGroup(3, [{"CPU": 1}, {"GPU": 2}])
    copy = pickle.loads(pickle.dumps(group))
    assert copy == group
    assert (copy.bundle_count, copy.bundle_specs, copy.id.hex()) == (
        2,
        [{"CPU": 1}, {"GPU": 2}],
        f"{3:032x}",
    )
    assert PlacementGroup.empty().is_empty


@pytest.mark.parametrize("index", [-2, 2])
def test_a_bundle_that_does_not_exist_is_refused(index):
    with pytest.raises(ValueError, match="use 0 to 1"):
        PlacementGroupSchedulingStrategy(PlacementGroup(3, [{"CPU": 1}] * 2), index)


def test_something_else_for_a_placement_group_is_refused():
    with pytest.raises(TypeError, match=r"util\.placement_group"):
        PlacementGroupSchedulingStrategy("group")


def test_strategies_can_be_pickled():
    for strategy in (
        NodeAffinitySchedulingStrategy("ab", soft=True),
        NodeLabelSchedulingStrategy({"zone": In("a", "b"), "ssd": Exists()}),
    ):
        assert pickle.loads(pickle.dumps(strategy)) == strategy


def test_labels_need_conditions():
    with pytest.raises(TypeError, match="use In, NotIn"):
        NodeLabelSchedulingStrategy({"zone": "a"})
    with pytest.raises(TypeError, match="compared with text"):
        In(3)
