"""NevergradSearch: optimizers given as classes, configured or made, and Nevergrad's own
parameters.
"""

from typing import Any

import numpy as np
import pytest

from syncline.tune.search.nevergrad import NevergradSearch
from syncline.tune.search.sample import choice, lograndint, loguniform, uniform

ng = pytest.importorskip("nevergrad")


def losses_of(searcher: NevergradSearch, number_of_trials: int) -> list[float]:
    losses = []
    for number in range(number_of_trials):
        config: Any = searcher.suggest(str(number))
        losses.append((config["x"] - 1) ** 2)
        searcher.on_trial_complete(str(number), {"loss": losses[-1]})
    return losses


@pytest.mark.parametrize("optimizer", [None, "OnePlusOne", "DE", "TwoPointsDE", "CMA"])
def test_optimizers_come_nearer(optimizer: str | None) -> None:
    np.random.seed(1)
    chosen = getattr(ng.optimizers, optimizer) if optimizer else None
    searcher = NevergradSearch(chosen, {"budget": 60}, metric="loss", mode="min")
    assert searcher.set_search_properties(
        None, None, {"x": uniform(-10, 10), "n": lograndint(1, 9), "kind": choice(["a", "b"])}
    )
    losses = losses_of(searcher, 60)
    assert min(losses) < 0.5


def test_an_optimizer_that_cannot_be_saved_says_so() -> None:
    searcher = NevergradSearch(ng.optimizers.Cobyla, {"budget": 8}, metric="loss", mode="min")
    assert searcher.set_search_properties(
        None, None, {"x": uniform(-10, 10), "lr": loguniform(1e-4, 1)}
    )
    losses_of(searcher, 4)
    with pytest.raises(NotImplementedError, match="cannot be saved"):
        searcher.get_state()


def test_parameters_of_nevergrad_are_taken() -> None:
    space = ng.p.Dict(x=ng.p.Scalar(lower=0, upper=2), kind=ng.p.Choice(["a", "b"]))
    searcher = NevergradSearch(
        ng.optimizers.OnePlusOne,
        space=space,
        metric="loss",
        mode="max",
        points_to_evaluate=[{"x": 0.5, "kind": "b"}],
    )
    first: Any = searcher.suggest("one")
    assert (first["x"], first["kind"]) == (pytest.approx(0.5), "b")
    with pytest.raises(TypeError, match="Nevergrad parameter"):
        NevergradSearch(ng.optimizers.OnePlusOne, space={"x": 3}, metric="loss", mode="min")


def test_a_made_optimizer_brings_its_space() -> None:
    made = ng.optimizers.OnePlusOne(parametrization=2, budget=10)
    searcher = NevergradSearch(made, space=["x", "deep/y"], metric="loss", mode="min")
    config: Any = searcher.suggest("one")
    assert type(config["x"]) is float
    assert type(config["deep"]["y"]) is float
    searcher.on_trial_complete("one", {"loss": 1.0})
    with pytest.raises(ValueError, match="2 numbers, but `space` has 1 names"):
        NevergradSearch(made, space=["x"], metric="loss", mode="min")
    with pytest.raises(ValueError, match="cannot be applied to an optimizer instance"):
        NevergradSearch(made, {"budget": 3})
    with pytest.raises(ValueError, match="nevergrad.optimizers"):
        NevergradSearch("OnePlusOne")


def test_keywords_of_an_instrumentation_are_parameters() -> None:
    space = ng.p.Instrumentation(x=ng.p.Scalar(lower=0, upper=2), kind=ng.p.Choice(["a", "b"]))
    searcher = NevergradSearch(
        ng.optimizers.OnePlusOne,
        space=space,
        metric="loss",
        mode="min",
        points_to_evaluate=[{"x": 0.5, "kind": "b"}],
    )
    first, second = searcher.suggest("one"), searcher.suggest("two")
    assert isinstance(first, dict)
    assert first["x"] == pytest.approx(0.5)
    assert isinstance(second, dict)
    assert second.keys() == {"x", "kind"}
