"""The default policy of autoscaling, which custom policies may call.

A policy is a function `policy(context) -> (replicas, state)`. The number may be fractional; the
controller applies delays, factors and bounds of the `AutoscalingConfig`. `state` is a dict that is
passed to the next call as `context.policy_state`.
"""

from __future__ import annotations

from typing import Any

from syncline.serve.autoscaling_config import AutoscalingConfig, AutoscalingContext

__all__ = ["default_autoscaling_policy", "replica_queue_length_autoscaling_policy"]


def replica_queue_length_autoscaling_policy(
    ctx: AutoscalingContext,
) -> tuple[float, dict[str, Any]]:
    """Return the running and queued requests divided by `target_ongoing_requests`."""
    config = ctx.config or AutoscalingConfig()
    return ctx.total_num_requests / config.target_ongoing_requests, {}


default_autoscaling_policy = replica_queue_length_autoscaling_policy
