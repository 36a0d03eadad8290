"""Small functions of Ray's private modules that programs call: `ray._private.utils` and others."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import psutil

from syncline import settings
from syncline.core import cgroups
from syncline.core import engine as engines
from syncline.core.lifecycle import ensure_engine
from syncline.core.refs import ObjectRef

F = TypeVar("F", bound=Callable[..., Any])


# -- ray._private.services


def get_node_ip_address(address: str | None = None) -> str:
    """Return the address of this node; 127.0.0.1 before `init`."""
    engine = engines.current
    return "127.0.0.1" if engine is None else engine.node_address()


def get_node_instance_id() -> str:
    """Return the cloud's id of this node from RAY_CLOUD_INSTANCE_ID, or empty text."""
    return settings.environment("RAY_CLOUD_INSTANCE_ID") or ""


# -- ray._private.utils, ray._common


def get_num_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    return cgroups.cpu_count()


def get_system_memory() -> int:
    """Return the bytes of memory of this machine or container."""
    return cgroups.memory_bytes()


def get_used_memory() -> int:
    """Return the bytes of memory in use on this machine."""
    return int(psutil.virtual_memory().total - psutil.virtual_memory().available)


def estimate_available_memory() -> int:
    """Return the bytes of memory of this machine or container that are free."""
    return get_system_memory() - get_used_memory()


def get_ray_temp_dir() -> str:
    """Return the directory that contains the directories of sessions."""
    return str(settings.temporary_directory())


get_default_ray_temp_dir = get_user_temp_dir = get_ray_temp_dir


def find_free_port(family: socket.AddressFamily = socket.AF_INET) -> int:
    """Return a TCP port that no process uses now."""
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def build_address(host: str, port: int | str) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str) -> tuple[str, str] | None:
    """Return (host, port) of "host:port"; None without a port."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        return None
    return host.removeprefix("[").removesuffix("]"), port


def split_address(address: str) -> tuple[str, str]:
    """Return (scheme, rest) of "scheme://rest"; ValueError without a scheme."""
    scheme, found, rest = address.partition("://")
    if not found:
        raise ValueError(f"the address {address!r} has no scheme, such as 'ray://'")
    return scheme, rest


def binary_to_hex(identifier: bytes) -> str:
    """Return the hexadecimal digits of an id."""
    return identifier.hex()


def hex_to_binary(hex_identifier: str) -> bytes:
    """Return the bytes of an id."""
    return bytes.fromhex(hex_identifier)


def import_attr(full_path: str, *, reload_module: bool = False) -> Any:
    """Return the object at "package.module.name" or "package.module:name"."""
    module_name, _, name = full_path.replace(":", ".").rpartition(".")
    if not module_name:
        raise ValueError(f"the path {full_path!r} has no module: write 'package.module.name'")
    module = importlib.import_module(module_name)
    if reload_module:
        module = importlib.reload(module)
    return getattr(module, name)


load_class = import_attr


def get_or_create_event_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop, or the current one of this thread, or a new one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        policy = asyncio.get_event_loop_policy()
    try:
        return policy.get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        policy.set_event_loop(loop)
        return loop


def try_to_create_directory(directory_path: str) -> None:
    """Create a directory and those above it."""
    os.makedirs(os.path.expanduser(directory_path), exist_ok=True)


def get_directory_size_bytes(path: str | os.PathLike[str] = ".") -> int:
    """Return the sum of the sizes of the files below a directory."""
    return sum(
        os.lstat(os.path.join(folder, name)).st_size
        for folder, _, names in os.walk(path)
        for name in names
    )


# -- ray.internal, ray._private.internal_api


def free(object_refs: Any, local_only: bool = False) -> None:
    """Free the values of references now, before their last reference is gone.

    Getting a freed value raises ObjectFreedError. `local_only` has no effect. Raises TypeError for
    anything but references.
    """
    refs = [object_refs] if isinstance(object_refs, ObjectRef) else list(object_refs)
    for ref in refs:
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"`free` got a {type(ref).__name__} ({ref!r}): pass references")
    if refs:
        ensure_engine().free(refs)


# -- ray._private.client_mode_hook, ray._private.auto_init_hook


is_client_mode_enabled = False


def client_mode_hook(function: F) -> F:
    """Return the function: calls need no translation for Ray Client."""
    return function


def auto_init_ray() -> None:
    """Start syncline if it does not run."""
    ensure_engine()


def wrap_auto_init(function: F) -> F:
    """Return the function: functions of syncline start it on first use."""
    return function


# -- ray._private.usage.usage_lib


def record_library_usage(library_usage: str) -> None:
    """Do nothing: syncline reports nothing about its use."""


def record_extra_usage_tag(key: object, value: str, gcs_client: object = None) -> None:
    """Do nothing: syncline reports nothing about its use."""


def usage_stats_enabled() -> bool:
    """Return False: syncline reports nothing about its use."""
    return False
