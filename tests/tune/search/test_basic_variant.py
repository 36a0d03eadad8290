"""BasicVariantGenerator: how many trials, which, and that any state goes on as before."""

import itertools
import math
import re

import numpy as np
import pytest

from syncline.tune.search import (
    BasicVariantGenerator,
    choice,
    grid_search,
    randint,
    sample_from,
    uniform,
)


def made(space, num_samples=1, **options):
    generator = BasicVariantGenerator(**options)
    generator.configure("loss", "min", space, num_samples)
    return generator


def suggestions(generator, limit=1000):
    drawn = [
        generator.next_trial(f"t{number}")
        for number in itertools.takewhile(lambda _: not generator.is_finished(), range(limit))
    ]
    return [suggestion for suggestion in drawn if suggestion is not None]


def test_every_sample_goes_through_the_grid():
    generator = made(
        {"a": grid_search([1, 2]), "b": randint(0, 100)}, num_samples=3, random_state=0
    )
    assert generator.total_samples == 6
    all_of_them = suggestions(generator)
    assert [s.config["a"] for s in all_of_them] == [1, 2, 1, 2, 1, 2]
    assert len({s.config["b"] for s in all_of_them}) > 1
    assert generator.is_finished()
    assert generator.next_trial("one-more") is None


def test_suggestions_carry_parameters_and_tags():
    [first, second] = suggestions(
        made({"opt": {"lr": choice([0.1])}, "k": {"c": 1}}, num_samples=2)
    )
    assert first.config == {"opt": {"lr": 0.1}, "k": {"c": 1}}
    assert first.evaluated_params == {"opt/lr": 0.1}
    assert (first.tag, second.tag) == ("0_lr=0.1", "1_lr=0.1")
    assert suggestions(made({"k": 1}))[0].tag == "0"


def test_the_same_seed_gives_the_same_search():
    space = {"a": uniform(0, 1), "b": grid_search([1, 2]), "c": choice("xyz")}
    for seed in (lambda: 5, lambda: np.random.RandomState(5), lambda: np.random.default_rng(5)):
        first, second = (suggestions(made(space, 5, random_state=seed())) for _ in range(2))
        assert first == second
    assert suggestions(made(space, 5, random_state=6)) != suggestions(
        made(space, 5, random_state=7)
    )


def test_the_same_seed_gives_the_values_that_ray_gives():
    space = {
        "u": uniform(0, 1),
        "i": randint(0, 10),
        "c": choice(["a", "b", "c"]),
        "g": grid_search([1, 2]),
    }
    assert [s.config for s in suggestions(made(space, 2, random_state=42))] == [
        {"u": 0.7739560485559633, "i": 6, "c": "b", "g": 1},
        {"u": 0.8585979199113825, "i": 0, "c": "c", "g": 2},
        {"u": 0.09417734788764953, "i": 5, "c": "c", "g": 1},
        {"u": 0.761139701990353, "i": 7, "c": "c", "g": 2},
    ]


def test_without_a_seed_searches_differ_unless_the_program_seeds_numpy():
    space = {"a": uniform(0, 1)}
    assert suggestions(made(space)) != suggestions(made(space))
    np.random.seed(1)
    first = suggestions(made(space))
    np.random.seed(1)
    assert suggestions(made(space)) == first


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    "seed", [None, 3, np.random.RandomState(3)], ids=["fresh", "generator", "random-state"]
)
@pytest.mark.parametrize("after", [0, 1, 4, 7, 11])
def test_a_state_of_any_moment_goes_on_as_before(after, seed, constant):
    space = {
        "a": grid_search([1, {"x": grid_search([uniform(0, 1), 2])}]),
        "b": uniform(0, 1),
        "c": sample_from(lambda config: config["b"] * 2),
    }
    generator = made(
        space, 4, points_to_evaluate=[{"b": 5}], random_state=seed, constant_grid_search=constant
    )
    for number in range(after):
        generator.next_trial(str(number))
    state = generator.get_state()
    rest = suggestions(generator)
    assert len(rest) == 12 - after
    fresh, configured = BasicVariantGenerator(), made({"z": 1}, 9)
    for other in (fresh, configured):
        other.set_state(state)
        assert other.total_samples == 12
        assert suggestions(other) == rest


