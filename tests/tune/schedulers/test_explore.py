import random

import numpy as np
import pytest

from syncline.tune.schedulers import explore as exploring
from syncline.tune.schedulers.explore import (
    apply_custom_explore,
    check_mutations,
    explore,
    fill_missing,
    only_mutated,
)
from syncline.tune.search import sample


def many(config, mutations, *, resample=0.0, factors=(1.2, 0.8), times=200):
    source = random.Random(1)
    return [
        explore(config, mutations, resample_probability=resample, factors=factors, source=source)
        for _ in range(times)
    ]


def values(changed, key):
    return {config[key] for config in changed}


def test_numbers_are_multiplied_by_one_of_the_factors():
    assert values(many({"lr": 1.0}, {"lr": lambda: 7.0}), "lr") == {1.2, 0.8}
    assert values(many({"lr": 1.0}, {"lr": sample.uniform(0, 9)}, factors=(3, 5)), "lr") == {
        3.0,
        5.0,
    }
    assert values(many({"size": 2}, {"size": sample.choice([2, 8])}), "size") == {
        round(2.4),
        round(1.6),
    }


def test_whole_numbers_stay_whole_and_switches_stay_switches():
    assert values(many({"batch": 10}, {"batch": sample.randint(1, 99)}), "batch") == {12, 8}
    [drawn] = values(many({"batch": 10}, {"batch": lambda: 3.7}, resample=1), "batch")
    assert type(drawn) is int
    assert drawn == 4
    assert values(many({"on": True}, {"on": lambda: False}), "on") == {True}
    assert values(many({"on": True}, {"on": lambda: 0}, resample=1), "on") == {False}


def test_values_of_lists_go_to_a_neighbour_and_stay_within():
    assert values(many({"a": 2}, {"a": [1, 2, 4]}), "a") == {1, 4}
    assert values(many({"a": 1}, {"a": (1, 2, 4)}), "a") == {1, 2}
    assert values(many({"a": 9}, {"a": [1, 2, 4]}), "a") == {1, 2, 4}
    assert values(many({"a": 1}, {"a": [1, 0.5]}, resample=1), "a") == {1, 0.5}


def test_words_of_a_choice_have_neighbours_too():
    assert values(
        many({"act": "relu"}, {"act": sample.choice(["tanh", "relu", "gelu"])}), "act"
    ) == {"tanh", "gelu"}


def test_resampling_happens_as_often_as_it_should():
    drawn = [
        config["lr"] for config in many({"lr": 1.0}, {"lr": lambda: 7.0}, resample=0.25, times=2000)
    ]
    assert 0.2 < drawn.count(7.0) / 2000 < 0.3


def test_nested_hyperparameters_are_changed_and_everything_else_is_copied():
    config = {"opt": {"lr": 1.0, "kind": "sgd"}, "data": [1, 2]}
    [changed] = many(config, {"opt": {"lr": [1.0, 2.0]}}, resample=1, times=1)
    changed["data"].append(3)
    changed["opt"]["kind"] = "adam"
    assert config == {"opt": {"lr": 1.0, "kind": "sgd"}, "data": [1, 2]}
    assert only_mutated(changed, {"opt": {"lr": []}, "absent": []}) == {
        "opt/lr": changed["opt"]["lr"]
    }


def test_functions_that_draw_from_the_global_generators_are_repeatable_and_leave_them_alone():
    mutations = {"a": random.random, "b": np.random.rand, "c": sample.loguniform(1e-3, 1)}
    random.seed(1)
    np.random.seed(1)
    first = fill_missing({}, mutations, random.Random(5))
    after = (random.random(), np.random.rand())
    random.seed(2)
    assert fill_missing({}, mutations, random.Random(5)) == first
    random.seed(1)
    np.random.seed(1)
    assert (random.random(), np.random.rand()) == after
    assert fill_missing({}, mutations, random.Random(6)) != first


def test_custom_explore_fn_must_return_a_configuration():
    assert apply_custom_explore(lambda config: {**config, "b": 2}, {"a": 1}, random.Random(0)) == {
        "a": 1,
        "b": 2,
    }
    with pytest.raises(ValueError, match="custom_explore_fn returned None"):
        apply_custom_explore(lambda config: None, {"a": 1}, random.Random(0))


def test_what_cannot_be_drawn_from_is_refused():
    with pytest.raises(ValueError, match=r"hyperparam_mutations\['opt/lr'\] is a sample_from"):
        check_mutations({"opt": {"lr": sample.sample_from(lambda spec: 1)}})
    with pytest.raises(ValueError, match="is empty"):
        check_mutations({"lr": []})
    with pytest.raises(TypeError, match="not int"):
        check_mutations({"lr": 1})
    check_mutations(
        {
            "lr": [1],
            "x": (1,),
            "y": sample.uniform(0, 1),
            "z": exploring.random.random,
            "n": {"m": [1]},
        }
    )
