"""Nested dictionaries with flat keys, and initial points."""

import pytest

from syncline.tune.search.library_searcher import check_points
from syncline.tune.search.util import flatten_dict, merge_dicts, unflatten_dict, unflatten_list_dict


def test_nested_keys_become_flat_and_back():
    nested = {"a": 1, "b": {"c": {"d": 2}, "e": [3, {"f": 4}]}}
    assert flatten_dict(nested) == {"a": 1, "b/c/d": 2, "b/e": [3, {"f": 4}]}
    assert unflatten_dict(flatten_dict(nested)) == nested
    assert flatten_dict(nested, flatten_list=True) == {"a": 1, "b/c/d": 2, "b/e/0": 3, "b/e/1/f": 4}
    assert unflatten_list_dict(flatten_dict(nested, flatten_list=True)) == nested
    assert flatten_dict({1: 2, "a": {3: 4}, "empty": {}}) == {1: 2, "a/3": 4}


def test_lists_are_filled_in_the_order_of_their_indices():
    assert unflatten_list_dict({"a/1": 2, "a/0": 1}) == {"a": [1, 2]}
    with pytest.raises(ValueError, match="consecutive"):
        unflatten_list_dict({"a/0": 1, "a/2": 2})
    assert unflatten_list_dict({}) == {}


def test_keys_that_could_not_be_told_apart_are_refused():
    with pytest.raises(TypeError, match="'a/b' needs a dictionary at 'a', which has the value 1"):
        unflatten_dict({"a": 1, "a/b": 2})


def test_merging_goes_deep_and_changes_neither():
    base, changes = {"a": {"b": 1, "c": 2}, "d": {"e": 1}}, {"a": {"b": 3}, "d": 4, "f": 5}
    assert merge_dicts(base, changes) == {"a": {"b": 3, "c": 2}, "d": 4, "f": 5}
    assert base == {"a": {"b": 1, "c": 2}, "d": {"e": 1}}


@pytest.mark.parametrize(
    ("points", "rewards", "error", "message"),
    [
        ({"a": 1}, None, TypeError, "must be a list of configurations"),
        ([3], None, TypeError, "must be dictionaries or lists, not 3"),
        ([{"a": 1}], 3, TypeError, "must be a list of numbers"),
        (
            [{"a": 1}],
            [1, 2],
            ValueError,
            "There are 2 `evaluated_rewards` for 1 `points_to_evaluate`",
        ),
    ],
)
def test_initial_points_that_do_not_fit_are_refused(points, rewards, error, message):
    with pytest.raises(error, match=message):
        check_points(points, rewards)


def test_initial_points_that_fit():
    check_points(None, None)
    check_points([{"a": 1}, [2]], [0.1, 0.2])
