"""Start of the cluster engine: connect to a cluster, start one, or enter one in a Ray worker."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable

import ray
from ray.experimental import internal_kv
from ray.job_config import JobConfig

from syncline.core import engine as engines
from syncline.core.cluster import compatibility, head, ray_client, ray_options
from syncline.core.cluster.engine import ClusterEngine
from syncline.core.cluster.health import Connection, monitor
from syncline.core.config import EngineConfig
from syncline.core.definitions import AnyFunction
from syncline.core.engine import Kwargs
from syncline.core.program_state import enter_in_main

logger = logging.getLogger("syncline")

_NEW_CLUSTER_ONLY = ("num_cpus", "num_gpus", "object_store_memory", "memory")


def start_engine(config: EngineConfig) -> ClusterEngine:
    """Start an engine on the cluster at `config.address`.

    Raises:
        ValueError: The address is malformed.
        ConnectionError: No cluster answers within 10 s, or it refuses this program; the text lists
            the attempts.
        RuntimeError: The cluster runs another version of Ray or Python.
    """
    address = config.address or "auto"
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Hide GPUs from tasks without GPUs.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")
    # The same rule as in `compatibility.check_cluster`.
    os.environ.setdefault("RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL", "minor")
    if ray.is_initialized():
        raise RuntimeError(
            "Ray has already connected this process to a cluster, so syncline cannot: call "
            "`ray.shutdown()` first, and remove `ray.init()`."
        )
    compatibility.share_class_tables()
    _warn_of_ignored(config)
    found = head.find(address, config.temp_dir)
    head.refresh_token(is_found_here=found.is_found_here)
    head.check(found)
    if found.is_client:
        ray_client.connect(found, config)
        return _engine(
            found.address, config, Connection(), ray_client.disconnect, ray_client.ClientEngine
        )
    ray.init(address=found.endpoint, **_connection_keywords(config))
    connection = monitor(found, ray.get_runtime_context().get_node_id(), _notify)
    return _engine(found.endpoint, config, connection, ray.shutdown)


def _engine(
    address: str,
    config: EngineConfig,
    connection: Connection,
    disconnect: Callable[[], None],
    cls: type[ClusterEngine] = ClusterEngine,
) -> ClusterEngine:
    return cls(
        address=address,
        environment=config.runtime_env,
        may_grow=may_grow,
        connection=connection,
        enter=enter_worker,
        disconnect=disconnect,
    )


def enter_worker(code: AnyFunction | type) -> None:
    """Prepare a Ray worker for a function or an actor class: set its engine first."""
    if engines.current is None:
        engines.set_engine(worker_engine())
    enter_in_main(code)


def worker_engine() -> ClusterEngine:
    """Return the engine of a Ray worker, which Ray has already connected.

    Raises RuntimeError if the program has another version of syncline.
    """
    program = ray._private.worker.global_worker.core_worker.get_job_config()
    compatibility.check_program(program.metadata, ray.util.get_node_ip_address())
    compatibility.share_class_tables()
    compatibility.take_over_program(program.metadata)
    return ClusterEngine(
        address="auto",
        environment=dict(ray.get_runtime_context().runtime_env),
        may_grow=may_grow,
        connection=Connection(),
        enter=enter_worker,
    )


def may_grow() -> bool:
    """Return True if an autoscaler adds nodes to this cluster.

    An autoscaler that only monitors reports each node as a separate type, named `node_…`.
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


def _notify(message: str) -> None:
    print(f"syncline: {message}", file=sys.stderr, flush=True)


def _connection_keywords(config: EngineConfig) -> Kwargs:
    job_config = JobConfig(metadata=compatibility.job_metadata())
    return {**ray_options.connection_options(config), "job_config": job_config}


def _warn_of_ignored(config: EngineConfig) -> None:
    given = [name for name in _NEW_CLUSTER_ONLY if getattr(config, name) is not None] + (
        ["resources"] if config.resources else []
    )
    if given:
        logger.warning(
            "init: %s have no effect on an existing cluster, whose nodes define their resources",
            ", ".join(given),
        )
