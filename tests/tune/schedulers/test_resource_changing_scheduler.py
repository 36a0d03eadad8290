import pytest

from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.schedulers import (
    ASHAScheduler,
    PopulationBasedTraining,
    ResourceChangingScheduler,
    TrialScheduler,
)
from syncline.tune.schedulers.resource_changing_scheduler import (
    DistributeResources,
    DistributeResourcesToTopJob,
    evenly_distribute_cpus_gpus,
    evenly_distribute_cpus_gpus_distributed,
)
from tests.tune.schedulers.search_simulation import World, make_trial, started

GOES_ON, STOPS, NOOP = TrialScheduler.CONTINUE, TrialScheduler.STOP, TrialScheduler.NOOP


def running(function, count, cpus, base=None, **options):
    """`count` trials run, each with `base`, on a machine with so many CPUs."""
    world = World(
        ResourceChangingScheduler(resources_allocation_function=function, **options), count=count
    )
    world.total_resources = cpus if isinstance(cpus, dict) else {"CPU": cpus}
    for index in range(count):
        trial = make_trial(index)
        trial.placement_group_factory = base or trial.placement_group_factory
        world.start(world.add(trial))
    return world, world.trials


def held(world, resource="CPU"):
    return [
        trial.placement_group_factory.required_resources.get(resource, 0) for trial in world.trials
    ]


def step(world, trial, time=1, score=0.0):
    decision = world.report(trial, time, score)
    if trial.status == "PENDING":
        world.start(trial)
    return decision


def test_what_is_free_is_shared_evenly():
    world, trials = running(DistributeResources(), 3, 8)
    assert [step(world, trial) for trial in trials] == [NOOP, NOOP, NOOP]
    assert held(world) == [3, 3, 2]
    assert [step(world, trial, 2) for trial in trials] == [GOES_ON] * 3


def test_shares_grow_when_a_trial_ends_and_shrink_when_one_comes():
    world, trials = running(DistributeResources(), 2, 8)
    for trial in trials:
        step(world, trial)
    assert held(world) == [4, 4]
    world.finish(trials[0], 2, 0)
    step(world, trials[1], 2)
    assert held(world)[1] == 8
    world.start(world.add())
    step(world, trials[1], 3)
    step(world, world.trials[2])
    assert held(world)[1:] == [4, 4]


def test_a_trial_never_has_less_than_its_base():
    world, trials = running(DistributeResources(), 4, 2)
    assert [step(world, trial) for trial in trials] == [GOES_ON] * 4
    assert held(world) == [1, 1, 1, 1]


def test_increments_limits_and_reserves_are_kept():
    world, trials = running(
        DistributeResources(
            increase_by={"CPU": 2}, increase_by_times=2, reserve_resources={"CPU": 1}
        ),
        2,
        12,
    )
    for trial in trials:
        step(world, trial)
    assert held(world) == [5, 5]
    world, trials = running(
        DistributeResources(increase_by={"CPU": 1, "GPU": 0.5}), 2, {"CPU": 16, "GPU": 1}
    )
    for trial in trials:
        step(world, trial)
    assert held(world, "GPU") == [0.5, 0.5]
    assert held(world) == [2, 2]


def test_a_trial_with_a_gpu_grows_by_gpus_and_keeps_the_rest():
    base = PlacementGroupFactory([{"CPU": 1, "GPU": 1, "license": 1}], strategy="STRICT_PACK")
    world, [trial] = running(DistributeResources(), 1, {"CPU": 2, "GPU": 4, "license": 1}, base)
    step(world, trial)
    assert trial.placement_group_factory == PlacementGroupFactory(
        [{"CPU": 1, "GPU": 4, "license": 1}], strategy="STRICT_PACK"
    )


def test_bundles_are_added_for_further_processes():
    base = PlacementGroupFactory([{"CPU": 1}, {"CPU": 2}])
    world, [trial] = running(DistributeResources(add_bundles=True), 1, 8, base)
    step(world, trial)
    assert trial.placement_group_factory.bundles == [{"CPU": 1}, {"CPU": 2}, {"CPU": 2}, {"CPU": 2}]
    world, [trial] = running(DistributeResources(), 1, 8, base)
    with pytest.raises(
        ValueError, match="only bundle of a trial, but trials have 2 bundles. Set add_bundles=True"
    ):
        step(world, trial)


