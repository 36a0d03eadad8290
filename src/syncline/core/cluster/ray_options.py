"""Translation of syncline's options to the keywords of Ray's `options`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from ray._private.runtime_env.py_modules import upload_py_modules_if_needed
from ray._private.runtime_env.working_dir import upload_working_dir_if_needed
from ray._raylet import PlacementGroupID
from ray.util import scheduling_strategies as rays
from ray.util.placement_group import PlacementGroup as RayGroup

from syncline.core.cluster.handles import RayObject
from syncline.core.config import EngineConfig
from syncline.core.engine import Kwargs
from syncline.core.options import (
    ActorOptions,
    MethodOptions,
    NumReturns,
    RetryExceptions,
    TaskOptions,
)
from syncline.core.placement import (
    LabelCondition,
    NodeAffinitySchedulingStrategy,
    NodeLabelSchedulingStrategy,
    PlacementGroupSchedulingStrategy,
    SchedulingStrategy,
)
from syncline.core.runtime_env import Env

GROUP_ID_BYTES = PlacementGroupID.size()
UNLIMITED_CONCURRENCY = 1_000_000
"""`max_concurrency` of an actor that enforces its limits itself."""


def connection_options(config: EngineConfig) -> Kwargs:
    """Return the keywords that `ray.init` and Ray Client share."""
    return {
        "namespace": config.namespace or None,
        "runtime_env": dict(config.runtime_env) or None,
        "log_to_driver": config.log_to_driver,
        "logging_level": logging.ERROR,
    }


def task_options(options: TaskOptions, name: str, runtime_env: Env | None) -> Kwargs:
    """Return the keywords of a remote function's `options`."""
    keywords: Kwargs = {
        "name": options.name or name,
        "num_returns": _count(options.num_returns),
        "max_retries": options.max_retries,
        "retry_exceptions": _retries(options.retry_exceptions),
        **_demand(options, runtime_env),
    }
    if options.num_cpus is None:
        keywords["num_cpus"] = 1
    if options.num_returns == "streaming" and options.generator_backpressure is not None:
        keywords["_generator_backpressure_num_objects"] = options.generator_backpressure
    return keywords


def actor_options(options: ActorOptions, runtime_env: Env | None, *, is_async: bool) -> Kwargs:
    """Return the keywords of an actor class's `options`."""
    keywords: Kwargs = {
        "max_restarts": options.max_restarts,
        "max_task_retries": options.max_task_retries,
        "max_pending_calls": options.max_pending_calls,
        **_demand(options, runtime_env),
    }
    if options.num_cpus is None and not needs_cpu_to_start(options):
        keywords["num_cpus"] = 0
    if is_async and options.concurrency_groups:
        keywords["max_concurrency"] = UNLIMITED_CONCURRENCY
    elif options.max_concurrency is not None:
        keywords["max_concurrency"] = options.max_concurrency
    for name in ("name", "namespace", "lifetime"):
        value = getattr(options, name)
        if value is not None:
            keywords[name] = value
    if options.allow_out_of_order_execution is not None:
        keywords["allow_out_of_order_execution"] = options.allow_out_of_order_execution
    if options.get_if_exists:
        keywords["get_if_exists"] = True
    return keywords


def needs_cpu_to_start(options: ActorOptions) -> bool:
    """Return True if Ray needs a free CPU to start the actor, which it does not hold afterwards.

    An actor with explicit resources needs only those.
    """
    named = (options.num_cpus, options.num_gpus, options.accelerator_type, options.placement_group)
    return all(one is None for one in named) and not options.resources


def call_options(options: MethodOptions, name: str, *, ray_has_groups: bool) -> Kwargs:
    """Return the keywords of one call of a method."""
    keywords: Kwargs = {
        "name": options.name or name,
        "num_returns": _count(options.num_returns),
        "retry_exceptions": _retries(options.retry_exceptions),
    }
    if options.concurrency_group is not None and ray_has_groups:
        keywords["concurrency_group"] = options.concurrency_group
    if options.max_task_retries is not None:
        keywords["max_task_retries"] = options.max_task_retries
    if options.num_returns == "streaming" and options.generator_backpressure is not None:
        keywords["_generator_backpressure_num_objects"] = options.generator_backpressure
    return keywords


def ray_group(group_id: int, bundles: list[dict[str, float]] | None = None) -> RayGroup:
    """Return Ray's placement group for our id."""
    return RayGroup(PlacementGroupID(int(group_id).to_bytes(GROUP_ID_BYTES, "big")), bundles)


def group_number(group: RayGroup) -> int:
    """Return our id of Ray's placement group."""
    return int.from_bytes(group.id.binary(), "big")


def uploaded_environment(env: Env, scratch: Path) -> Kwargs:
    """Upload local files of a runtime environment to the cluster, where every node fetches them."""
    ready = dict(env)
    for field, upload in (
        ("working_dir", upload_working_dir_if_needed),
        ("py_modules", upload_py_modules_if_needed),
    ):
        if field in ready:
            ready = upload(ready, include_gitignore=True, scratch_dir=os.fspath(scratch))
    return ready


def _demand(options: TaskOptions | ActorOptions, runtime_env: Env | None) -> Kwargs:
    keywords: Kwargs = {"scheduling_strategy": _strategy(options.scheduling_strategy)}
    for name in ("num_cpus", "num_gpus", "memory", "accelerator_type"):
        value = getattr(options, name)
        if value is not None:
            keywords[name] = value
    if options.resources:
        keywords["resources"] = dict(options.resources)
    if options.label_selector:
        keywords["label_selector"] = dict(options.label_selector)
    if options.fallback_strategy:
        keywords["fallback_strategy"] = [dict(each) for each in options.fallback_strategy]
    if runtime_env:
        keywords["runtime_env"] = dict(runtime_env)
    return keywords


def _count(num_returns: NumReturns) -> int | str:
    return 1 if num_returns in (None, "dynamic") else num_returns


def _retries(retry: RetryExceptions) -> bool | list[type[BaseException]]:
    return list(retry) if isinstance(retry, tuple) else retry


def _strategy(strategy: SchedulingStrategy) -> RayObject:
    if isinstance(strategy, str):
        # An explicit "DEFAULT" would keep children out of the group that captures them.
        return None if strategy == "DEFAULT" else strategy
    if isinstance(strategy, PlacementGroupSchedulingStrategy):
        group = strategy.placement_group
        if group.is_empty:
            return "DEFAULT"
        return rays.PlacementGroupSchedulingStrategy(
            ray_group(group.id, group.bundle_specs),
            strategy.placement_group_bundle_index,
            strategy.placement_group_capture_child_tasks,
        )
    if isinstance(strategy, NodeAffinitySchedulingStrategy):
        return rays.NodeAffinitySchedulingStrategy(
            node_id=str(strategy.node_id),
            soft=strategy.soft,
            _spill_on_unavailable=strategy._spill_on_unavailable,
            _fail_on_unavailable=strategy._fail_on_unavailable,
        )
    assert isinstance(strategy, NodeLabelSchedulingStrategy)
    return rays.NodeLabelSchedulingStrategy(_labels(strategy.hard), soft=_labels(strategy.soft))


def _labels(conditions: Mapping[str, LabelCondition]) -> Kwargs:
    """Return the conditions as instances of Ray's classes, which have the same names."""
    return {
        label: getattr(rays, type(condition).__name__)(*getattr(condition, "values", ()))
        for label, condition in conditions.items()
    }
