"""Finding the cluster and connecting to it, and what the program is told where that fails."""

from __future__ import annotations

import json
import logging
import os
import socket
from typing import Any

import ray
from ray._private import services
from ray.experimental import internal_kv

from syncline.core.cluster.engine import ClusterEngine
from syncline.core.config import EngineConfig

logger = logging.getLogger("syncline")

PROBE_S = 8.0
"""How long the cluster's head may take to answer."""

_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""What a gRPC client says first: the preface of HTTP/2 and an empty frame of settings."""
_FRAME_HEADER_BYTES = 9
_SETTINGS_FRAME = 4
_OF_A_NEW_CLUSTER = ("num_cpus", "num_gpus", "object_store_memory", "memory")


def start_engine(config: EngineConfig) -> ClusterEngine:
    """An engine on the cluster at `config.address`; "local" starts a cluster of this machine alone.

    ConnectionError, naming what was tried, where no cluster answers within 10 s; RuntimeError where its version of Ray or Python differs.
    """
    address = config.address or "auto"
    keywords = _connection(config)
    if address == "local":
        keywords.update(_new_cluster(config))
    else:
        address = _found(address)
        _warn_of_ignored(config)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # a task without GPUs sees none
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        ray.init(address=address, **keywords)
    except RuntimeError as error:
        if "ersion mismatch" not in str(error):
            raise
        raise RuntimeError(_mismatch(address, str(error))) from None
    except ConnectionError as error:
        raise ConnectionError(_unreachable(address, str(error))) from None
    return ClusterEngine(address=address, environment=config.runtime_env, may_grow=may_grow, end=ray.shutdown)


def worker_engine() -> ClusterEngine:
    """The engine of a worker of Ray's, which is connected already."""
    environment = dict(ray.get_runtime_context().runtime_env)
    return ClusterEngine(address="auto", environment=environment, may_grow=may_grow)


def may_grow() -> bool:
    """Whether an autoscaler adds nodes to this cluster. One that only watches calls every node a type of its own."""
    try:
        status = internal_kv._internal_kv_get(b"__autoscaling_status")
        report = json.loads(status)["autoscaler_report"] if status else {}
    except (ValueError, KeyError, TypeError):
        return False
    known = {**(report.get("active_nodes") or {}), **(report.get("idle_nodes") or {})}
    return any(not kind.startswith("node_") for kind in known) or bool(report.get("pending_launches"))


def _connection(config: EngineConfig) -> dict[str, Any]:
    keywords: dict[str, Any] = {"log_to_driver": config.log_to_driver, "logging_level": logging.ERROR}
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
    given = [name for name in _OF_A_NEW_CLUSTER if getattr(config, name) is not None] + (["resources"] if config.resources else [])
    if given:
        logger.warning("init: %s mean nothing on a cluster that runs already, whose nodes say what they have", ", ".join(given))


def _found(address: str) -> str:
    """The address to connect to, where something that speaks gRPC answers. ConnectionError, or ValueError for what is no address."""
    if address == "auto":
        try:
            address = services.canonicalize_bootstrap_address("auto") or "auto"
        except ConnectionError as error:
            raise ConnectionError(
                "`address='auto'`: no Ray runs on this machine (no process of it, nothing in its temporary directory, and RAY_ADDRESS is "
                "not set). Start one with `ray start --head`, give `address='host:port'`, or leave out `address` to run on this machine."
            ) from error
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator or not host or not port.isdecimal():
        raise ValueError(f"`address={address!r}` is no address: give 'auto', 'local', 'host:port' or 'ray://host:port'")
    try:
        _greet(host.strip("[]"), int(port))
    except OSError as error:
        raise ConnectionError(_unreachable(address, str(error))) from None
    return address


def _greet(host: str, port: int) -> None:
    """OSError where no server of gRPC answers: Ray itself would wait for one without end."""
    with socket.create_connection((host, port), timeout=PROBE_S) as connection:
        connection.settimeout(PROBE_S)
        connection.sendall(_GREETING)
        header = b""
        while len(header) < _FRAME_HEADER_BYTES:
            part = connection.recv(_FRAME_HEADER_BYTES - len(header))
            if not part:
                raise OSError("the server there closed the connection, so it is not the head of a Ray cluster")
            header += part
        if header[3] != _SETTINGS_FRAME:
            raise OSError("another kind of server answers there, not the head of a Ray cluster")


def _unreachable(address: str, reason: str) -> str:
    return (
        f"no cluster answers at {address!r} ({reason}). Check the address (the port of `ray start --head` is 6379 by default, that of "
        f"'ray://' 10001), that the cluster runs, and that no firewall is between. "
        f"If the cluster asks for a token, set RAY_AUTH_MODE=token here and have the cluster's token where Ray looks for it."
    )


def _mismatch(address: str, reason: str) -> str:
    return (
        f"the cluster at {address!r} and this program do not fit together, so they cannot exchange values: {reason.strip()} "
        f"Install the cluster's versions of Ray and Python here, or restart the cluster with these."
    )
