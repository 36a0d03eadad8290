"""Population based training: Jaderberg and others, Population Based Training of Neural Networks,
2017, section 4.1.1 and appendix A.1: truncation selection (the bottom 20 % copy someone of the top
20 %), perturb by 1.2 or 0.8, resample.
"""

import itertools
import random

import pytest

from syncline.tune.schedulers import PopulationBasedTraining, TrialScheduler
from syncline.tune.schedulers.population import Population
from syncline.tune.search.search_generator import SearchGenerator
from tests.tune.schedulers.search_simulation import Lessons, World, make_trial, started

GOES_ON, WAITS, NOOP = TrialScheduler.CONTINUE, TrialScheduler.PAUSE, TrialScheduler.NOOP


def pbt(**options):
    defaults = {
        "metric": "score",
        "mode": "max",
        "time_attr": "training_iteration",
        "perturbation_interval": 5,
        "hyperparam_mutations": {"lr": lambda: 1.0},
        "resample_probability": 0,
    }
    return PopulationBasedTraining(**{**defaults, **options})


def lr_by_index(index):
    return {"lr": float(index), "layers": 3}


def test_the_bottom_fifth_of_ten_copies_the_top_fifth_and_perturbs():
    """The paper's numbers: of ten trials, the two worst go on from one of the two best, with its
    learning rate times 1.2 or 0.8.
    """
    world, trials = started(pbt(quantile_fraction=0.2), 10, config=lr_by_index)
    assert {world.report(trial, 5, trial.index) for trial in trials} == {
        GOES_ON
    }  # each was the best so far
    assert [world.report(trial, 10, trial.index) for trial in trials] == [NOOP] * 2 + [GOES_ON] * 8
    assert [entry[0] for entry in world.exploits()] == [trials[0].trial_id, trials[1].trial_id]
    world.settle()
    for trial in trials[:2]:
        assert trial.status == "PENDING"
        assert trial.config["layers"] == 3
        assert round(trial.config["lr"], 6) in {
            round(best * factor, 6) for best, factor in itertools.product((8, 9), (1.2, 0.8))
        }
        assert (
            trial.experiment_tag
            == f"{trial.index}_{trial.index}@perturbed[lr={trial.config['lr']:.4g}]"
        )
    assert [trial.config["lr"] for trial in trials[2:]] == [float(index) for index in range(2, 10)]
    assert [trial.checkpoint_iteration for trial in trials[2:]] == [5] * 6 + [
        10
    ] * 2  # those of the top were saved
    assert "perturbs" in world.scheduler.debug_string()


def test_low_is_good_if_the_mode_says_so():
    world, [a, b] = started(pbt(mode="min", quantile_fraction=0.5), 2, config=lr_by_index)
    assert [world.report(b, 5, 0.2), world.report(a, 5, 0.1), world.report(b, 10, 0.2)] == [
        GOES_ON,
        GOES_ON,
        NOOP,
    ]


@pytest.mark.parametrize(
    ("count", "fraction", "size"),
    [
        (1, 0.5, 0),
        (2, 0.25, 1),
        (3, 0.5, 1),
        (4, 0.25, 1),
        (5, 0.25, 2),
        (10, 0.2, 2),
        (4, 0, 0),
        (3, 0.4, 1),
    ],
)
def test_quantiles_are_rounded_up_and_never_overlap(count, fraction, size):
    population = Population(fraction)
    for index in range(count):
        population.add(f"t{index}", str(index))
        population.set_score(f"t{index}", 0.0)
    assert population.quantile_size() == size
    quantiles = [population.quantile_of(f"t{index}") for index in range(count)]
    assert quantiles == ["lower"] * size + ["middle"] * (count - 2 * size) + ["upper"] * size
    assert [population.from_top(position).trial_id for position in range(count)] == [
        f"t{index}" for index in reversed(range(count))
    ]


def test_equals_do_not_copy_each_other():
    world, trials = started(pbt(quantile_fraction=0.5), 4, config=lr_by_index)
    for time in (5, 10, 15):
        assert {world.report(trial, time, 1.0) for trial in trials} == {GOES_ON}


