"""BayesOptSearch: random trials first, the model afterwards, the end when it has converged."""

from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from syncline.tune.search.bayesopt import BayesOptSearch
from syncline.tune.search.sample import choice, loguniform, randint, uniform

pytest.importorskip("bayes_opt")


def ready(space: dict[str, Any] | None = None, **options: Any) -> BayesOptSearch:
    searcher = BayesOptSearch(metric="loss", mode="min", **{"random_search_steps": 3, **options})
    assert searcher.set_search_properties(None, None, space or {"x": uniform(-5, 5)})
    return searcher


def test_the_model_waits_until_the_random_trials_have_ended() -> None:
    searcher = ready()
    for number in range(3):
        assert isinstance(searcher.suggest(str(number)), dict)
    assert searcher.suggest("early") is None
    searcher.on_trial_complete("0", {"loss": 1.0})
    searcher.on_trial_complete("1", error=True)
    assert searcher.suggest("early") is None
    searcher.on_trial_complete("2", {"loss": 2.0})
    assert isinstance(searcher.suggest("3"), dict)


def test_it_goes_where_losses_are_small() -> None:
    searcher = ready({"x": uniform(-5, 5), "lr": loguniform(1e-3, 1)}, random_search_steps=5)
    losses = []
    for number in range(9):
        config: Any = searcher.suggest(str(number))
        losses.append((config["x"] - 1) ** 2)
        searcher.on_trial_complete(str(number), {"loss": losses[-1]})
    assert median(losses[-3:]) < median(losses[:5])


def test_the_search_ends_when_it_has_converged(caplog: pytest.LogCaptureFixture) -> None:
    searcher = ready(
        random_search_steps=1, repeat_float_precision=0, patience=2, space={"x": uniform(0, 0.1)}
    )
    searcher.suggest("0")
    searcher.on_trial_complete("0", {"loss": 1.0})
    assert searcher.suggest("1") == BayesOptSearch.FINISHED
    assert "patience" in caplog.text
    again = ready(
        random_search_steps=1,
        repeat_float_precision=0,
        patience=2,
        skip_duplicate=False,
        space={"x": uniform(0, 0.1)},
    )
    again.suggest("0")
    again.on_trial_complete("0", {"loss": 1.0})
    assert isinstance(again.suggest("1"), dict)


def test_trials_of_an_earlier_experiment_are_learnt_from() -> None:
    def trial(x: float, **result: Any) -> Any:
        return SimpleNamespace(config={"x": x, "constant": 1}, last_result=result)

    analysis = SimpleNamespace(trials=[trial(1.0, loss=0.0), trial(-4.0, loss=25.0), trial(2.0)])
    searcher = ready(analysis=analysis)
    assert len(searcher._optimizer.space) == 2
    searcher.register_analysis(analysis)
    assert len(searcher._optimizer.space) == 4


def test_bounds_of_the_library_are_taken() -> None:
    config: Any = BayesOptSearch(
        {"x": (0, 1), "deep/y": (5, 6)}, metric="loss", mode="max"
    ).suggest("one")
    assert 0 <= config["x"] <= 1
    assert 5 <= config["deep"]["y"] <= 6


@pytest.mark.parametrize("domain", [randint(1, 5), choice([1.0, 2.0])])
def test_only_real_numbers_are_searched(domain: Any) -> None:
    with pytest.raises(ValueError, match="'deep/n'.*uniform and log-uniform floats"):
        ready({"deep": {"n": domain}})


def test_wrong_options_are_refused() -> None:
    for options, message in [
        ({"patience": 0}, "patience"),
        ({"repeat_float_precision": -1}, "0 or more"),
        ({"utility_kwargs": {"kind": "best"}}, "ucb, ei, poi"),
    ]:
        with pytest.raises(ValueError, match=message):
            BayesOptSearch(**options)
    with pytest.raises(TypeError, match="repeat_float_precision"):
        BayesOptSearch(repeat_float_precision=2.5)


@pytest.mark.parametrize("kind", ["ucb", "ei", "poi"])
def test_every_utility_suggests(kind: str) -> None:
    searcher = ready(utility_kwargs={"kind": kind, "kappa": 2.0, "xi": 0.01}, random_search_steps=1)
    for number in range(2):
        assert isinstance(searcher.suggest(str(number)), dict)
        searcher.on_trial_complete(str(number), {"loss": float(number)})
