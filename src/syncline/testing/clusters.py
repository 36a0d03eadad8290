"""Ray clusters for tests: a head, and nodes that are added and killed; nothing is left behind.

Each cluster has its own directory and ports, so clusters on one machine do not interfere. A node
runs on a `Host`; `Host()` is this machine.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncline.testing.programs import kill_all, marked
from syncline.testing.waiting import eventually

MARK = "SYNCLINE_TEST_CLUSTER"
HAS_CLIENT = importlib.util.find_spec("grpc") is not None
"""True if clusters of this interpreter serve Ray Client."""
START_LIMIT_S = 120.0
QUIET_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    # gRPC's fork handlers occasionally kill a process that Ray Client's server starts.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}
NODE_DEATH_VARIABLES = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""Detect the death of a node after about two seconds instead of fifteen."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine, real or simulated."""

    address: str = "127.0.0.1"
    """IP address for other hosts."""
    enter: tuple[str, ...] = ()
    """Prefix of commands that run on the host."""

    def command(self, *arguments: str) -> list[str]:
        """Return a command that runs on this host."""
        return [*self.enter, *arguments]


THIS_HOST = Host()


class RayCluster:
    """A cluster, started by `start` or as a context manager and ended by `stop`.

    Its processes carry a mark in their environment. Raises RuntimeError, with Ray's output, if a
    command of Ray fails.
    """

    def __init__(
        self,
        *,
        num_cpus: int,
        num_gpus: int = 0,
        resources: Mapping[str, float] | None = None,
        labels: Mapping[str, str] | None = None,
        object_store_memory: int = 256 * 1024**2,
        host: Host = THIS_HOST,
        asks_for_token: bool = False,
        variables: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        """Configure the head; `object_store_memory` is in bytes and applies to every node.

        `variables` are set for every process of the cluster. `python` is an interpreter with Ray.
        """
        self._head = _node_flags(num_cpus, num_gpus, resources, labels)
        self._host = host
        self._python = python
        self._store_flag = f"--object-store-memory={object_store_memory}"
        # Contains Ray's sockets, whose paths are limited to 107 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
        self._names: list[str] = []
        self._port, self._client_port = _free_ports(2)
        self.variables = {**QUIET_VARIABLES, **NODE_DEATH_VARIABLES, **(variables or {})}
        if asks_for_token:
            token = self.directory / "token"
            token.touch(mode=0o600)
            token.write_text(secrets.token_hex(32))
            self.variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}

    def __enter__(self) -> RayCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """Address for `init`."""
        return f"{self._host.address}:{self._port}"

    @property
    def client_address(self) -> str:
        """Address for `init` through Ray Client; needs gRPC for Python (`HAS_CLIENT`)."""
        return f"ray://{self._host.address}:{self._client_port}"

    def start(self) -> None:
        """Start the head as the node "head"."""
        self._ray(
            "head",
            self._host,
            "--head",
            f"--port={self._port}",
            "--include-dashboard=false",
            f"--temp-dir={self.directory}",
            *self._head,
            *self._client_flags(),
        )

    def wait_for_client(self) -> None:
        """Wait for the server of Ray Client, which starts shortly after the head."""
        eventually(self._client_listens, what="Ray Client's server listens")

    def add_node(
        self,
        name: str,
        *,
        num_cpus: int,
        num_gpus: int = 0,
        resources: Mapping[str, float] | None = None,
        labels: Mapping[str, str] | None = None,
        host: Host = THIS_HOST,
    ) -> None:
        """Start a node called `name`."""
        self._ray(
            name,
            host,
            f"--address={self.address}",
            *_node_flags(num_cpus, num_gpus, resources, labels),
        )

    def kill_node(self, name: str) -> None:
        """Kill a node as a power failure would."""
        kill_all(marked(MARK, [f"{self.directory.name}:{name}"]))
        self._names.remove(name)

    def drain_node(self, node_id: str, *, seconds_left: int | None = None) -> None:
        """Announce the removal of a node, in `seconds_left` if given; an idle node ends now."""
        arguments = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=drained by a test"]
        if seconds_left is not None:
            arguments.append(f"--deadline-remaining-seconds={seconds_left}")
        self._run(
            self._host,
            "drain-node",
            f"--address={self.address}",
            f"--node-id={node_id}",
            *arguments,
        )

    def stop(self) -> None:
        """Kill every node and remove the cluster's directory."""
        kill_all(marked(MARK, [f"{self.directory.name}:{name}" for name in self._names]))
        self._names.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a program that uses this cluster."""
        return {**os.environ, **self.variables, "SYNCLINE_ADDRESS": self.address, **more}

    def _client_flags(self) -> Sequence[str]:
        # By default, Ray starts the server of Ray Client on a fixed port.
        return (
            (f"--ray-client-server-port={self._client_port}",)
            if HAS_CLIENT and self._python == sys.executable
            else ()
        )

    def _client_listens(self) -> bool:
        try:
            socket.create_connection((self._host.address, self._client_port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _ray(self, name: str, host: Host, *arguments: str) -> None:
        self._names.append(name)
        flags = [
            "--disable-usage-stats",
            f"--node-ip-address={host.address}",
            self._store_flag,
            *arguments,
        ]
        self._run(host, "start", *flags, mark=f"{self.directory.name}:{name}")

    def _run(self, host: Host, *arguments: str, mark: str = "") -> None:
        """Run a command of Ray; `mark` marks the processes that it starts."""
        done = subprocess.run(
            host.command(self._python, "-m", "ray.scripts.scripts", *arguments),
            env={**os.environ, **self.variables, MARK: mark},
            capture_output=True,
            text=True,
            timeout=START_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            self.stop()
            raise RuntimeError(f"ray {arguments[0]} failed:\n{done.stdout}\n{done.stderr}")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [server.getsockname()[1] for server in servers]


def _node_flags(
    num_cpus: int,
    num_gpus: int,
    resources: Mapping[str, float] | None,
    labels: Mapping[str, str] | None,
) -> Sequence[str]:
    flags = [
        f"--num-cpus={num_cpus}",
        f"--num-gpus={num_gpus}",
        f"--resources={json.dumps(dict(resources or {}))}",
    ]
    if labels:
        flags.append(f"--labels={','.join(f'{name}={value}' for name, value in labels.items())}")
    return flags
