"""SearchSpace and Parameter: reading nested spaces, filling them in, finding a point's values."""

from typing import Any

import pytest

from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.sample import (
    Categorical,
    choice,
    lograndint,
    loguniform,
    qlograndint,
    qrandint,
    qrandn,
    quniform,
    randint,
    uniform,
)
from syncline.tune.search.variant_generator import grid_search


def one(domain: Any) -> Parameter:
    return SearchSpace({"p": domain}, "Searcher", conditional=True).parameters["p"]


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (uniform(0, 1), ("float", "uniform", 0, 1, None)),
        (loguniform(0.1, 1), ("float", "log", 0.1, 1, None)),
        (quniform(0, 1, 0.1), ("float", "uniform", 0, 1, 0.1)),
        (randint(1, 10), ("integer", "uniform", 1, 9, None)),
        (lograndint(1, 10), ("integer", "log", 1, 9, None)),
        (qrandint(1, 10, 4), ("integer", "uniform", 4, 8, 4)),
        (qrandint(1, 10, 1), ("integer", "uniform", 1, 9, None)),
        (qlograndint(1, 10, 5), ("integer", "log", 5, 10, 5)),
        (choice("abc"), ("choice", "uniform", 0, 2, None)),
    ],
)
def test_domains_become_bounds_that_are_included(domain: Any, expected: Any) -> None:
    parameter = one(domain)
    assert (
        parameter.kind,
        parameter.distribution,
        parameter.low,
        parameter.high,
        parameter.step,
    ) == expected


def test_numbers_land_on_steps_in_bounds_and_in_their_type() -> None:
    assert one(quniform(0, 1, 0.1)).number(0.31) == 0.3
    assert one(quniform(0, 1, 0.1)).number(1.04) == 1.0
    assert one(qrandint(0, 20, 5)).number(8) == 10
    assert type(one(randint(1, 10)).number(3.0)) is int
    assert one(uniform(0, 1)).number(1 + 1e-12) == 1.0
    assert one(qrandn(0, 1, 0.5)).number(-7.3) == -7.5


def test_lists_and_dictionaries_in_them_stay_whole_and_constants_elsewhere_are_left_out() -> None:
    space = SearchSpace(
        {
            "a": {"x": uniform(0, 1), "left": 1},
            "layers": [{"size": randint(1, 9), "kind": "conv"}, 3],
            "c": 4,
        },
        "Searcher",
    )
    assert list(space.parameters) == ["a/x", "layers/0/size"]
    config = space.config({"a/x": 0.5, "layers/0/size": 2})
    assert config == {"a": {"x": 0.5}, "layers": [{"size": 2, "kind": "conv"}, 3]}
    assert space.drawn({**config, "c": 4}) == {"a/x": 0.5, "layers/0/size": 2}


def test_choices_are_by_index_and_told_apart_by_their_kind() -> None:
    space = SearchSpace({"c": choice([None, True, 1, "1", {"a": 1}, [1, 2]])}, "Searcher")
    for index, value in enumerate([None, True, 1, "1", {"a": 1}, [1, 2]]):
        assert space.drawn({"c": value}) == {"c": index}
        assert space.config({"c": index}) == {"c": value}


def test_parameters_inside_choices() -> None:
    space = SearchSpace(
        {"c": choice(["off", {"on": uniform(0, 1), "with": 3}])}, "Searcher", conditional=True
    )
    assert space.config({"c": 0}) == {"c": "off"}
    assert space.config({"c": 1, "c/1/on": 0.5}) == {"c": {"on": 0.5, "with": 3}}
    assert space.drawn({"c": {"on": 0.5, "with": 3}}) == {"c": 1, "c/1/on": 0.5}
    with pytest.raises(ValueError, match="'c/1/on'"):
        SearchSpace({"c": choice(["off", {"on": uniform(0, 1)}])}, "Searcher")


@pytest.mark.parametrize("value", [1.5, -1, "high", True, None])
def test_values_out_of_bounds_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a value of 'p', which ranges from 0 to 1"):
        SearchSpace({"p": uniform(0, 1)}, "Searcher").drawn({"p": value})


def test_points_need_all_parameters_and_no_others() -> None:
    space = SearchSpace({"a": {"x": uniform(0, 1)}, "b": uniform(0, 1), "constant": 1}, "Searcher")
    assert space.drawn({"a/x": 0.5, "b": 0.25, "constant": 1}) == {"a/x": 0.5, "b": 0.25}
    assert space.values({"b": 0.25}) == {"b": 0.25}
    with pytest.raises(ValueError, match="no value for 'a/x'"):
        space.drawn({"b": 0.25})
    with pytest.raises(ValueError, match="'learning_rate'"):
        space.values({"learning_rate": 0.25})


def test_grids_are_named_wherever_they_are() -> None:
    for grid in (grid_search([1, 2]), Categorical([1, 2]).grid()):
        with pytest.raises(ValueError, match=r"'a/0/b', a grid. Use tune.choice"):
            SearchSpace({"a": [{"b": grid}]}, "Searcher")


def test_keys_that_collide_are_refused() -> None:
    with pytest.raises(ValueError, match="Two parameters have the key 'a/b'"):
        SearchSpace({"a/b": uniform(0, 1), "a": {"b": uniform(0, 1)}}, "Searcher")