def test_points_take_the_place_of_samples():
    points = [{"a": 2, "b": 2}, {"a": 1}, {"b": 2}]
    generator = made(
        {"a": grid_search([1, 2]), "b": randint(0, 3)},
        num_samples=4,
        points_to_evaluate=points,
        random_state=0,
    )
    assert generator.total_samples == 6
    drawn = [(s.config["a"], s.config["b"]) for s in suggestions(generator)]
    assert drawn[0] == (2, 2)
    assert drawn[1][0] == 1
    assert drawn[2:4] == [(1, 2), (2, 2)]
    assert [a for a, _ in drawn[4:]] == [1, 2]


def test_all_points_are_evaluated_even_if_there_are_fewer_samples():
    generator = made(
        {"a": uniform(0, 1)}, num_samples=1, points_to_evaluate=[{"a": 0.1}, {"a": 0.2}]
    )
    assert generator.total_samples == 2
    assert [s.config["a"] for s in suggestions(generator)] == [0.1, 0.2]


def test_points_may_be_nested_and_replace_whole_choices():
    space = {
        "m": {"w": uniform(0, 1), "k": 3},
        "l": [choice([1, 2]), 5],
        "o": choice([{"n": 1}, {"n": 2}]),
    }
    [only] = suggestions(
        made(space, points_to_evaluate=[{"m": {"w": 0.5}, "l": [2, 5], "o": {"n": 2}}])
    )
    assert only.config == {"m": {"w": 0.5, "k": 3}, "l": [2, 5], "o": {"n": 2}}


def test_a_point_outside_of_the_space_is_run_with_a_warning(caplog):
    [only] = suggestions(made({"a": uniform(0, 1), "k": 1}, points_to_evaluate=[{"a": 7}]))
    assert only.config == {"a": 7, "k": 1}
    assert re.search(
        r"has the value 7 for `a`, which is not in the search space: \(0, 1\)", caplog.text
    )


def test_a_point_with_an_unknown_key_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="`opt/learning_rat`.*Did you mean 'opt/learning_rate'"):
        made(
            {"opt": {"learning_rate": uniform(0, 1)}},
            points_to_evaluate=[{"opt": {"learning_rat": 1}}],
        )


def test_only_so_many_at_once():
    generator = made({"a": uniform(0, 1)}, num_samples=3, max_concurrent=2)
    assert generator.next_trial("a")
    assert generator.next_trial("b")
    assert generator.next_trial("c") is None
    assert not generator.is_finished()
    generator.on_trial_complete("a")
    assert generator.next_trial("c")
    assert generator.is_finished()
    with pytest.raises(ValueError, match="max_concurrent"):
        BasicVariantGenerator(max_concurrent=-1)


def test_the_limit_holds_after_a_restore():
    generator = made({"a": uniform(0, 1)}, num_samples=3, max_concurrent=1)
    generator.next_trial("a")
    other = BasicVariantGenerator()
    other.set_state(generator.get_state())
    assert other.next_trial("b") is None
    other.on_trial_complete("a")
    assert other.next_trial("b")


def test_samples_can_be_added_to_a_finished_search():
    generator = made({"a": grid_search([1, 2])}, num_samples=1)
    suggestions(generator)
    generator.add_samples(2)
    assert not generator.is_finished()
    assert generator.total_samples == 6
    assert [s.tag for s in suggestions(generator)] == ["2_a=1", "3_a=2", "4_a=1", "5_a=2"]


def test_a_search_without_end():
    generator = made({"a": uniform(0, 1)}, num_samples=-1)
    assert generator.total_samples == math.inf
    assert len(suggestions(generator, limit=50)) == 50


def test_huge_grids_cost_nothing():
    generator = made({name: grid_search(range(1000)) for name in "abcdef"}, num_samples=10_000)
    assert generator.total_samples == 10**22
    assert generator.next_trial("0").config == dict.fromkeys("abcdef", 0)
    assert generator.next_trial("1").config == {**dict.fromkeys("abcdef", 0), "a": 1}
    assert len(generator.get_state()) < 100_000


def test_grids_inside_of_choices_count_when_they_come_up():
    generator = made({"a": choice([{"b": grid_search([1, 2, 3])}])}, num_samples=1)
    assert generator.total_samples == 1
    assert [s.config["a"]["b"] for s in suggestions(generator)] == [1, 2, 3]
    assert generator.total_samples == 3


def test_no_samples_are_none():
    assert made({"a": uniform(0, 1)}, num_samples=0).is_finished()
