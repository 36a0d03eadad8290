"""HyperBand: Li and others, Hyperband, JMLR 18(185), 2018: Algorithm 1 with the example of its
Table 1, R=81 and eta=3.
"""

import pytest

from syncline.tune.schedulers import HyperBandForBOHB, HyperBandScheduler, TrialScheduler
from syncline.tune.schedulers.hyperband import bracket_plan, largest_bracket
from tests.tune.schedulers.search_simulation import World, started

OBJECTIVE = {"metric": "score", "mode": "max"}
GOES_ON, STOPS, WAITS = TrialScheduler.CONTINUE, TrialScheduler.STOP, TrialScheduler.PAUSE

TABLE_1 = {
    4: [(81, 1), (27, 3), (9, 9), (3, 27), (1, 81)],
    3: [(34, 3), (11, 9), (3, 27), (1, 81)],
    2: [(15, 9), (5, 27), (1, 81)],
    1: [(8, 27), (2, 81)],
    0: [(5, 81)],
}
"""For each s: n_i = floor(n / eta**i) trials run to r_i = R / eta**(s-i), where n = ceil((s_max +
1) / (s + 1) * eta**s).
"""


def test_brackets_are_those_of_the_paper():
    assert largest_bracket(81, 3) == 4
    for s, rungs in TABLE_1.items():
        plan = bracket_plan(s, 81, 3)
        assert [
            (plan.survivors(i, plan.size), milestone) for i, milestone in enumerate(plan.milestones)
        ] == rungs


def test_one_round_of_trials_runs_as_the_paper_says():
    """All 143 trials of the five brackets, filled from s=0 to s=4, four at once: so many came as
    far as the table says.
    """
    world = World(HyperBandScheduler(**OBJECTIVE), count=143, at_once=4, length=1000).run()
    longest = world.longest()
    first = 0
    for s in range(5):
        size = TABLE_1[s][0][0]
        members = [longest[index] for index in range(first, first + size)]
        for survivors, milestone in TABLE_1[s]:
            assert sum(time >= milestone for time in members) == survivors
        assert set(members) == {milestone for _, milestone in TABLE_1[s]}
        assert members == sorted(members)  # later trials are better in this world
        first += size
    assert world.scheduler.state() == {"num_brackets": 5, "num_stopped": 143}
    world.count += 5
    world.run()
    assert world.scheduler.state() == {"num_brackets": 6, "num_stopped": 148}


def test_the_last_milestone_is_max_t_even_if_that_is_no_power_of_eta():
    assert bracket_plan(4, 100, 3).milestones == (1, 3, 11, 33, 100)
    assert bracket_plan(2, 12.5, 3).milestones == (1, 4, 12.5)
    assert bracket_plan(0, 0.5, 3).milestones == (0.5,)
    assert largest_bracket(1000, 10) == 3


def small(**options):
    """Brackets of 2 trials to 3, and of 3 trials to 1, of which 1 goes on to 3."""
    return HyperBandScheduler(**{**OBJECTIVE, "max_t": 3, "reduction_factor": 3, **options})


def second_bracket(**options):
    """The three trials of the bracket with two rungs; the other bracket is done."""
    world, trials = started(small(**options), 5)
    for trial in trials[:2]:
        world.finish(trial, 1, 0.0)
    return world, trials[2:]


def test_trials_wait_at_a_milestone_until_all_are_there_and_the_best_goes_on():
    world, [a, b, c] = second_bracket()
    assert world.report(a, 1, 0.2) == WAITS
    assert world.report(b, 1, 0.3) == WAITS
    assert world.choose() is None
    assert world.report(c, 1, 0.1) == STOPS
    assert (a.status, b.status) == ("TERMINATED", "PAUSED")
    assert world.choose() is b
    world.start(b)
    assert [world.report(b, time, 0.1) for time in (2, 3)] == [GOES_ON, STOPS]


def test_the_last_to_arrive_goes_on_without_a_pause_if_it_is_the_best():
    world, [a, b, c] = second_bracket(mode="min")
    world.report(a, 1, 0.2)
    world.report(b, 1, 0.3)
    assert world.report(c, 1, 0.1) == GOES_ON
    assert a.is_finished()
    assert b.is_finished()


def test_not_a_number_is_halved_away_first():
    world, [a, b, c] = second_bracket()
    world.report(a, 1, float("nan"))
    world.report(b, 1, -5.0)
    world.report(c, 1, float("nan"))
    assert [trial.is_finished() for trial in (a, b, c)] == [True, False, True]


@pytest.mark.parametrize("how", ["fail", "finish"])
def test_nobody_waits_for_a_trial_that_has_ended(how):
    world, [a, b, c] = second_bracket()
    world.report(a, 1, 0.2)
    world.report(b, 1, 0.3)
    world.fail(c) if how == "fail" else world.finish(c, 1, 9.0)
    assert a.is_finished()
    assert world.choose() is b


def test_a_trial_that_went_back_to_a_checkpoint_catches_up():
    world, [a, b, c] = second_bracket()
    world.report(a, 1, 0.2)
    world.report(b, 1, 0.3)
    world.report(c, 1, 0.4)
    assert [world.report(c, time, 0.4) for time in (2, 1, 2, 3)] == [
        GOES_ON,
        GOES_ON,
        GOES_ON,
        STOPS,
    ]


