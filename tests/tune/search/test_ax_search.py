"""AxSearch: constraints, a given client, the limit of Ax's parallelism. Without Ax, a fake."""

import importlib
import math
from typing import Any

import pytest

from syncline.tune.search.ax import AxSearch
from syncline.tune.search.sample import choice, uniform
from tests.tune.search.fake_search_libraries import install_if_missing

PARAMETERS = [
    {"name": "x", "type": "range", "bounds": [0.0, 1.0]},
    {"name": "y", "type": "range", "bounds": [0.0, 1.0]},
]


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    install_if_missing(monkeypatch, "ax")


def test_constraints_are_kept() -> None:
    searcher = AxSearch(
        metric="loss",
        mode="min",
        parameter_constraints=["x + y <= 0.5"],
        outcome_constraints=["size <= 3."],
        random_seed=1,
    )
    assert searcher.set_search_properties(None, None, {"x": uniform(0, 1), "y": uniform(0, 1)})
    for number in range(4):
        config: Any = searcher.suggest(str(number))
        assert config["x"] + config["y"] <= 0.5 + 1e-9
        searcher.on_trial_complete(str(number), {"loss": 1.0, **({"size": 2.0} if number else {})})
    statuses = [trial.status.name for trial in searcher._optimizer.experiment.trials.values()]
    assert statuses == ["ABANDONED", "COMPLETED", "COMPLETED", "COMPLETED"]


def test_parameters_and_clients_of_ax_are_taken() -> None:
    config: Any = AxSearch(PARAMETERS, metric="loss", mode="max").suggest("one")
    assert config.keys() == {"x", "y"}
    ax_client = importlib.import_module("ax.service.ax_client")
    client = ax_client.AxClient(verbose_logging=False)
    client.create_experiment(
        parameters=PARAMETERS, objectives={"score": ax_client.ObjectiveProperties(minimize=False)}
    )
    searcher = AxSearch(ax_client=client)
    assert (searcher.metric, searcher.mode) == ("score", "max")
    assert isinstance(searcher.suggest("one"), dict)
    searcher.on_trial_complete("one", {"score": 1.0})
    assert client.experiment.trials[0].status.name == "COMPLETED"
    with pytest.raises(ValueError, match="has an experiment"):
        AxSearch(ax_client=client, metric="score", mode="max")


def test_the_model_suggests_a_few_at_once_and_then_waits() -> None:
    searcher = AxSearch(metric="loss", mode="min", random_seed=1)
    assert searcher.set_search_properties(
        None, None, {"x": uniform(-5, 5), "kind": choice(["a", "b"])}
    )
    for number in range(8):
        config: Any = searcher.suggest(str(number))
        searcher.on_trial_complete(
            str(number), {"loss": math.nan if number == 3 else (config["x"] - 1) ** 2}
        )
    suggestions = [searcher.suggest(f"parallel-{number}") for number in range(12)]
    assert isinstance(suggestions[0], dict)
    assert suggestions[-1] is None
