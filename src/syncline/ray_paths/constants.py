"""`ray._private.ray_constants`: numbers and names that programs write down, and their settings."""

from __future__ import annotations

from syncline import settings

DEFAULT_PORT = 6379
"""Port of a cluster's head."""
DEFAULT_DASHBOARD_IP = "127.0.0.1"
DEFAULT_DASHBOARD_PORT = 8265
"""Port of the dashboard of a Ray cluster."""
RAY_ADDRESS_ENVIRONMENT_VARIABLE = "SYNCLINE_ADDRESS"
RAY_NAMESPACE_ENVIRONMENT_VARIABLE = "SYNCLINE_NAMESPACE"
HEAD_NODE_RESOURCE_NAME = "node:__internal_head__"
"""Resource that only the node of the head has."""
RESOURCE_CONSTRAINT_PREFIX = "accelerator_type:"
"""Beginning of the resources of models of accelerators."""
PLACEMENT_GROUP_BUNDLE_RESOURCE_NAME = "bundle"
CUDA_VISIBLE_DEVICES_ENV_VAR = "CUDA_VISIBLE_DEVICES"


def env_integer(key: str, default: int) -> int:
    """Return an environment variable as an integer."""
    value = settings.environment(key)
    return int(value) if value is not None and value.isdecimal() else default


def env_float(key: str, default: float) -> float:
    """Return an environment variable as a number."""
    value = settings.environment(key)
    try:
        return default if value is None else float(value)
    except ValueError:
        return default


def env_bool(key: str, default: bool) -> bool:
    """Return an environment variable as a truth value: "true" and "1" are True."""
    value = settings.environment(key)
    return default if value is None else value.lower() in ("true", "1")


def env_set_by_user(key: str) -> bool:
    """Return True if an environment variable is set."""
    return settings.environment(key) is not None
