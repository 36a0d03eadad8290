"""The default policy, alone and inside of a custom one."""

import inspect

from syncline.serve.autoscaling_policy import (
    default_autoscaling_policy,
    replica_queue_length_autoscaling_policy,
)
from syncline.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy


def context(requests, **config):
    facts = dict.fromkeys(inspect.signature(AutoscalingContext).parameters)
    facts.update(total_num_requests=requests, config=AutoscalingConfig(max_replicas=9, **config))
    return AutoscalingContext(**facts)


def test_desired_replicas_are_requests_per_target():
    assert default_autoscaling_policy(context(9.0, target_ongoing_requests=2)) == (4.5, {})
    assert default_autoscaling_policy(context(0.0)) == (0, {})


def test_default_policy_has_its_import_path():
    assert AutoscalingPolicy().load() is replica_queue_length_autoscaling_policy
    assert AutoscalingPolicy().is_default
