"""Li and others, A System for Massively Parallel Hyperparameter Tuning, MLSys 2020, with the rungs
of its Figure 1: r=1, R=9, eta=3.
"""

import math
import random

import numpy as np
import pytest

from syncline.tune.schedulers import ASHAScheduler, AsyncHyperBandScheduler, TrialScheduler
from syncline.tune.schedulers.async_hyperband import AsyncBracket, Rung
from tests.tune.schedulers.search_simulation import World, started

OBJECTIVE = {"metric": "score", "mode": "max"}
GOES_ON, STOPS = TrialScheduler.CONTINUE, TrialScheduler.STOP


def figure_1(**options):
    return ASHAScheduler(
        **{**OBJECTIVE, "max_t": 9, "grace_period": 1, "reduction_factor": 3, **options}
    )


def test_rungs_are_those_of_figure_1():
    """Figure 1 of the paper: bracket s has rungs r * eta**(s + k)."""
    assert [AsyncBracket.build(1, 9, 3, skipped=s).milestones for s in (0, 1, 2, 3)] == [
        [1, 3, 9],
        [3, 9],
        [9],
        [],
    ]


def test_the_last_rung_is_not_lost_to_rounding():
    assert AsyncBracket.build(1, 1000, 10, skipped=0).milestones == [1, 10, 100, 1000]
    assert AsyncBracket.build(0.1, 0.9, 3, skipped=0).milestones == pytest.approx([0.1, 0.3, 0.9])


def test_nine_trials_come_to_the_first_rung_one_by_one():
    """A trial goes on if it is in the top third of those before it: the cutoff is the 2/3 quantile,
    between two scores if need be.
    """
    world, trials = started(figure_1(), 9)
    scores = [0.5, 0.4, 0.6, 0.55, 0.57, 0.1, 0.7, 0.56, 0.9]
    before = [np.percentile(scores[:i], 200 / 3) if i else -math.inf for i in range(9)]
    decisions = [world.report(trial, 1, score) for trial, score in zip(trials, scores, strict=True)]
    assert decisions == [GOES_ON, STOPS, GOES_ON, GOES_ON, GOES_ON, STOPS, GOES_ON, STOPS, GOES_ON]
    assert decisions == [
        GOES_ON if score >= cutoff else STOPS for score, cutoff in zip(scores, before, strict=True)
    ]
    # At the second rung only those count that came there.
    on = [trial for trial, decision in zip(trials, decisions, strict=True) if decision == GOES_ON]
    assert [world.report(trial, 2, 0.0) for trial in on] == [GOES_ON] * len(on)
    assert [
        world.report(trial, 3, score) for trial, score in zip(on, [3, 1, 2, 4], strict=False)
    ] == [GOES_ON, STOPS, STOPS, GOES_ON]


def test_low_is_good_if_the_mode_says_so():
    world, trials = started(figure_1(mode="min"), 3)
    assert [
        world.report(trial, 1, loss) for trial, loss in zip(trials, [1.0, 2.0, 0.5], strict=True)
    ] == [GOES_ON, STOPS, GOES_ON]


def test_cutoff_is_numpys_percentile():
    generator = random.Random(3)
    for eta in (2, 3, 4, 2.5):
        ladder = AsyncBracket.build(1, 100, eta, skipped=0)
        rung, seen = ladder.rungs[0], []
        for _ in range(200):
            seen.append(generator.choice([generator.gauss(0, 1), 0.25]))
            rung.add(seen[-1], ladder.quantile)
            assert rung.cutoff(ladder.quantile) == np.percentile(seen, (1 - 1 / eta) * 100)
    assert Rung(1, [1.0, math.inf]).cutoff(0.5) == math.inf
    assert Rung(1, [1.0, 2.0, math.inf]).cutoff(0.5) == 2.0


def test_a_result_costs_a_binary_search_whatever_the_number_of_trials():
    compared = 0

    class Counted(float):
        def __lt__(self, other):
            nonlocal compared
            compared += 1
            return float(self) < float(other)

    rung = Rung(1)
    generator = random.Random(0)
    for _ in range(10_000):
        rung.add(Counted(generator.random()), 0.75)
    before = compared
    for _ in range(100):
        rung.add(Counted(generator.random()), 0.75)
    assert 0 < compared - before < 100 * 20


def test_trials_stop_at_max_t_or_go_on_from_it():
    world, [trial] = started(figure_1(), 1)
    assert [world.report(trial, time, 1.0) for time in (1, 5, 8.5, 9)] == [
        GOES_ON,
        GOES_ON,
        GOES_ON,
        STOPS,
    ]
    world, [trial] = started(figure_1(stop_last_trials=False), 1)
    assert [world.report(trial, time, 1.0) for time in (8, 9, 10, 100)] == [GOES_ON] * 4


