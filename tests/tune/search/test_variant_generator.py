"""From spaces to configurations: grids, nesting, functions that wait for others, and what people
see of it.
"""

from collections import namedtuple

import numpy as np
import pytest

from syncline.tune.search import choice, grid_search, sample_from, uniform
from syncline.tune.search.sample import Categorical
from syncline.tune.search.spec_view import RecursiveDependencyError
from syncline.tune.search.variant_generator import (
    assign_value,
    flat_params,
    format_vars,
    generate_variants,
    parse_spec_vars,
)

Pair = namedtuple("Pair", "a b")


def configs(space, **options):
    return [config for _, config in generate_variants(space, random_state=0, **options)]


def test_a_space_without_domains_is_one_configuration_of_its_own():
    space = {"a": 1, "b": {"c": [1, 2]}}
    [(drawn, config)] = generate_variants(space)
    assert (drawn, config) == ({}, space)
    config["b"]["c"].append(3)
    assert space["b"]["c"] == [1, 2]


def test_grids_combine_and_the_first_by_path_changes_fastest():
    space = {"b": grid_search(["x", "y"]), "a": {"z": grid_search([1, 2, 3])}, "c": 7}
    seen = [(config["a"]["z"], config["b"], config["c"]) for config in configs(space)]
    assert seen == [(1, "x", 7), (2, "x", 7), (3, "x", 7), (1, "y", 7), (2, "y", 7), (3, "y", 7)]


def test_grids_may_be_written_as_dictionaries_or_domains():
    assert [c["a"] for c in configs({"a": {"grid_search": [1, 2]}})] == [1, 2]
    assert [c["a"] for c in configs({"a": Categorical([1, 2]).grid()})] == [1, 2]
    assert configs({"a": {"grid_search": [1], "other": 2}}) == [
        {"a": {"grid_search": [1], "other": 2}}
    ]


def test_draws_are_anew_for_every_combination_unless_they_are_constant():
    space = {
        "u": uniform(0, 1),
        "g": grid_search([1, 2, 3]),
        "follows": sample_from(lambda spec: spec.config.g * 10),
    }
    assert len({config["u"] for config in configs(space)}) == 3
    constant = configs(space, constant_grid_search=True)
    assert len({config["u"] for config in constant}) == 1
    assert [config["follows"] for config in constant] == [10, 20, 30]


def test_lists_and_tuples_may_hold_domains():
    space = {
        "layers": [choice([4]), 8, {"width": choice([16])}],
        "pair": (1, choice([2])),
        "named": Pair(choice([1]), 2),
        "deep": ((choice([3]),),),
    }
    [config] = configs(space)
    assert config == {
        "layers": [4, 8, {"width": 16}],
        "pair": (1, 2),
        "named": Pair(1, 2),
        "deep": ((3,),),
    }
    assert type(config["named"]) is Pair


def test_functions_are_called_in_whatever_order_they_need():
    space = {
        "c": sample_from(lambda spec: spec.config.b + 1),
        "b": sample_from(lambda config: config["nested"]["a"] + 1),
        "nested": {"a": choice([5])},
        "sum": sample_from(lambda config: sum(config["items"])),
        "items": [sample_from(lambda config: config["c"]), 1],
    }
    assert configs(space) == [{"c": 7, "b": 6, "nested": {"a": 5}, "sum": 8, "items": [7, 1]}]


def test_domains_inside_of_chosen_values_are_drawn_and_can_be_read():
    space = {
        "optimizer": choice([{"name": "adam", "lr": uniform(5, 6)}]),
        "decay": sample_from(lambda spec: spec.config.optimizer.lr * 2),
    }
    [(drawn, config)] = generate_variants(space, random_state=0)
    lr = config["optimizer"]["lr"]
    assert 5 <= lr <= 6
    assert config["decay"] == lr * 2
    assert flat_params(drawn) == {"optimizer/name": "adam", "optimizer/lr": lr, "decay": lr * 2}


def test_grids_inside_of_grids_are_gone_through():
    space = {
        "g": grid_search([1, {"inner": grid_search(["a", "b"])}]),
        "h": sample_from(lambda config: str(config["g"])),
    }
    assert [config["g"] for config in configs(space)] == [1, {"inner": "a"}, {"inner": "b"}]
    assert [config["h"] for config in configs(space)] == ["1", "{'inner': 'a'}", "{'inner': 'b'}"]


