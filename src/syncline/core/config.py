"""Configuration of an engine, and the arguments of `init` that it is made from.

Covers which arguments exist, which are ignored, and older spellings.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from syncline import settings
from syncline.core import option_checks as check
from syncline.core import runtime_env as environments
from syncline.core.engine import Kwargs
from syncline.core.options import Keywords
from syncline.records import dataclass
from syncline.suggestions import did_you_mean

logger = logging.getLogger("syncline")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Engine settings, as `init` has checked them."""

    num_cpus: float | None = None
    """CPUs for tasks; None: all that this process may use."""
    num_gpus: float | None = None
    """GPUs for tasks; None: the visible ones. GPUs beyond those are only counted."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources by name."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of this node, for `label_selector`."""
    memory: int | None = None
    """Bytes of memory for tasks; None: the machine's memory minus the object store."""
    object_store_memory: int | None = None
    """Bytes of shared memory for objects before they spill to disk; None: a share of memory."""
    runtime_env: environments.Env = field(default_factory=dict)
    """The program's environment in normal form; the environment of each task extends it."""
    namespace: str = "default"
    """Default namespace of actor names; on a cluster, empty means one namespace per program."""
    logging_level: int = logging.INFO
    """Level of syncline's logger in workers."""
    log_to_driver: bool = True
    """True if the output of workers is printed on the program's terminal."""
    address: str | None = None
    """Address of the cluster, in the form that `init` takes; None: this machine."""
    wait_for_resources_s: float = 0.0
    """Seconds to wait until other programs of the user leave the CPUs and GPUs."""
    temp_dir: Path | None = None
    """Parent of the session directory; None: SYNCLINE_TMPDIR or the system's default."""


_USED = frozenset(
    {
        "_memory",
        "_temp_dir",
        "ignore_reinit_error",
        "job_config",
        "labels",
        "local_mode",
        "log_to_driver",
        "logging_config",
        "logging_level",
        "namespace",
        "num_cpus",
        "num_gpus",
        "object_store_memory",
        "resources",
        "runtime_env",
        "wait_for_resources_s",
    }
)

_OLDER = {
    "driver_object_store_memory": None,
    "memory": "_memory",
    "num_cpu": "num_cpus",
    "num_gpu": "num_gpus",
    "redis_address": "address",
    "redis_max_memory": None,
    "_redis_password": None,
    "redis_password": None,
    "temp_dir": "_temp_dir",
    "webui_host": None,
    "include_webui": None,
}
"""Older spellings and their replacements; None: removed without a replacement."""

_NUMBER = (int, float)
_IGNORED: Mapping[str, tuple[type, ...]] = {
    "_cluster_id": (str,),
    "_driver_object_store_memory": _NUMBER,
    "_enable_object_reconstruction": (bool,),
    "_metrics_export_port": (int,),
    "_node_ip_address": (str,),
    "_node_name": (str,),
    "_plasma_directory": (str, os.PathLike),
    "_redis_username": (str,),
    "_skip_env_hook": (bool,),
    "_system_config": (Mapping,),
    "_tracing_startup_hook": (str,),
    "allow_multiple": (bool,),
    "bind_address": (str,),
    "cgroup_path": (str,),
    "configure_logging": (bool,),
    "dashboard_agent_listen_port": (int,),
    "dashboard_host": (str,),
    "dashboard_port": (int,),
    "enable_resource_isolation": (bool,),
    "include_dashboard": (bool,),
    "logging_format": (str,),
    "object_spilling_directory": (str, os.PathLike),
    "proxy_server_url": (str,),
    "storage": (str, os.PathLike),
    "system_reserved_cpu": _NUMBER,
    "system_reserved_memory": _NUMBER,
}
"""Arguments without an effect on this machine, and the types of their values."""

_ADVICE = {
    "enable_resource_isolation": "limit the program with its container or with systemd",
    "include_dashboard": "run `syncline dashboard` to see the program",
    "object_spilling_directory": "objects spill below `_temp_dir`: set that",
    "storage": "set the storage path of runs: SYNCLINE_STORAGE_PATH or `RunConfig(storage_path=)`",
}
"""What to do instead, for arguments whose missing effect somebody may notice."""