def test_the_best_trial_gets_everything_and_the_others_keep_theirs():
    world, [a, b] = running(DistributeResourcesToTopJob(metric="score", mode="max"), 2, 6)
    assert step(world, a, 1, 1.0) == NOOP
    assert held(world) == [5, 1]
    assert step(world, b, 1, 2.0) == GOES_ON  # it is better, but nothing is free
    world.total_resources = {"CPU": 8.0}
    assert step(world, a, 2, 1.0) == GOES_ON
    assert step(world, b, 2, 2.0) == NOOP
    assert held(world) == [5, 3]


def test_the_next_best_gets_what_the_best_may_not():
    world, [a, b] = running(
        DistributeResourcesToTopJob(
            metric="score", mode="min", increase_by={"CPU": 1}, increase_by_times=2
        ),
        2,
        6,
    )
    step(world, b, 1, 9.0)
    step(world, a, 1, 1.0)
    step(world, b, 2, 9.0)
    assert held(world) == [3, 3]


def test_metric_and_mode_come_from_the_base_scheduler_and_do_not_stick_to_the_function():
    function = DistributeResourcesToTopJob()
    world, [trial] = running(
        function, 1, 4, base_scheduler=ASHAScheduler(metric="score", mode="max")
    )
    step(world, trial, 0.5)
    assert held(world) == [4]
    assert (function.metric, function.mode) == (None, None)
    world, [trial] = running(function, 1, 4)
    world.scheduler.set_search_properties("score", "min")
    step(world, trial)
    assert held(world) == [4]
    world, [trial] = running(function, 1, 4)
    with pytest.raises(ValueError, match="metric=None and mode=None"):
        step(world, trial)


def test_the_base_scheduler_decides_first():
    world, [a, b] = running(
        DistributeResources(),
        2,
        4,
        base_scheduler=ASHAScheduler(metric="score", mode="max", max_t=9),
    )
    assert step(world, a, 1, 5.0) == NOOP
    assert step(world, b, 1, 1.0) == STOPS
    assert world.scheduler.metric == "score"
    assert not world.scheduler.set_search_properties("other", None)
    assert (
        "(ResourceChangingScheduler) Using AsyncHyperBand: num_stopped=1"
        in world.scheduler.debug_string()
    )


def test_policy_files_of_the_base_scheduler_are_passed_on():
    base = PopulationBasedTraining(
        metric="score",
        mode="max",
        time_attr="training_iteration",
        perturbation_interval=1,
        hyperparam_mutations={"lr": [1, 2]},
    )
    world, [bad, good] = started(ResourceChangingScheduler(base, None), 2)
    world.report(bad, 1, 0)
    world.report(good, 1, 1)
    world.report(bad, 2, 0)
    assert {name for name, _ in world.lines} == {"pbt_global.txt", "pbt_policy_t00000.txt"}


def test_any_function_may_decide_and_none_changes_nothing():
    wanted = PlacementGroupFactory([{"CPU": 2}])
    world, [trial] = running(
        lambda controller, trial, result, scheduler: wanted if result["score"] > 1 else None, 1, 4
    )
    assert [step(world, trial, time, score) for time, score in ((1, 0), (2, 5), (3, 5))] == [
        GOES_ON,
        NOOP,
        GOES_ON,
    ]
    assert trial.placement_group_factory == wanted
    world, [trial] = running(None, 1, 4)
    assert step(world, trial) == GOES_ON


def test_trials_must_start_with_the_same():
    world, [trial] = running(DistributeResources(), 1, 4)
    step(world, trial)
    world.scheduler.on_trial_add(world, trial)  # it comes again, with what it has got
    with pytest.raises(ValueError, match="all trials must start with the same"):
        world.add(make_trial(1, cpus=2))


def test_older_names_and_wrong_increments():
    assert evenly_distribute_cpus_gpus.add_bundles is False
    assert evenly_distribute_cpus_gpus_distributed.add_bundles is True
    with pytest.raises(ValueError, match="increase_by="):
        DistributeResources(increase_by={"CPU": -1})
    with pytest.raises(ValueError, match="mode='up'"):
        DistributeResourcesToTopJob(mode="up")
