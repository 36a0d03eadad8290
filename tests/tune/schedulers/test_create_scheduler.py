import inspect

import pytest

from syncline.tune import schedulers
from syncline.tune.schedulers import (
    ASHAScheduler,
    HyperBandScheduler,
    PopulationBasedTraining,
    TrialScheduler,
    create_scheduler,
)


@pytest.mark.parametrize(
    "name",
    [
        "fifo",
        "async_hyperband",
        "asynchyperband",
        "median_stopping_rule",
        "medianstopping",
        "hyperband",
        "hb_bohb",
    ],
)
def test_every_name_gives_its_scheduler(name):
    assert isinstance(create_scheduler(name), TrialScheduler)


def test_keywords_reach_the_scheduler_and_those_of_others_are_left_out():
    scheduler = create_scheduler("HyperBand", max_t=9, metric="m", mode="min", grace_period=3)
    assert isinstance(scheduler, HyperBandScheduler)
    assert (scheduler.metric, scheduler._max_t) == ("m", 9)
    assert isinstance(
        create_scheduler("pbt", hyperparam_mutations={"a": [1]}), PopulationBasedTraining
    )
    assert isinstance(create_scheduler("asha", max_t=9), ASHAScheduler)


def test_wrong_names_are_answered_with_the_nearest():
    with pytest.raises(
        ValueError, match=r"no scheduler 'async_hyperbnd'. Did you mean 'async_hyperband'"
    ):
        create_scheduler("async_hyperbnd")
    with pytest.raises(
        TypeError, match=r"no scheduler has such an option. Did you mean 'grace_period'\?"
    ):
        create_scheduler("asha", grace_perod=3)


SIGNATURES = {
    "AsyncHyperBandScheduler": (
        "time_attr metric mode max_t grace_period reduction_factor brackets stop_last_trials"
    ),
    "HyperBandScheduler": "time_attr metric mode max_t reduction_factor stop_last_trials",
    "HyperBandForBOHB": "time_attr metric mode max_t reduction_factor stop_last_trials",
    "MedianStoppingRule": (
        "time_attr metric mode grace_period min_samples_required min_time_slice hard_stop"
    ),
    "PopulationBasedTraining": (
        "time_attr metric mode perturbation_interval burn_in_period hyperparam_mutations"
        " quantile_fraction resample_probability perturbation_factors custom_explore_fn log_config"
        " require_attrs synch"
    ),
    "PopulationBasedTrainingReplay": "policy_file",
    "PB2": (
        "time_attr metric mode perturbation_interval hyperparam_bounds quantile_fraction log_config"
        " require_attrs synch custom_explore_fn"
    ),
    "ResourceChangingScheduler": "base_scheduler resources_allocation_function",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_parameters_have_the_order_that_programs_rely_on(name):
    assert " ".join(inspect.signature(getattr(schedulers, name)).parameters) == SIGNATURES[name]
