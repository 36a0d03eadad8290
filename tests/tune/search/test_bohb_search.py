"""TuneBOHB: running trials, budgets, spaces of ConfigSpace. Without HpBandSter, a fake."""

import importlib
from typing import Any

import pytest

from syncline.tune.search.bohb import TuneBOHB
from syncline.tune.search.sample import uniform
from tests.tune.search.fake_search_libraries import install_if_missing


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    install_if_missing(monkeypatch, "hpbandster")


def ready(**options: Any) -> TuneBOHB:
    searcher = TuneBOHB(metric="loss", mode="min", seed=1, **options)
    assert searcher.set_search_properties(None, None, {"x": uniform(-5, 5), "y": uniform(-5, 5)})
    return searcher


def test_paused_trials_are_not_counted_as_running() -> None:
    searcher = ready(max_concurrent=1)
    assert isinstance(searcher.suggest("one"), dict)
    assert searcher.suggest("two") is None
    searcher.on_pause("one")
    assert isinstance(searcher.suggest("two"), dict)
    searcher.on_unpause("one")
    searcher.on_trial_complete("two")
    assert searcher.suggest("three") is None
    assert searcher.set_max_concurrency(2)
    assert isinstance(searcher.suggest("three"), dict)


def test_it_learns_from_results_with_a_budget(caplog: pytest.LogCaptureFixture) -> None:
    searcher = ready(bohb_config={"random_fraction": 0.0})
    distances = []
    for number in range(40):
        config: Any = searcher.suggest(str(number))
        distances.append(abs(config["x"] - 1) + abs(config["y"] - 1))
        result = {"loss": distances[-1], "training_iteration": 1}
        searcher.on_trial_result(str(number), result)
        searcher.on_trial_result(str(number), {**result, "hyperband_info": {"budget": 1}})
        searcher.on_trial_complete(str(number), result)
    assert sum(distances[-10:]) < sum(distances[:10])
    assert caplog.text.count("HyperBandForBOHB") == 1


def test_spaces_of_configspace_are_taken() -> None:
    config_space = importlib.import_module("ConfigSpace")
    space = config_space.ConfigurationSpace()
    space.add(config_space.UniformFloatHyperparameter("x", lower=0, upper=1))
    config: Any = TuneBOHB(space, metric="loss", mode="min").suggest("one")
    assert 0 <= config["x"] <= 1
    with pytest.raises(TypeError, match="ConfigurationSpace"):
        TuneBOHB({"x": (0, 1)})
