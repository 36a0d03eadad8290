"""Required metrics, and verdicts of the stopper in events."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.tune.config import CheckpointConfig
from syncline.tune.controller import events
from syncline.tune.error import TuneError
from syncline.tune.experiment.trial import Trial
from syncline.tune.search.search_algorithm import SearchAlgorithm
from syncline.tune.stopper import Stopper, make_stopper
from tests.tune.controller.simulation import Simulation, rules, statuses


class Deadline(Stopper):
    """Stopper that ends the search when the clock of the test reads `at`."""

    def __init__(self, at: float) -> None:
        self.at = at

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return CLOCK[0] >= self.at


CLOCK = [0.0]


def test_handle_never_asks_the_stopper() -> None:
    class Forbidden(Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            raise AssertionError("called")

        def stop_all(self) -> bool:
            raise AssertionError("called")

    search = Simulation(samples=1, stopper=Forbidden())
    search.begin()
    search.go_on()
    search.go_on()
    (stepped,) = search.waiting
    search.machine.handle(stepped)
    assert search.machine.trials[0].iteration == 1


@pytest.mark.parametrize("clock_of_the_replay", [0.0, 99.0])
def test_a_replay_repeats_the_verdicts_of_the_stopper_whatever_its_clock(
    clock_of_the_replay: float,
) -> None:
    CLOCK[0] = 0.0
    search = Simulation(samples=6, stopper=Deadline(at=3.0))

    def step(trial: Trial, iteration: int) -> dict[str, Any]:
        CLOCK[0] += 0.5
        return {"score": 1.0}

    search.step = step
    search.run()
    CLOCK[0] = clock_of_the_replay
    replay = Simulation(samples=6, stopper=Deadline(at=3.0))
    for event in search.journal:
        replay.machine.with_stopper_verdict(event)
        replay.machine.handle(event)
    assert [(trial.trial_id, trial.status, trial.iteration) for trial in search.machine.trials] == [
        (trial.trial_id, trial.status, trial.iteration) for trial in replay.machine.trials
    ]


def test_the_stopper_sees_no_result_of_an_attempt_that_is_over() -> None:
    seen: list[str] = []

    class Watching(Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            seen.append(trial_id)
            return False

        def stop_all(self) -> bool:
            return False

    search = Simulation(samples=1, stopper=Watching())
    search.begin()
    search.go_on()
    late = events.TrialStepped(
        trial_id="t_00000", attempt=7, result={"score": 1.0}, checkpoint=None, ended=False
    )
    assert search.machine.with_stopper_verdict(late) is late
    assert seen == []


def test_a_metric_that_is_not_reported_is_named_with_its_neighbour() -> None:
    search = Simulation(rules=rules(metric="scor"), samples=1)
    with pytest.raises(
        TuneError,
        match=r"needs the metric 'scor', but .*reported \['score'\]. Did you mean 'score'\?",
    ):
        search.run()


def test_the_metric_of_the_searcher_is_needed_too() -> None:
    class Searching(SearchAlgorithm):
        metric = ["score", "los"]

    search = Simulation(samples=1)
    search.machine.search_alg = Searching()
    with pytest.raises(TuneError, match=r"the searcher \(metric='los'\) needs the metric 'los'"):
        search.run()


def test_a_stop_criterion_that_is_not_reported_is_named() -> None:
    search = Simulation(stopper=make_stopper({"scroe": 1.0}), samples=1)
    with pytest.raises(TuneError, match="'scroe'"):
        search.run()


def test_results_without_the_metric_pass_where_that_is_allowed() -> None:
    search = Simulation(rules=rules(metric="loss", strict_metrics=False), samples=1)
    search.run()
    assert statuses(search) == [Trial.TERMINATED]


def test_a_score_of_checkpoints_that_is_not_reported_is_named_with_its_neighbour() -> None:
    config = CheckpointConfig(checkpoint_score_attribute="scor", checkpoint_frequency=1)
    search = Simulation(rules=rules(checkpoint_config=config), samples=1)
    with pytest.raises(TuneError, match=r"'scor'.*Did you mean 'score'\? Its metrics: 'score'\."):
        search.run()


def test_checkpoints_may_be_ranked_by_what_the_library_fills_in() -> None:
    config = CheckpointConfig(
        checkpoint_score_attribute="training_iteration", checkpoint_frequency=1
    )
    search = Simulation(rules=rules(checkpoint_config=config), samples=1)
    search.run()
    assert statuses(search) == [Trial.TERMINATED]