def test_a_jump_over_several_milestones_passes_several_halvings():
    scheduler = HyperBandForBOHB(**OBJECTIVE, max_t=9)
    world, trials = started(scheduler, 9)
    assert [world.report(trial, 4, trial.index) for trial in trials[:-1]] == [WAITS] * 8
    assert world.report(trials[-1], 4, 8) == GOES_ON
    assert [trial.is_finished() for trial in trials] == [True] * 8 + [False]


def test_a_bracket_that_does_not_fill_goes_on_when_no_more_trials_come():
    """Two trials for the bracket of three, while those of the other bracket still run: nobody waits
    for them.
    """
    world, [*_, a, b] = started(small(), 4)
    assert world.report(a, 1, 0.2) == WAITS
    assert world.choose() is None  # b runs, and is of this bracket
    assert world.report(b, 1, 0.3) == GOES_ON
    assert a.is_finished()
    world, [*_, alone] = started(small(), 3)
    assert world.report(alone, 1, 0.2) == WAITS
    assert world.choose() is alone


def test_a_bracket_waits_for_further_trials_while_something_runs_that_they_may_wait_for():
    world, trials = started(small(), 3)
    world.count = 10
    world.report(trials[2], 1, 0.5)
    assert world.choose() is None
    for trial in trials[:2]:
        world.finish(trial, 3, 0.0)
    assert world.choose() is trials[2]


@pytest.mark.parametrize("scheduler", [HyperBandScheduler, HyperBandForBOHB])
@pytest.mark.parametrize("concurrent", [1, 2, 5])
def test_a_limit_on_concurrent_trials_never_stops_the_search(scheduler, concurrent):
    world = World(
        scheduler(**OBJECTIVE, max_t=27), count=40, at_once=3, concurrent=concurrent, length=1000
    ).run()
    assert max(world.longest().values()) == 27


def test_a_trial_that_somebody_else_paused_may_go_on():
    world, [a, b, c] = second_bracket()
    world.report(a, 1, 0.2)
    world.pause_trial(c)
    assert world.choose() is c


def test_without_stopping_the_last_trials_run_to_their_own_end():
    world = World(small(stop_last_trials=False), count=5, at_once=2, length=10).run()
    assert world.longest() == {0: 10, 1: 10, 2: 1, 3: 1, 4: 10}


def test_time_and_metric_are_needed_with_every_result():
    world, [trial] = started(small(), 1)
    with pytest.raises(RuntimeError, match="no 'training_iteration'"):
        world.scheduler.on_trial_result(world, trial, {"score": 1})
    assert not world.scheduler.supports_buffered_results


class PausingSearcher:
    def __init__(self):
        self.told = []

    def on_pause(self, trial_id):
        self.told.append(("pause", trial_id))

    def on_unpause(self, trial_id):
        self.told.append(("unpause", trial_id))


class Wrapped:
    def __init__(self, searcher):
        self.searcher = searcher


@pytest.mark.parametrize("wrap", [Wrapped, lambda searcher: searcher])
def test_bohb_is_told_the_budget_and_who_waits(wrap):
    """Falkner, Klein, Hutter: BOHB, ICML 2018: the model learns from the results at each budget;
    the largest bracket comes first.
    """
    world, trials = started(HyperBandForBOHB(**OBJECTIVE, max_t=3), 4)
    searcher = PausingSearcher()
    world.search_alg = wrap(searcher)
    for trial in trials[:3]:
        world.scheduler.on_trial_result(
            world, trial, result := {"training_iteration": 0.5, "score": 0}
        )
        assert result["hyperband_info"] == {}
        result = {"training_iteration": 1, "score": -trial.index}
        decision = world.scheduler.on_trial_result(world, trial, result)
        assert result["hyperband_info"] == {"budget": 1}
        if decision == WAITS:
            world.pause_trial(trial)
    a, b, _ = trials[:3]
    assert searcher.told == [("pause", a.trial_id), ("pause", b.trial_id), ("unpause", a.trial_id)]
    assert world.choose() is a
    assert (
        world.report(trials[3], 1, 0.0) == GOES_ON
    )  # it is of the next bracket, which goes to 3 at once


def test_hyperband_state_does_not_grow_with_trials_that_have_ended():
    scheduler = HyperBandScheduler(**OBJECTIVE, max_t=9)
    World(scheduler, count=17, at_once=4, length=100).run()
    few = sum(len(value) for value in vars(scheduler).values() if isinstance(value, (dict, list)))
    World(scheduler, count=170, at_once=4, length=100).run()
    assert (
        sum(len(value) for value in vars(scheduler).values() if isinstance(value, (dict, list)))
        == few
    )


def test_debug_string_tells_where_brackets_stand():
    world, _ = second_bracket()
    assert "num_stopped=0 total_brackets=2" in world.scheduler.debug_string()
    assert "Bracket #1(size=3, started=3, live=3, milestone=1)" in world.scheduler.debug_string()
