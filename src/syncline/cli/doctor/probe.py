"""`NodeProbe`: collects findings on one node. Methods return plain values and raise on failure."""

from __future__ import annotations

import errno
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import resource
import secrets
import socket
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

import psutil

from syncline import settings
from syncline.cli import find_runs
from syncline.cli.doctor.findings import NodeFacts, Space, TorchFacts
from syncline.core import gpus
from syncline.core.host import interface_of
from syncline.runs.run_storage import StorageDirectory

SHARED_MEMORY = "/dev/shm"
_LIBRARIES = ("syncline", "ray", "torch")
_PROBE_PREFIX = ".tmp-doctor-"


class NodeProbe:
    """Collects findings on one node: an actor there, or an object in this process."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self._token = secrets.token_bytes(8)
        self._made: Sequence[StorageDirectory] = ()

    def facts(self) -> NodeFacts:
        """Collect all facts about this node. Imports torch, which takes seconds."""
        torch, torch_error = torch_facts()
        shared_memory = space(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else None
        return NodeFacts(
            python=platform.python_version(),
            versions={name: version(name) for name in _LIBRARIES},
            torch=torch,
            torch_error=torch_error,
            # All GPUs of the machine, including those that this process may not use.
            gpus=[gpu.model or "unknown" for gpu in gpus.discover(None)],
            driver=driver_version(),
            shared_memory=shared_memory,
            temporary=space(str(_temporary_directory())),
            open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )

    def clock(self) -> float:
        """Return the seconds since the epoch."""
        return time.time()

    def listen(self, address: str) -> tuple[int, bytes]:
        """Send a greeting to every client of `address`; return the port and the greeting.

        Raises:
            OSError: The address does not belong to this node.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=128)
        threading.Thread(target=self._greet, name="doctor-listener", daemon=True).start()
        port: int = self._listener.getsockname()[1]
        return port, self._token

    def _greet(self) -> None:
        assert self._listener is not None
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            with connection:
                try:
                    connection.sendall(self._token)
                except OSError:
                    continue

    def reach(
        self, targets: Mapping[str, tuple[str, int, bytes]], limit_s: float
    ) -> dict[str, str | None]:
        """Connect to all targets (address, port, greeting) concurrently.

        Returns:
            The reason of the failure by target; None if the connection succeeded.
        """
        with ThreadPoolExecutor(max_workers=min(64, max(1, len(targets)))) as pool:
            return dict(
                zip(
                    targets,
                    pool.map(lambda target: _connect(target, limit_s), targets.values()),
                    strict=True,
                )
            )

    def write(self, storage_path: str, text: str) -> str:
        """Write a file below the storage path, and create the directory; return the file's name."""
        place = find_runs.storage_directory(storage_path)
        self._made = place.missing_directories()
        name = f"{_PROBE_PREFIX}{secrets.token_hex(8)}"
        try:
            place.write(name, text.encode())
        except OSError:
            self._remove_made()
            raise
        return name

    def read(self, storage_path: str, name: str) -> str:
        """Return the content of that file. Raises FileNotFoundError if it does not exist."""
        data = find_runs.storage_directory(storage_path).read(name)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "the file is not there", name)
        return data.decode()

    def remove(self, storage_path: str, name: str) -> None:
        """Remove that file, and the directories created for it that are still empty."""
        find_runs.storage_directory(storage_path).remove(name)
        self._remove_made()

    def _remove_made(self) -> None:
        for directory in self._made:
            directory.remove_if_empty()

    def open_rendezvous(self, address: str, world_size: int, limit_s: float) -> int:
        """Open the rendezvous of an all-reduce on rank 0; return the port."""
        return int(_torch_probe().process_group.open_rendezvous(address, world_size, limit_s))

    def all_reduce(
        self, rank: int, world_size: int, master: tuple[str, int], address: str, limit_s: float
    ) -> float:
        """Take part in an all-reduce with Gloo; return its seconds. Raises RuntimeError."""
        return float(
            _torch_probe().all_reduce(rank, world_size, master, interface_of(address), limit_s)
        )


def _connect(target: tuple[str, int, bytes], limit_s: float) -> str | None:
    address, port, greeting = target
    try:
        with socket.create_connection((address, port), timeout=limit_s) as connection:
            connection.settimeout(limit_s)
            got = b""
            while len(got) < len(greeting):
                part = connection.recv(len(greeting) - len(got))
                if not part:
                    break
                got += part
    except TimeoutError:
        return f"no answer from {address}:{port} within {limit_s:g} s"
    except OSError as error:
        return f"{address}:{port}: {error.strerror or error}"
    return None if got == greeting else f"another service answers at {address}:{port}"


def version(library: str) -> str | None:
    """Return the installed version of a library; None if it is not installed."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def space(path: str) -> Space:
    """Return the space on the filesystem of a path."""
    usage = psutil.disk_usage(path)
    return Space(path=path, total_bytes=usage.total, free_bytes=usage.free)


def torch_facts() -> tuple[TorchFacts | None, str | None]:
    """Return (capabilities of torch, reason why it cannot be imported)."""
    if importlib.util.find_spec("torch") is None:
        return None, None
    try:
        facts: TorchFacts = _torch_probe().facts()
    except Exception as error:  # a broken installation may raise anything
        return None, f"{type(error).__name__}: {error}"
    return facts, None


def driver_version() -> str | None:
    """Return the version of the GPU driver; None without one."""
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # no driver: the library's own error; no library: ImportError
        return None
    try:
        found = nvml.nvmlSystemGetDriverVersion()
        return found.decode() if isinstance(found, bytes) else str(found)
    finally:
        nvml.nvmlShutdown()


def _torch_probe() -> ModuleType:
    # Imported on demand: torch is optional, and its import takes seconds.
    from syncline.cli.doctor import torch_probe

    return torch_probe


def _temporary_directory() -> str:
    path = settings.temporary_directory()
    return str(path) if path.is_dir() else tempfile.gettempdir()