def test_a_trial_that_jumps_over_rungs_is_judged_at_the_highest_only():
    world, [first, second, third] = started(figure_1(max_t=100), 3)
    assert world.report(first, 10, 5.0) == GOES_ON
    assert world.report(first, 20, -9.0) == GOES_ON  # not again, and not at a lower rung
    assert world.report(second, 1, 0.0) == GOES_ON
    assert world.report(third, 12, 4.0) == STOPS


def test_not_a_number_is_worse_than_everything_and_does_not_move_the_cutoff():
    world, trials = started(figure_1(), 4)
    scores = [float("nan"), 1.0, float("nan"), 1.0]
    assert [world.report(trial, 1, score) for trial, score in zip(trials, scores, strict=True)] == [
        GOES_ON,
        GOES_ON,
        STOPS,
        GOES_ON,
    ]


def test_a_trial_that_ends_by_itself_still_counts_at_its_rung():
    world, [first, second] = started(figure_1(), 2)
    world.finish(first, 1, 5.0)
    assert world.report(second, 1, 4.0) == STOPS


def test_a_trial_that_starts_again_is_not_judged_twice():
    world, [first, second] = started(figure_1(), 2)
    world.report(second, 1, 2.0)
    world.report(first, 1, 3.0)
    world.scheduler.on_trial_add(world, first)
    assert world.report(first, 1, 0.0) == GOES_ON


def test_brackets_with_more_rungs_get_more_trials_and_later_brackets_spare_trials_longer():
    random.seed(1)
    scheduler = figure_1(brackets=3)
    world, trials = started(scheduler, 600)
    stopped = {
        time: sum(
            world.report(trial, time, -trial.index) == STOPS
            for trial in trials
            if not trial.is_finished()
        )
        for time in (1, 3)
    }
    shares = np.exp([0, -1, -2]) / np.exp([0, -1, -2]).sum()
    assert stopped[1] == pytest.approx(shares[0] * 600, rel=0.15)
    assert stopped[3] == pytest.approx(shares[1] * 600, rel=0.3)


def test_results_without_a_time_are_passed_over_with_one_warning(caplog):
    world, [trial] = started(figure_1(time_attr="epoch"), 1)
    assert [world.report(trial, time, 1.0, epochs=time) for time in (1, 2)] == [GOES_ON, GOES_ON]
    assert len(caplog.records) == 1
    assert "Did you mean 'epochs'?" in caplog.text
    assert world.report(trial, 3, 1.0, epoch=9) == STOPS


def test_a_metric_may_be_missing_in_some_results():
    world, [trial] = started(figure_1(), 1)
    world.report(trial, 1, 1.0)
    assert (
        world.scheduler.on_trial_result(world, trial, {"training_iteration": 3, "loss": 1})
        == GOES_ON
    )


def test_a_metric_may_lie_in_nested_results_but_must_be_a_number():
    world, [trial] = started(ASHAScheduler(metric="eval/accuracy", mode="max"), 1)
    assert world.report(trial, 1, 0.0, eval={"accuracy": 0.5}) == GOES_ON
    with pytest.raises(RuntimeError, match="eval/accuracy='high', which is no number"):
        world.report(trial, 2, 0.0, eval={"accuracy": "high"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_t": None}, "max_t=None must be a finite number"),
        ({"max_t": 0}, "max_t=0 must be"),
        ({"grace_period": 200}, "grace_period=200 must be more than 0 and at most max_t=100"),
        ({"grace_period": 0}, "grace_period=0"),
        ({"reduction_factor": 1}, "reduction_factor=1 must be more than 1"),
        ({"brackets": 0}, "brackets=0"),
        ({"mode": "maximum"}, "mode='maximum' must be 'min' or 'max'"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        ASHAScheduler(**options)


def test_both_names_are_one_class_and_max_t_may_be_a_fraction():
    assert ASHAScheduler is AsyncHyperBandScheduler
    world, [trial] = started(
        ASHAScheduler(**OBJECTIVE, time_attr="hours", max_t=0.5, grace_period=0.01), 1
    )
    assert world.report(trial, 1, 1.0, hours=0.49) == GOES_ON
    assert world.report(trial, 2, 1.0, hours=0.5) == STOPS


def test_a_search_with_many_trials_spends_little_on_bad_ones():
    world = World(
        ASHAScheduler(**OBJECTIVE, max_t=27, reduction_factor=3),
        count=81,
        at_once=4,
        length=100,
        score=lambda t, _: -t.index,
    ).run()
    longest = world.longest()
    assert longest[0] == 27
    assert sum(longest.values()) < 81 * 27 / 5
    assert "num_stopped=81" in world.scheduler.debug_string()
    assert "Iter 27.000" in world.scheduler.debug_string()