class UnknownArgumentError(TypeError, RuntimeError):
    """`init` has no such argument. Ray raises RuntimeError."""


def known_arguments(arguments: Keywords) -> Kwargs:
    """Return the arguments that have an effect, in current spelling.

    Raises UnknownArgumentError for unknown names, TypeError for wrong types of ignored ones.
    """
    meant: Kwargs = {}
    for name, value in arguments.items():
        if name in _USED:
            meant[name] = value
        elif name in _OLDER:
            _take_older(name, value, meant)
        elif name in _IGNORED:
            _check_ignored(name, value)
        else:
            names = (*_USED, *_IGNORED, "address")
            public = ", ".join(sorted(n for n in (*_USED, "address") if n[0] != "_"))
            raise UnknownArgumentError(
                f"`init` has no argument {name!r}.{did_you_mean(name, names)} It has {public}."
            )
    return meant


def _check_ignored(name: str, value: object) -> None:
    types = _IGNORED[name]
    if value is not None and not isinstance(value, types):
        wanted = " or ".join(each.__name__ for each in types)
        raise TypeError(f"`{name}={value!r}` is a {type(value).__name__}: give a {wanted}")
    if value and name in _ADVICE:
        logger.warning("init: %s=%r has no effect here: %s", name, value, _ADVICE[name])
    else:
        logger.debug("init: %s=%r has no effect on this machine and is ignored", name, value)


def _take_older(name: str, value: object, meant: Kwargs) -> None:
    today = _OLDER[name]
    advice = (
        "has no effect any more: remove it"
        if today is None
        else f"is an older spelling of `{today}`: use `{today}`"
    )
    warnings.warn(f"`init({name}=...)` {advice}", DeprecationWarning, stacklevel=4)
    if today is not None:
        meant.setdefault(today, value)


def engine_config(arguments: Keywords, address: str | None = None) -> EngineConfig:
    """Build the configuration; TypeError and ValueError for invalid values.

    With the `address` of a cluster, `runtime_env` may install packages, and the default namespace
    is private to the program.
    """
    for name in ("num_cpus", "num_gpus", "object_store_memory", "_memory", "wait_for_resources_s"):
        check.amount(name, arguments.get(name))
    resources = arguments.get("resources") or {}
    check.resources(resources)
    labels = arguments.get("labels") or {}
    check.labels("labels", labels)
    check.text("namespace", arguments.get("namespace"))
    temp_dir = arguments.get("_temp_dir")
    wait_s = arguments.get("wait_for_resources_s")
    memory, object_store = arguments.get("_memory"), arguments.get("object_store_memory")
    return EngineConfig(
        num_cpus=arguments.get("num_cpus"),
        num_gpus=arguments.get("num_gpus"),
        resources=dict(resources),
        labels=dict(labels),
        memory=None if memory is None else int(memory),
        object_store_memory=None if object_store is None else int(object_store),
        runtime_env=_runtime_env(arguments, may_install=address is not None),
        namespace=arguments.get("namespace")
        or getattr(arguments.get("job_config"), "ray_namespace", None)
        or settings.namespace()
        or ("default" if address is None else ""),
        logging_level=_logging_level(arguments.get("logging_level")),
        log_to_driver=arguments.get("log_to_driver") in (None, True),
        address=address,
        wait_for_resources_s=settings.wait_for_resources_s() if wait_s is None else float(wait_s),
        temp_dir=None if temp_dir is None else Path(temp_dir).expanduser().absolute(),
    )


def _runtime_env(arguments: Keywords, *, may_install: bool) -> environments.Env:
    job_env = getattr(arguments.get("job_config"), "runtime_env", None)
    own = environments.normalize(arguments.get("runtime_env"), may_install=may_install)
    return environments.merge(
        environments.normalize(job_env, may_install=may_install), own, may_install=may_install
    )


def _logging_level(level: object) -> int:
    if level is None:
        return logging.INFO
    if isinstance(level, str):
        number = logging.getLevelName(level.upper())
        if isinstance(number, int):
            return number
    elif isinstance(level, int) and not isinstance(level, bool):
        return level
    raise ValueError(
        f"`logging_level={level!r}` is not a log level: "
        f"give one of logging's, such as logging.WARNING or 'warning'"
    )
