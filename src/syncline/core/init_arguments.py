"""The arguments of `init`: which there are, which are only accepted, older spellings, and the
`EngineConfig` that they make.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline import settings
from syncline.core import option_checks as check
from syncline.core import runtime_env as environments
from syncline.core.config import EngineConfig
from syncline.core.errors import did_you_mean

logger = logging.getLogger("syncline")

_MEANT = frozenset(
    {
        "_memory",
        "_temp_dir",
        "ignore_reinit_error",
        "job_config",
        "labels",
        "local_mode",
        "log_to_driver",
        "logging_level",
        "namespace",
        "num_cpus",
        "num_gpus",
        "object_store_memory",
        "resources",
        "runtime_env",
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
"""Older spellings, and what they are called now; None: nothing any more."""

_IGNORED = frozenset(
    {
        "bind_address",
        "cgroup_path",
        "configure_logging",
        "dashboard_agent_listen_port",
        "dashboard_host",
        "dashboard_port",
        "enable_resource_isolation",
        "include_dashboard",
        "logging_config",
        "logging_format",
        "object_spilling_directory",
        "storage",
        "system_reserved_cpu",
        "system_reserved_memory",
    }
)


def known(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that mean something, in today's spelling. TypeError for names that nobody
    knows.
    """
    meant: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in _MEANT:
            meant[name] = value
        elif name in _OLDER:
            _take_older(name, value, meant)
        elif name in _IGNORED or name.startswith("_"):
            logger.debug("init: %s=%r means nothing on this machine and is ignored", name, value)
        else:
            names = (*_MEANT, "address")
            raise TypeError(
                f"`init` has no argument {name!r}.{did_you_mean(name, names)} It has {', '.join(sorted(n for n in names if n[0] != '_'))}."
            )
    return meant


def _take_older(name: str, value: Any, meant: dict[str, Any]) -> None:
    today = _OLDER[name]
    if today is None:
        warnings.warn(
            f"`init({name}=...)` means nothing any more: remove it",
            DeprecationWarning,
            stacklevel=4,
        )
        return
    warnings.warn(
        f"`init({name}=...)` is an older spelling of `{today}`: use that",
        DeprecationWarning,
        stacklevel=4,
    )
    meant.setdefault(today, value)


def engine_config(arguments: Mapping[str, Any], address: str | None = None) -> EngineConfig:
    """The configuration that the arguments make. TypeError and ValueError for impossible values.

    `address` is a cluster's, where packages may be installed and names of actors are the program's
    own unless it says otherwise.
    """
    for name in ("num_cpus", "num_gpus", "object_store_memory", "_memory"):
        check.amount(name, arguments.get(name))
    resources = arguments.get("resources") or {}
    check.resources(resources)
    labels = arguments.get("labels") or {}
    check.labels("labels", labels)
    check.text("namespace", arguments.get("namespace") or None)
    temp_dir = arguments.get("_temp_dir")
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
        or settings.namespace()
        or ("default" if address is None else ""),
        logging_level=_logging_level(arguments.get("logging_level")),
        log_to_driver=bool(arguments.get("log_to_driver", True)),
        address=address,
        temp_dir=None if temp_dir is None else Path(temp_dir).expanduser().absolute(),
    )


def _runtime_env(arguments: Mapping[str, Any], *, may_install: bool) -> dict[str, Any]:
    of_job = getattr(arguments.get("job_config"), "runtime_env", None)
    own = environments.normalize(arguments.get("runtime_env"), may_install=may_install)
    return environments.merge(
        environments.normalize(of_job, may_install=may_install), own, may_install=may_install
    )


def _logging_level(level: Any) -> int:
    if level is None:
        return logging.INFO
    if isinstance(level, str):
        number = logging.getLevelName(level.upper())
        if isinstance(number, int):
            return number
    elif isinstance(level, int) and not isinstance(level, bool):
        return level
    raise ValueError(
        f"`logging_level={level!r}` is no level: give one of logging's, such as logging.WARNING or 'warning'"
    )
