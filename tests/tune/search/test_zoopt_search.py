"""ZOOptSearch: ZOOpt's dimensions, two searches, failures of the first trials. Without ZOOpt, a
fake.
"""

import importlib
from typing import Any

import numpy as np
import pytest

from syncline.tune.search.sample import loguniform, quniform, uniform
from syncline.tune.search.zoopt import ZOOptSearch
from tests.tune.search.fake_search_libraries import install_if_missing


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    install_if_missing(monkeypatch, "zoopt")


def test_it_comes_nearer_though_all_of_the_first_trials_fail() -> None:
    np.random.seed(1)
    searcher = ZOOptSearch(budget=80, metric="loss", mode="min")
    assert searcher.set_search_properties(None, None, {"x": uniform(-5, 5)})
    losses = []
    for number in range(80):
        config: Any = searcher.suggest(str(number))
        losses.append(abs(config["x"] - 1))
        searcher.on_trial_complete(str(number), {"loss": losses[-1]}, error=number < 4)
    assert min(losses[40:]) < 0.1


def test_two_searches_keep_their_own_decimals() -> None:
    coarse, fine = (
        ZOOptSearch(budget=20, metric="loss", mode="min", dim_dict={"x": domain})
        for domain in (quniform(0, 1, 0.1), uniform(0, 1))
    )
    for number in range(4):
        rough, exact = coarse.suggest(str(number)), fine.suggest(str(number))
        assert isinstance(rough, dict)
        assert isinstance(exact, dict)
        assert round(rough["x"], 1) == rough["x"]
        assert round(exact["x"], 1) != exact["x"]


def test_dimensions_of_zoopt_are_taken() -> None:
    zoopt = importlib.import_module("zoopt")
    dimensions = {
        "x": (zoopt.ValueType.CONTINUOUS, [0, 1], 1e-2),
        "deep/n": (zoopt.ValueType.GRID, [2, 4]),
    }
    config: Any = ZOOptSearch(budget=20, dim_dict=dimensions, metric="loss", mode="min").suggest(
        "one"
    )
    assert 0 <= config["x"] <= 1
    assert config["deep"]["n"] in (2, 4)


def test_budget_and_algorithm_are_checked() -> None:
    with pytest.raises(ValueError, match="budget"):
        ZOOptSearch()
    with pytest.raises(ValueError, match="asracos"):
        ZOOptSearch(algo="genetic", budget=3)
    with pytest.raises(ValueError, match="'lr', log-uniform float"):
        ZOOptSearch(budget=3, dim_dict={"lr": loguniform(0.1, 1)})
