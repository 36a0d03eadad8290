"""Start a server in its own session, wait for its first response, measure its CPU time, stop it.

All of its processes have the same id in their environment, or descend from one that has, so that
daemons are found as well. Processes that end within a measurement are not counted in it.
"""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from bench.programs.serve.apps.options import HOST
from bench.programs.serve.load import Body

SERVER_ID = "BENCH_SERVER"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.002
_APPS = "bench.programs.serve.apps"


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that has answered its first request."""

    pid: int
    port: int
    server_id: str
    first_response_s: float
    """Seconds from the start of its process to its first answer with status 200."""

    def url(self, path: str = "/") -> str:
        """Return the URL of a path."""
        return f"http://{HOST}:{self.port}{path}"

    def processes(self) -> list[psutil.Process]:
        """Return the live processes."""
        return processes_of(self.server_id)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the live processes have used, in user and system mode."""
        total = 0.0
        for process in self.processes():
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total


def command(contender: str, app: str, port: int) -> list[str]:
    """Return the command line of a contender's server.

    Raises:
        ValueError: The contender is unknown.
    """
    if contender in ("syncline", "ray", "haproxy"):
        library = "syncline" if contender == "syncline" else "ray"
        return [sys.executable, "-m", f"{_APPS}.deployments", library, app, str(port)]
    if contender in ("uvicorn", "litserve"):
        module = {"uvicorn": "asgi", "litserve": "lit"}[contender]
        return [sys.executable, "-m", f"{_APPS}.{module}", app, str(port)]
    if contender == "churn":
        return [sys.executable, "-m", f"{_APPS}.churn", str(port)]
    if contender == "bentoml":
        service = f"{_APPS}.bento:{app.capitalize()}"
        return [sys.executable, "-m", "bentoml", "serve", service, "--port", str(port)]
    raise ValueError(f"unknown contender {contender!r}")


def environment(contender: str, server_id: str) -> dict[str, str]:
    """Return the environment of a contender's server."""
    own = {"RAY_SERVE_ENABLE_HA_PROXY": "1"} if contender == "haproxy" else {}
    return {**os.environ, "BENTOML_DO_NOT_TRACK": "True", **own, SERVER_ID: server_id}


def processes_of(server_id: str) -> list[psutil.Process]:
    """Return the live processes of one server and their descendants."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.pid not in found and process.environ().get(SERVER_ID) == server_id:
                found[process.pid] = process
                found |= {child.pid: child for child in process.children(recursive=True)}
        except psutil.Error:
            continue  # the process has ended, or belongs to another user
    return list(found.values())


def free_port() -> int:
    """Return a TCP port that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def running(contender: str, app: str, path: str, body: Body) -> Iterator[Server]:
    """Start a server, and wait until a request with this body to this path is answered; stop all
    of its processes on exit.

    Raises:
        RuntimeError: The server exits, or does not answer in time.
    """
    port, server_id = free_port(), uuid.uuid4().hex
    begin = time.monotonic()
    process = subprocess.Popen(
        command(contender, app, port),
        env=environment(contender, server_id),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        first = _first_response(process, port, path, body)
        yield Server(
            pid=process.pid, port=port, server_id=server_id, first_response_s=first - begin
        )
    finally:
        _stop(process, server_id)


def _first_response(process: subprocess.Popen[bytes], port: int, path: str, body: Body) -> float:
    """Return the monotonic time of the first answer with status 200."""
    deadline = time.monotonic() + START_TIMEOUT_S
    last = "no connection"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} before it answered")
        connection = http.client.HTTPConnection(HOST, port, timeout=START_TIMEOUT_S)
        try:
            connection.request("POST", path, body.content, {"Content-Type": body.content_type})
            response = connection.getresponse()
            content = response.read()
            if response.status == 200:
                return time.monotonic()
            last = f"{response.status} {content[:200]!r}"
        except (OSError, http.client.HTTPException) as error:
            last = repr(error)
        finally:
            connection.close()
        time.sleep(POLL_S)
    raise RuntimeError(f"no answer within {START_TIMEOUT_S:g} s; the last was: {last}")


def _stop(process: subprocess.Popen[bytes], server_id: str) -> None:
    """Ask the server to stop, and kill what is left of it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
    kill(processes_of(server_id))
    process.wait()


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill processes, and wait until they have ended."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=STOP_TIMEOUT_S)
