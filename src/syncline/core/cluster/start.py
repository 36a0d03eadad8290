"""Connecting to the cluster, or starting one: what Ray is told, and the engine that comes of it."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

import ray
from ray.experimental import internal_kv
from ray.job_config import JobConfig

from syncline.core.cluster import client, head, pickles, tokens, versions
from syncline.core.cluster.engine import ClusterEngine
from syncline.core.cluster.watch import Guard, watch
from syncline.core.config import EngineConfig

logger = logging.getLogger("syncline")

_OF_A_NEW_CLUSTER = ("num_cpus", "num_gpus", "object_store_memory", "memory")


def start_engine(config: EngineConfig) -> ClusterEngine:
    """An engine on the cluster at `config.address`; "local" starts a cluster of this machine alone.

    Raises:
        ValueError: The address is none. ConnectionError: No cluster answers there within 10 s, or
        it refuses this program; the text says what was tried. RuntimeError: It runs another version
        of Ray or Python.
    """
    address = config.address or "auto"
    logging.getLogger("ray").setLevel(logging.ERROR)
    os.environ.setdefault(
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1"
    )  # a task without GPUs sees none
    os.environ.setdefault(
        "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL", "minor"
    )  # as `versions.check_cluster`
    if ray.is_initialized():
        raise RuntimeError(
            "this process is connected to a cluster by Ray itself, so syncline cannot connect it: call `ray.shutdown()` before, and leave "
            "`ray.init()` out."
        )
    pickles.join()
    if address == "local":
        ray.init(address="local", **_connection(config), **_new_cluster(config))
        return ClusterEngine(
            address="local",
            environment=config.runtime_env,
            may_grow=may_grow,
            guard=Guard(),
            end=ray.shutdown,
        )
    _warn_of_ignored(config)
    found = head.find(address, config.temp_dir)
    tokens.refresh(is_found_here=found.is_found_here)
    head.check(found)
    if found.is_client:
        client.connect(found, config)
        return client.ClientEngine(
            address=found.address,
            environment=config.runtime_env,
            may_grow=may_grow,
            guard=Guard(),
            end=client.disconnect,
        )
    ray.init(address=found.endpoint, **_connection(config))
    guard = watch(found, ray.get_runtime_context().get_node_id(), _tell)
    return ClusterEngine(
        address=found.endpoint,
        environment=config.runtime_env,
        may_grow=may_grow,
        guard=guard,
        end=ray.shutdown,
    )


def worker_engine() -> ClusterEngine:
    """The engine of a worker of Ray's, which is connected already. RuntimeError where the program
    has another version of syncline.
    """
    program = ray._private.worker.global_worker.core_worker.get_job_config()
    versions.check_program(program.metadata, ray.util.get_node_ip_address())
    pickles.join()
    environment = dict(ray.get_runtime_context().runtime_env)
    return ClusterEngine(address="auto", environment=environment, may_grow=may_grow, guard=Guard())


def may_grow() -> bool:
    """Whether an autoscaler adds nodes to this cluster. One that only watches calls every node a
    type of its own.
    """
    try:
        status = internal_kv._internal_kv_get(b"__autoscaling_status")
        report = json.loads(status)["autoscaler_report"] if status else {}
    except (ValueError, KeyError, TypeError):
        return False
    known = {**(report.get("active_nodes") or {}), **(report.get("idle_nodes") or {})}
    return any(not kind.startswith("node_") for kind in known) or bool(
        report.get("pending_launches")
    )


def _tell(message: str) -> None:
    print(f"syncline: {message}", file=sys.stderr, flush=True)


def _connection(config: EngineConfig) -> dict[str, Any]:
    keywords: dict[str, Any] = {
        "log_to_driver": config.log_to_driver,
        "logging_level": logging.ERROR,
        "job_config": JobConfig(metadata=versions.of_program()),
    }
    if config.namespace:
        keywords["namespace"] = config.namespace
    if config.runtime_env:
        keywords["runtime_env"] = dict(config.runtime_env)
    return keywords


def _new_cluster(config: EngineConfig) -> dict[str, Any]:
    keywords: dict[str, Any] = {"include_dashboard": False}
    for name, value in (
        ("resources", dict(config.resources) or None),
        ("labels", dict(config.labels) or None),
        ("num_cpus", config.num_cpus),
        ("num_gpus", config.num_gpus),
        ("object_store_memory", config.object_store_memory),
        ("_memory", config.memory),
        ("_temp_dir", None if config.temp_dir is None else str(config.temp_dir)),
    ):
        if value is not None:
            keywords[name] = value
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return keywords


def _warn_of_ignored(config: EngineConfig) -> None:
    given = [name for name in _OF_A_NEW_CLUSTER if getattr(config, name) is not None] + (
        ["resources"] if config.resources else []
    )
    if given:
        logger.warning(
            "init: %s mean nothing on a cluster that runs already, whose nodes say what they have",
            ", ".join(given),
        )
