"""A Ray cluster of this machine for one test module: a head, nodes that come and go, and nothing left afterwards.

It has a port and a token of its own, so it meets no other cluster of this machine.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

import psutil

from syncline.testing.waiting import GENEROUS_S

MARK = "SYNCLINE_TEST_CLUSTER"


class RayCluster:
    """Started by `start`, ended by `stop`. Every process of it carries a mark in its environment."""

    def __init__(self, head_cpus: int) -> None:
        self._head_cpus = head_cpus
        # Ray's sockets lie below; their paths may have 107 characters.
        self.directory = Path(tempfile.mkdtemp(prefix="sl-", dir="/tmp"))
        self._names: list[str] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        token = self.directory / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        self.variables = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node that is killed is known to be dead after two seconds instead of fifteen.
            "RAY_health_check_initial_delay_ms": "500",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "1000",
            "RAY_health_check_failure_threshold": "3",
        }

    @property
    def address(self) -> str:
        """For `init`."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the head."""
        self._ray(
            "head",
            "--head",
            f"--port={self._port}",
            "--node-ip-address=127.0.0.1",
            f"--num-cpus={self._head_cpus}",
            "--include-dashboard=false",
            f"--temp-dir={self.directory}/ray",
        )

    def add_node(self, name: str, cpus: int, resources: str = "{}") -> None:
        """Start a node, all of whose processes are known as `name`."""
        self._ray(name, f"--address={self.address}", "--node-ip-address=127.0.0.1", f"--num-cpus={cpus}", f"--resources={resources}")

    def kill_node(self, name: str) -> None:
        """Take a node away, as a power failure would."""
        _kill(_marked([f"{self.directory.name}:{name}"]))

    def stop(self) -> None:
        """End every node."""
        _kill(_marked([f"{self.directory.name}:{name}" for name in self._names]))
        shutil.rmtree(self.directory, ignore_errors=True)

    def environment(self, **more: str) -> Mapping[str, str]:
        """For a program that is to use this cluster."""
        return {**os.environ, **self.variables, "SYNCLINE_ADDRESS": self.address, **more}

    def _ray(self, name: str, *arguments: str) -> None:
        self._names.append(name)
        environment = {**os.environ, **self.variables, MARK: f"{self.directory.name}:{name}"}
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            self.stop()
            raise RuntimeError(f"ray start failed:\n{done.stdout}\n{done.stderr}")


def _marked(marks: Collection[str]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) in marks:
                found.append(process)
        except psutil.Error:
            continue
    return found


def _kill(processes: Collection[psutil.Process]) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=GENEROUS_S)
