"""HEBOSearch: batches, points with known rewards. Without HEBO, a fake."""

import pytest

from syncline.tune.search.hebo import HEBOSearch
from syncline.tune.search.sample import uniform
from tests.tune.search.fake_search_libraries import install_if_missing


@pytest.fixture(autouse=True)
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    install_if_missing(monkeypatch, "hebo")


def test_a_batch_ends_before_the_next_begins() -> None:
    searcher = HEBOSearch(metric="loss", mode="min", random_state_seed=1, max_concurrent=8)
    assert searcher.set_max_concurrency(2)
    assert searcher.set_search_properties(None, None, {"x": uniform(0, 1)})
    assert isinstance(searcher.suggest("one"), dict)
    assert isinstance(searcher.suggest("two"), dict)
    searcher.on_trial_complete("one", {"loss": 1.0})
    assert searcher.suggest("three") is None
    searcher.on_trial_complete("two", error=True)
    assert isinstance(searcher.suggest("three"), dict)


def test_points_with_known_rewards_are_learnt_from() -> None:
    searcher = HEBOSearch(
        {"x": uniform(0, 1)},
        "loss",
        "max",
        points_to_evaluate=[{"x": 0.5}],
        evaluated_rewards=[2.0],
    )
    searcher.add_evaluated_point({"x": 0.25}, 3.0)
    searcher.add_evaluated_point({"x": 0.75}, 3.0, error=True)
    assert searcher._optimizer.y.reshape(-1).tolist() == [-2.0, -3.0]
    assert searcher.suggest("one") != {"x": 0.5}