def test_a_function_may_return_a_domain_a_dictionary_or_what_it_read():
    space = {
        "a": sample_from(lambda: uniform(1, 2)),
        "b": {"x": 1, "y": [choice([2])]},
        "c": sample_from(lambda config: config["b"]),
        "d": sample_from(lambda config: config["b"]["y"]),
    }
    [config] = configs(space)
    assert 1 <= config["a"] <= 2
    assert config["c"] == {"x": 1, "y": [2]}
    assert type(config["c"]) is dict
    assert config["c"]["y"] is not config["b"]["y"]


def test_older_programs_write_functions_and_expressions_without_sample_from():
    def named(spec):
        return 0

    space = {
        "a": choice([3]),
        "b": lambda spec: spec.config.a * 2,
        "c": {"eval": "spec.config.a + np.abs(-1)"},
        "f": named,
        "g": lambda x: x,
    }
    [config] = configs(space)
    assert (config["b"], config["c"]) == (6, 4)
    assert config["f"] is named
    assert config["g"] is space["g"]


def test_specifications_hold_the_configuration_under_config():
    spec = {
        "config": {"a": choice([3]), "b": sample_from(lambda spec: spec.config.a)},
        "cpu": sample_from(lambda spec: spec.config.b),
    }
    assert configs(spec) == [{"config": {"a": 3, "b": 3}, "cpu": 3}]


def test_a_circle_is_an_error_that_names_the_parameters():
    space = {
        "n": {"a": sample_from(lambda spec: spec.config.b)},
        "b": sample_from(lambda spec: spec.config.n.a),
    }
    with pytest.raises(
        RecursiveDependencyError, match="`n/a` depends on `b`, `b` depends on `n/a`"
    ):
        configs(space)
    with pytest.raises(RecursiveDependencyError, match="`a` depends on `a`"):
        configs({"a": sample_from(lambda config: config["a"])})


def test_a_function_that_fails_is_named_with_its_cause():
    with pytest.raises(
        ValueError,
        match=r"`n/a` .*AttributeError: no key 'missing' in the configuration, which has \['n'\]",
    ):
        configs({"n": {"a": sample_from(lambda spec: spec.config.missing)}})
    with pytest.raises(ValueError, match="ZeroDivisionError") as raised:
        configs({"a": sample_from(lambda: 1 / 0)})
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_trials_share_no_containers():
    space = {"a": choice([{"x": [1]}]), "g": grid_search([1, 2]), "fixed": {"y": [1]}}
    first, second = configs(space)
    first["a"]["x"].append(2)
    first["fixed"]["y"].append(2)
    assert second["a"] == {"x": [1]}
    assert second["fixed"] == {"y": [1]}
    assert space["a"].categories == [{"x": [1]}]


def test_large_constants_are_shared_not_copied():
    array = np.zeros(10)
    assert configs({"data": array, "g": grid_search([1])})[0]["data"] is array


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: grid_search([]), ValueError, "at least one value"),
        (lambda: grid_search(3), TypeError, "a list of values, not 3"),
        (
            lambda: configs({"a": {"b": {"grid_search": []}}}),
            ValueError,
            "`a/b`: .*at least one value",
        ),
    ],
)
def test_empty_grids_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


def test_a_grid_may_come_from_an_iterator():
    assert grid_search(iter([1, 2])) == {"grid_search": [1, 2]}


def test_parse_spec_vars_takes_a_space_apart():
    u, g = uniform(0, 1), grid_search([1, 2])
    constants, domains, grids = parse_spec_vars({"a": {"u": u, "k": 1}, "l": [g, 2]})
    assert constants == [(("a", "k"), 1), (("l", 1), 2)]
    assert domains == [(("a", "u"), u)]
    assert [(path, grid.categories) for path, grid in grids] == [(("l", 0), [1, 2])]


def test_assign_value_rebuilds_tuples():
    spec = {"a": (1, (2, 3))}
    assign_value(spec, ("a", 1, 0), 9)
    assert spec == {"a": (1, (9, 3))}


def test_tags_name_parameters_shortly():
    assert format_vars({("config", "lr"): 0.1, ("momentum",): 0.9}) == "lr=0.1,momentum=0.9"
    assert (
        format_vars({("lr",): 1.23456e-5, ("name",): "a/b c.d", ("flag",): True})
        == "flag=True,lr=1.235e-05,name=a_b_c_d"
    )
    assert format_vars({("a", "lr"): 1, ("b", "lr"): 2, ("l", 0): 3}) == "a_lr=1,b_lr=2,l_0=3"
    long = format_vars({(f"parameter_{i:02}",): "x" * 100 for i in range(50)})
    assert len(long) <= 128
    assert long.startswith("parameter_00=xxx")
