"""Ray clusters for tests: a head, nodes that come and go, and nothing left afterwards.

A cluster lies in a directory of its own and listens on ports of its own, so it meets no other
cluster of this machine. Each node may be told where to run: `Host()` is this machine,
`syncline.testing.hosts` makes others of it. `SharedCluster` serves conformance suites.
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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from syncline.testing.waiting import eventually

MARK = "SYNCLINE_TEST_CLUSTER"
HAS_CLIENT = importlib.util.find_spec("grpc") is not None
"""Whether a cluster of this interpreter serves Ray Client."""
START_LIMIT_S = 120.0
QUIET_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "GRPC_ENABLE_FORK_SUPPORT": "0",  # whose handlers now and then kill a process that Ray Client's server starts
}
NODE_DEATH_VARIABLES = {
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""With these a node that is killed is known to be dead after about two seconds instead of
fifteen.
"""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine, as far as the others can tell."""

    address: str = "127.0.0.1"
    """The IP address that other hosts reach it by."""
    enter: tuple[str, ...] = ()
    """What comes before a command that is to run there."""

    def command(self, *arguments: str) -> list[str]:
        """`arguments` as a command that runs on this host."""
        return [*self.enter, *arguments]


THIS_HOST = Host()


class RayCluster:
    """Started by `start`, or as a context manager; ended by `stop`. Every process of it carries a
    mark in its environment.

    RuntimeError, with Ray's output, where a node does not start, or does not take what it is told.
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
        """What the head has (`object_store_memory` in bytes, also for every other node), variables
        for every process of the cluster, and the interpreter, which has Ray.
        """
        self._head = _node_flags(num_cpus, num_gpus, resources, labels)
        self._host = host
        self._python = python
        self._store_flag = f"--object-store-memory={object_store_memory}"
        # Ray's sockets lie below; their paths may have 107 characters.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def address(self) -> str:
        """For `init`."""
        return f"{self._host.address}:{self._port}"

    @property
    def client_address(self) -> str:
        """For `init` through Ray Client, which runs where gRPC for Python is installed
        (`HAS_CLIENT`).
        """
        return f"ray://{self._host.address}:{self._client_port}"

    def start(self) -> None:
        """Start the head, known as "head"."""
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
        """Wait for the server of Ray Client, which is up a moment after the head."""
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
        """Start a node, all of whose processes are known as `name`."""
        self._ray(
            name,
            host,
            f"--address={self.address}",
            *_node_flags(num_cpus, num_gpus, resources, labels),
        )

    def kill_node(self, name: str) -> None:
        """Take a node away, as a power failure would."""
        kill_all(_marked([f"{self.directory.name}:{name}"]))
        self._names.remove(name)

    def drain_node(self, node_id: str, *, seconds_left: int | None = None) -> None:
        """Announce that a node is taken away, in so many seconds where they are given; one on which
        nothing runs ends at once.
        """
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
        """End every node, and remove the cluster's directory."""
        kill_all(_marked([f"{self.directory.name}:{name}" for name in self._names]))
        self._names.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self, **more: str) -> dict[str, str]:
        """For a program that is to use this cluster."""
        return {**os.environ, **self.variables, "SYNCLINE_ADDRESS": self.address, **more}

    def _client_flags(self) -> Sequence[str]:
        # Where it can, Ray starts the server of Ray Client unasked, and always on the same port.
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
        """Run a command of Ray's there; `mark`: of the processes that it leaves."""
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


class SharedCluster:
    """One cluster at a time, kept while suite after suite asks for the same machine; `options` is
    for `conformance.tests_for_engine`.
    """

    _OF_THE_MACHINE = ("num_cpus", "num_gpus", "resources")

    def __init__(self, *, through_client: bool = False) -> None:
        """`through_client`: whether programs connect to it with Ray Client."""
        self._through_client = through_client
        self._machine: dict[str, Any] = {}
        self._cluster: RayCluster | None = None

    def options(self, suite_options: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of `init` for a suite, on a cluster that has what the suite asks for."""
        machine = {
            name: suite_options[name] for name in self._OF_THE_MACHINE if name in suite_options
        }
        if self._cluster is None or machine != self._machine:
            self.stop()
            self._machine, self._cluster = machine, RayCluster(**machine)
            self._cluster.start()
        own = {name: value for name, value in suite_options.items() if name not in machine}
        return {**own, "address": self._address(self._cluster)}

    def stop(self) -> None:
        """End the cluster, if there is one."""
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None

    def _address(self, cluster: RayCluster) -> str:
        if not self._through_client:
            return cluster.address
        cluster.wait_for_client()
        return cluster.client_address


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as until_all_are_found:
        return [
            until_all_are_found.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[
                1
            ]
            for _ in range(count)
        ]


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
    return [
        *flags,
        *(
            [f"--labels={','.join(f'{name}={value}' for name, value in labels.items())}"]
            if labels
            else []
        ),
    ]


def _marked(marks: Collection[str]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) in marks:
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill_all(processes: Collection[psutil.Process]) -> None:
    """Kill processes, and wait until none of them runs; whoever is their parent then may take his
    time to hear of it.
    """
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    eventually(lambda: not any(map(_runs, processes)), what="killed processes have ended")


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
