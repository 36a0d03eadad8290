"""What holds for every scheduler, whatever trials do: all trials end, nothing is decided about one
that has ended, and the same happens again if the search is run again, or goes on from a saved
scheduler.
"""

import pickle
import random

import pytest

from syncline.tune.schedulers import (
    PB2,
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)
from tests.tune.schedulers.search_simulation import World, grid

OBJECTIVE = {"metric": "score", "mode": "max", "time_attr": "training_iteration"}
MUTATIONS = {"lr": [0.1, 0.2, 0.3]}


def schedulers():
    random.seed(7)
    return {
        "fifo": FIFOScheduler(),
        "asha": ASHAScheduler(**OBJECTIVE, max_t=20, reduction_factor=3, brackets=2),
        "hyperband": HyperBandScheduler(**OBJECTIVE, max_t=20),
        "hyperband that does not stop": HyperBandScheduler(
            **OBJECTIVE, max_t=9, stop_last_trials=False
        ),
        "bohb": HyperBandForBOHB(**OBJECTIVE, max_t=20),
        "median": MedianStoppingRule(**OBJECTIVE, grace_period=2),
        "median that pauses": MedianStoppingRule(**OBJECTIVE, grace_period=2, hard_stop=False),
        "pbt": PopulationBasedTraining(
            **OBJECTIVE, perturbation_interval=4, hyperparam_mutations=MUTATIONS
        ),
        "pbt in step": PopulationBasedTraining(
            **OBJECTIVE, perturbation_interval=4, hyperparam_mutations=MUTATIONS, synch=True
        ),
        "pb2": PB2(
            **OBJECTIVE,
            perturbation_interval=10,
            hyperparam_bounds={"lr": [0.0, 1.0]},
            quantile_fraction=0.2,
        ),
        "resources": ResourceChangingScheduler(HyperBandScheduler(**OBJECTIVE, max_t=20)),
    }


def noise(trial, time):
    generator = random.Random(trial.index * 1000 + time)
    return float("nan") if generator.random() < 0.05 else generator.gauss(trial.index % 7, 3)


def unlucky(trial, time):
    return random.Random(trial.index * 77 + time).random() < 0.01


@pytest.mark.parametrize("shape", grid(count=[1, 25], at_once=[1, 4], concurrent=[3, 200]), ids=str)
@pytest.mark.parametrize("name", schedulers())
def test_every_trial_ends_and_the_same_search_gives_the_same_decisions(name, shape):
    options = {
        **shape,
        "length": 27,
        "score": noise,
        "fails": unlucky,
        "config": lambda index: {"lr": 0.2},
        "seed": shape["count"],
    }
    scheduler = schedulers()[name]
    again = pickle.loads(pickle.dumps(scheduler))
    first, second = World(scheduler, **options).run(), World(again, **options).run()
    assert all(trial.is_finished() for trial in first.trials)
    assert len(first.trials) == shape["count"]
    assert first.decided == second.decided
    assert first.lines == second.lines


@pytest.mark.parametrize("name", schedulers())
def test_a_search_goes_on_from_a_file_as_if_nothing_had_happened(name, tmp_path):
    halfway = 30
    options = {
        "count": 12,
        "at_once": 3,
        "length": 27,
        "score": noise,
        "config": lambda index: {"lr": 0.2},
    }
    whole = World(schedulers()[name], **options).run()

    class Interrupted(World):
        steps = 0

        def _step(self, trial):
            super()._step(trial)
            self.steps += 1
            if self.steps == halfway:
                self.scheduler.save(str(tmp_path / "state"))
                self.scheduler = schedulers()[name]
                self.scheduler.restore(str(tmp_path / "state"))

    resumed = Interrupted(schedulers()[name], **options).run()
    assert resumed.steps > halfway
    assert resumed.decided == whole.decided


@pytest.mark.parametrize(
    "name", [name for name in schedulers() if name not in ("fifo", "resources")]
)
def test_metric_given_twice_is_refused_and_a_missing_one_is_an_error(name):
    scheduler = schedulers()[name]
    assert not scheduler.set_search_properties("score", None)
    assert not scheduler.set_search_properties(None, "max")
    assert scheduler.set_search_properties(None, None)
    incomplete = type(scheduler)(
        **({"hyperparam_mutations": MUTATIONS} if name.startswith("pbt") else _bounds(name))
    )
    assert incomplete.set_search_properties("score", None)
    with pytest.raises(ValueError, match=r"metric='score' and mode=None.*TuneConfig"):
        World(incomplete).add()


def _bounds(name):
    return {"hyperparam_bounds": {"lr": [0, 1]}} if name == "pb2" else {}


@pytest.mark.parametrize("name", [name for name in schedulers() if name != "fifo"])
def test_a_metric_that_no_result_has_is_named_with_the_nearest_one(name):
    world = World(schedulers()[name], count=1)
    trial = world.add()
    world.start(trial)
    with pytest.raises(RuntimeError, match=r"no 'score'.*Did you mean 'scores'\?"):
        world.scheduler.on_trial_result(world, trial, {"training_iteration": 5, "scores": 1.0})


def test_fifo_runs_pending_trials_in_order_before_paused_ones():
    world = World(FIFOScheduler(), count=3)
    first, second, third = (world.add() for _ in range(3))
    world.start(first)
    world.pause_trial(first)
    assert world.choose() is second
    world.start(second)
    assert world.choose() is third
    world.start(third)
    assert world.choose() is first