def test_not_a_number_is_the_worst():
    world, trials = started(pbt(quantile_fraction=0.25), 4, config=lr_by_index)
    for trial, score in zip(trials, [float("nan"), -5.0, 2.0, 3.0], strict=True):
        assert world.report(trial, 5, score) == GOES_ON
    assert world.report(trials[1], 10, -9.0) == GOES_ON
    assert world.report(trials[0], 10, float("nan")) == NOOP
    assert world.exploits()[0][3] == trials[3].trial_id


def test_nobody_copies_a_trial_without_a_checkpoint():
    world, trials = started(pbt(quantile_fraction=0.5), 2, config=lr_by_index, saves=False)
    assert [
        world.report(trial, time, trial.index) for time in (5, 10) for trial in reversed(trials)
    ] == [GOES_ON] * 4


def test_a_trial_that_has_finished_may_still_be_copied_and_one_that_failed_may_not():
    world, [bad, fine, best, failed] = started(pbt(quantile_fraction=0.25), 4, config=lr_by_index)
    world.report(failed, 5, 100)
    world.fail(failed)
    world.finish(best, 7, 10)
    world.report(fine, 5, 5)
    assert world.report(bad, 5, 1) == NOOP
    assert world.exploits()[0][3] == best.trial_id


def test_one_that_still_runs_is_copied_rather_than_one_that_has_finished():
    world, [bad, other, runs, done] = started(pbt(quantile_fraction=0.5), 4, config=lr_by_index)
    for trial, score in ((bad, 1), (other, 2), (runs, 9)):
        world.report(trial, 5, score)
    world.finish(done, 6, 10)
    assert world.report(bad, 10, 1) == NOOP
    assert world.exploits()[0][3] == runs.trial_id


def test_burn_in_and_interval_are_kept():
    world, [bad, good] = started(
        pbt(burn_in_period=12, quantile_fraction=0.5), 2, config=lr_by_index
    )
    for time in range(1, 12):
        assert world.report(good, time, 1) == GOES_ON
        assert world.report(bad, time, 0) == GOES_ON
    assert world.report(bad, 12, 0) == GOES_ON
    assert world.report(good, 12, 1) == GOES_ON
    assert [world.report(bad, time, 0) for time in (16, 17)] == [GOES_ON, NOOP]


def test_a_trial_trains_for_an_interval_with_what_it_got():
    """The bad trial is at 9 when it copies a checkpoint of 5: its iterations go on from there, so
    it is due at 14, not at 10.
    """
    world, [bad, good] = started(pbt(quantile_fraction=0.5), 2, config=lr_by_index)
    world.report(bad, 5, 0)
    world.report(good, 5, 1)
    assert world.report(bad, 10, 0) == NOOP
    world.settle()
    world.start(bad)
    assert [world.report(bad, time, 0) for time in (11, 14)] == [GOES_ON, GOES_ON]
    assert world.report(bad, 15, 0) == NOOP


def test_trials_take_turns_where_fewer_run_than_there_are():
    """Two run at once of six: whoever comes to a comparison gives way to the one that is furthest
    behind.
    """
    world = World(pbt(), count=6, at_once=2, length=31, config=lr_by_index)
    times = dict.fromkeys(range(6), 0)
    spread = []

    def watched(trial, time):
        times[trial.index] = max(times[trial.index], time)
        spread.append(max(times.values()) - min(times.values()))
        return trial.index + time / 1000

    world.score = watched
    world.run()
    assert all(time == 31 for time in world.longest().values())
    assert max(spread) <= 15
    assert world.exploits()


def test_in_step_all_wait_for_the_comparison_and_then_the_worst_copy():
    world, trials = started(pbt(synch=True, quantile_fraction=0.25), 4, config=lr_by_index)
    for trial in trials[:3]:
        assert world.report(trial, 4, trial.index) == GOES_ON
        assert world.report(trial, 5, trial.index) == WAITS
    assert world.choose() is None
    assert (
        world.report(trials[3], 6, 3) == WAITS
    )  # the last: it has a checkpoint when all are compared
    assert world.choose() is trials[1]
    assert [(entry[0], entry[3]) for entry in world.exploits()] == [
        (trials[0].trial_id, trials[3].trial_id)
    ]
    world.settle()
    for trial in trials:
        world.start(trial)
    assert [world.report(trial, 9, 0) for trial in trials] == [GOES_ON] * 4
    assert world.report(trials[0], 10, 0) == WAITS


