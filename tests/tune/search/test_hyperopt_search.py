"""HyperOptSearch: choices that hold parameters, normal laws, HyperOpt's own expressions."""

from typing import Any

import numpy as np
import pytest

from syncline.tune.search.hyperopt import HyperOptSearch
from syncline.tune.search.sample import choice, qlograndint, qrandn, randint, randn, uniform

hp = pytest.importorskip("hyperopt").hp

CONDITIONAL = {
    "optimizer": choice(
        [
            {
                "name": "sgd",
                "momentum": uniform(0, 1),
                "schedule": choice([None, {"warmup": randint(1, 5)}]),
            },
            {"name": "adam", "betas": [0.9, uniform(0.9, 1)]},
            uniform(2, 3),
            "none",
        ]
    )
}


def ready(space: dict[str, Any], **options: Any) -> HyperOptSearch:
    searcher = HyperOptSearch(metric="loss", mode="min", random_state_seed=1, **options)
    assert searcher.set_search_properties(None, None, space)
    return searcher


def test_choices_may_hold_parameters() -> None:
    searcher = ready(CONDITIONAL, n_initial_points=10)
    seen = set()
    for number in range(40):
        config: Any = searcher.suggest(str(number))
        chosen = config["optimizer"]
        if isinstance(chosen, dict) and chosen["name"] == "sgd":
            assert chosen.keys() == {"name", "momentum", "schedule"}
            assert chosen["schedule"] is None or chosen["schedule"]["warmup"] in range(1, 5)
            seen.add("sgd" if chosen["schedule"] is None else "sgd with schedule")
        elif isinstance(chosen, dict):
            assert chosen["betas"][0] == 0.9
            assert 0.9 <= chosen["betas"][1] <= 1
            seen.add("adam")
        else:
            assert chosen == "none" or 2 <= chosen <= 3
            seen.add("other")
        searcher.on_trial_complete(str(number), {"loss": float(number % 5)})
    assert seen == {"sgd", "sgd with schedule", "adam", "other"}


def test_points_inside_choices_are_tried_first() -> None:
    points = [
        {"optimizer": {"name": "sgd", "momentum": 0.25, "schedule": {"warmup": 3}}},
        {"optimizer": {"name": "adam", "betas": [0.9, 0.95]}},
        {"optimizer": "none"},
    ]
    searcher = ready(CONDITIONAL, points_to_evaluate=points)
    assert [searcher.suggest(str(number)) for number in range(3)] == points
    with pytest.raises(ValueError, match="'rmsprop' is not among the choices of 'optimizer'"):
        ready(
            {"optimizer": choice(["sgd", "adam"])}, points_to_evaluate=[{"optimizer": "rmsprop"}]
        ).suggest("one")


def test_normal_and_quantized_laws() -> None:
    searcher = ready({"a": randn(5, 0.1), "b": qrandn(0, 10, 0.5), "n": qlograndint(1, 100, 5)})
    configs: list[Any] = [searcher.suggest(str(number)) for number in range(40)]
    assert abs(float(np.mean([config["a"] for config in configs])) - 5) < 0.2
    assert all(config["b"] % 0.5 == 0 for config in configs)
    assert all(config["n"] in range(5, 101, 5) for config in configs)


def test_it_goes_where_losses_are_small() -> None:
    searcher = ready({"x": uniform(-10, 10)}, n_initial_points=10)
    xs = []
    for number in range(40):
        config: Any = searcher.suggest(str(number))
        xs.append(config["x"])
        searcher.on_trial_complete(str(number), {"loss": (config["x"] - 3) ** 2})
    assert np.median(np.abs(np.array(xs[-10:]) - 3)) < np.median(np.abs(np.array(xs[:10]) - 3))


def test_expressions_of_hyperopt_are_taken() -> None:
    space = {"x": hp.uniform("x", 0, 1), "kind": hp.choice("kind", ["a", "b"])}
    searcher = HyperOptSearch(
        space,
        metric="loss",
        mode="max",
        random_state_seed=1,
        points_to_evaluate=[{"x": 0.5, "kind": "b"}],
    )
    assert searcher.suggest("one") == {"x": 0.5, "kind": "b"}
    config: Any = searcher.suggest("two")
    assert 0 <= config["x"] <= 1
    assert config["kind"] in ("a", "b")
    with pytest.raises(ValueError, match="'c' is not among the choices of 'kind'"):
        HyperOptSearch(
            space, metric="loss", mode="max", points_to_evaluate=[{"x": 0.5, "kind": "c"}]
        ).suggest("one")
