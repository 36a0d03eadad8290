"""Options: defaults, checks, older spellings, and resources."""

import logging
import pickle

import pytest

from syncline.core.options import ActorOptions, MethodOptions, TaskOptions, updated
from syncline.core.placement import PlacementGroup, PlacementGroupSchedulingStrategy


def test_a_task_holds_one_cpu_by_default():
    assert TaskOptions().resources_needed() == {"CPU": 1}
    assert TaskOptions(num_cpus=0).resources_needed() == {}
    options = TaskOptions(
        num_gpus=0.5, memory=100, resources={"special": 2, "none": 0}, accelerator_type="H100"
    )
    assert options.resources_needed() == {
        "CPU": 1,
        "GPU": 0.5,
        "memory": 100,
        "special": 2,
        "accelerator_type:H100": 0.001,
    }


def test_an_actor_needs_a_cpu_to_start_and_holds_none_by_default():
    assert (ActorOptions().resources_to_place(), ActorOptions().resources_needed()) == (
        {"CPU": 1},
        {},
    )
    two = ActorOptions(num_cpus=2)
    assert two.resources_to_place() == two.resources_needed() == {"CPU": 2}


def test_an_actor_in_a_placement_group_needs_no_more_than_it_holds():
    strategy = PlacementGroupSchedulingStrategy(PlacementGroup(1, [{"GPU": 1}]))
    assert ActorOptions(num_gpus=1, scheduling_strategy=strategy).resources_to_place() == {"GPU": 1}


@pytest.mark.parametrize(
    ("keywords", "error", "message"),
    [
        ({"num_cpus": -1}, ValueError, "num_cpus=-1"),
        ({"num_cpus": "2"}, TypeError, "num_cpus='2'"),
        ({"num_cpus": True}, TypeError, "num_cpus=True"),
        ({"num_cpus": float("nan")}, ValueError, "num_cpus"),
        ({"num_gpus": 1.5}, ValueError, "whole number"),
        ({"resources": {"CPU": 1}}, ValueError, "num_cpus=1"),
        ({"resources": [1]}, TypeError, "resources"),
        ({"num_returns": -1}, ValueError, "num_returns=-1"),
        ({"num_returns": "stream"}, ValueError, "'streaming', 'dynamic'"),
        ({"max_retries": -2}, ValueError, "max_retries=-2"),
        ({"retry_exceptions": [3]}, TypeError, "not an exception class"),
        ({"retry_exceptions": "all"}, TypeError, "retry_exceptions"),
        ({"scheduling_strategy": "PACK"}, ValueError, "'DEFAULT', 'SPREAD'"),
        ({"scheduling_strategy": 3}, TypeError, "scheduling_strategies"),
        ({"name": ""}, ValueError, "name"),
        (
            {"max_restarts": 1},
            ValueError,
            "A remote function has no option 'max_restarts'. Did you mean 'max_retries'",
        ),
        ({"num_cpu": 1}, ValueError, "Did you mean 'num_cpus'"),
        ({"label_selector": {"a": 1}}, TypeError, "label_selector"),
        ({"fallback_strategy": {"a": "b"}}, TypeError, "fallback_strategy"),
        ({"fallback_strategy": [{"a": "b"}]}, ValueError, "give only 'label_selector'"),
        ({"fallback_strategy": [{"label_selector": {"a": 1}}]}, TypeError, "strings"),
        ({"runtime_env": {"env_vars": {"A": 1}}}, TypeError, "env_vars"),
    ],
)
def test_impossible_task_options_are_refused(keywords, error, message):
    with pytest.raises(error) as caught:
        updated(TaskOptions(), keywords)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"lifetime": "forever"}, "'detached', 'non_detached'"),
        ({"max_concurrency": -1}, "max_concurrency=-1"),
        ({"get_if_exists": True}, "set `name`"),
        ({"num_returns": 2}, "An actor class has no option 'num_returns'"),
        ({"concurrency_groups": {"io": 0}}, "io"),
    ],
)
def test_impossible_actor_options_are_refused(keywords, message):
    with pytest.raises(ValueError) as caught:
        updated(ActorOptions(), keywords)
    assert message in str(caught.value)


def test_options_add_to_those_before():
    options = updated(updated(TaskOptions(), {"num_cpus": 2}), {"max_retries": 0})
    assert (options.num_cpus, options.max_retries) == (2, 0)


def test_exception_lists_become_tuples():
    assert updated(TaskOptions(), {"retry_exceptions": [KeyError]}).retry_exceptions == (KeyError,)


def test_older_placement_group_options_become_a_strategy():
    group = PlacementGroup(5, [{"CPU": 1}, {"CPU": 1}])
    options = updated(TaskOptions(), {"placement_group": group, "placement_group_bundle_index": 1})
    assert options.scheduling_strategy == PlacementGroupSchedulingStrategy(group, 1)
    assert options.placement_group == group
    assert updated(TaskOptions(), {"placement_group": "default"}).placement_group is None
    strategy = PlacementGroupSchedulingStrategy("default")
    assert updated(TaskOptions(), {"scheduling_strategy": strategy}) == TaskOptions()
    with pytest.raises(ValueError, match="only `scheduling_strategy`"):
        updated(TaskOptions(), {"placement_group": group, "scheduling_strategy": "SPREAD"})


def test_options_without_effect_are_ignored_with_one_debug_line(caplog):
    with caplog.at_level(logging.DEBUG, "syncline"):
        assert updated(TaskOptions(), {"_metadata": {}}) == TaskOptions()
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


def test_options_can_be_pickled():
    group = PlacementGroup(5, [{"CPU": 1}])
    options = updated(
        TaskOptions(),
        {"num_cpus": 2, "scheduling_strategy": PlacementGroupSchedulingStrategy(group)},
    )
    assert pickle.loads(pickle.dumps(options)) == options
    method = MethodOptions(num_returns=3, concurrency_group="io")
    assert pickle.loads(pickle.dumps(method)) == method