@pytest.mark.parametrize("ending", ["finish", "fail"])
def test_in_step_nobody_waits_for_a_trial_that_has_ended(ending):
    world, [a, b, c] = started(pbt(synch=True, quantile_fraction=0.5), 3, config=lr_by_index)
    world.report(a, 5, 1)
    world.report(b, 5, 2)
    assert world.choose() is None
    world.fail(c) if ending == "fail" else world.finish(c, 3, 0)
    assert world.choose() is not None
    assert world.choose().status == "PAUSED"


def test_in_step_a_jump_in_time_leads_to_one_comparison_only():
    world, trials = started(pbt(synch=True, quantile_fraction=0.5), 2, config=lr_by_index)
    for trial in trials:
        world.report(trial, 33, trial.index)
    assert world.choose() is trials[1]
    assert len(world.exploits()) == 1
    world.start(trials[1])
    assert [world.report(trials[1], time, 1) for time in (34, 35)] == [GOES_ON, WAITS]


def test_results_without_the_metric_are_passed_over_if_they_may_be():
    world, [trial] = started(pbt(require_attrs=False), 1, config=lr_by_index)
    assert (
        world.scheduler.on_trial_result(world, trial, {"training_iteration": 9, "loss": 1})
        == GOES_ON
    )
    assert world.scheduler.on_trial_result(world, trial, {"score": 1}) == GOES_ON
    world, [trial] = started(pbt(), 1, config=lr_by_index)
    with pytest.raises(
        RuntimeError, match="no 'training_iteration', the `time_attr` of PopulationBasedTraining"
    ):
        world.scheduler.on_trial_result(world, trial, {"score": 1})


def test_a_trial_starts_with_drawn_values_for_what_its_configuration_lacks():
    world = World(pbt(hyperparam_mutations={"lr": [0.5], "opt": {"beta": [0.9]}, "layers": [1, 2]}))
    trial = world.add(make_trial(0, {"layers": 7}))
    assert trial.config == {"lr": 0.5, "opt": {"beta": 0.9}, "layers": 7}
    assert trial.evaluated_params == {"lr": 0.5, "opt/beta": 0.9}


def test_a_searcher_beside_it_is_refused():
    world = World(pbt())
    world.search_alg = object.__new__(SearchGenerator)
    world.search_alg.__dict__["searcher"] = None
    with pytest.raises(ValueError, match="leave `search_alg` out"):
        world.add()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hyperparam_mutations": None}, ValueError, "nothing to mutate"),
        (
            {"hyperparam_mutations": {"lr": 3}},
            TypeError,
            r"hyperparam_mutations\['lr'\]=3 must be a list",
        ),
        ({"quantile_fraction": 0.6}, ValueError, "quantile_fraction=0.6 must be between 0 and 0.5"),
        ({"perturbation_interval": 0}, ValueError, "perturbation_interval=0 must be more than 0"),
        ({"mode": "best"}, ValueError, "mode='best'"),
    ],
)
def test_options_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        pbt(**options)


def test_a_comparison_costs_a_binary_search_whatever_the_population():
    """Counted: comparisons of ranks while one trial of 10 000 gets a new score and is placed."""
    compared = 0

    class Counted(float):
        def __lt__(self, other):
            nonlocal compared
            compared += 1
            return float(self) < float(other)

        def __eq__(self, other):
            return float(self) == float(other)

        __hash__ = float.__hash__

    population, generator = Population(0.25), random.Random(0)
    for index in range(10_000):
        population.add(f"t{index}", str(index))
        population.set_score(f"t{index}", Counted(generator.random()))
    compared = 0
    population.set_score("t77", Counted(0.5))
    assert population.quantile_of("t77") == "middle"
    assert 0 < compared < 120


def test_learning_rates_move_towards_the_best():
    """A toy: who has a learning rate near 1 gains most. The population starts at 0.1 or less and
    comes near 1.
    """
    random.seed(3)
    world = Lessons(
        pbt(hyperparam_mutations={"lr": [0.01, 0.03, 0.1, 0.3, 1.0]}, resample_probability=0.25),
        lambda config: 1 - abs(1 - config["lr"]),
        count=8,
        at_once=8,
        length=200,
        config=lambda index: {"lr": 0.01 if index % 2 else 0.1},
    ).run()
    assert sum(trial.config["lr"] >= 0.3 for trial in world.trials) >= 5
