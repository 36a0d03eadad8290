"""Load with unique request ids, a file of effects, and views of serve's processes, for fault tests.

Every client records the answer to each of its requests. Every handler appends the ids that it
begins and ends to a file, which outlives the handler's process. `check_effects` compares the two.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from syncline import serve
from syncline.core.api import actors
from syncline.serve.client import running_client

SMALL = {"num_cpus": 0.1}
WAIT_S = 30.0
ANSWERED = "200"
DIED = frozenset({"502", "ReplicaUnavailableError"})
"""Outcomes of requests whose replica died while it handled them."""


class Effect(NamedTuple):
    """A line of the file: a handler began or ended a request."""

    event: str
    id: str
    pid: int


@dataclass(frozen=True)
class Effects:
    """The file that handlers append to."""

    path: str

    def note(self, event: str, id: str) -> None:
        """Append a line with one system call."""
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(file, f"{event} {id} {os.getpid()}\n".encode())
        finally:
            os.close(file)

    def read(self) -> list[Effect]:
        """Return the lines."""
        path = Path(self.path)
        lines = path.read_text().splitlines() if path.exists() else []
        return [Effect(event, id, int(pid)) for event, id, pid in map(str.split, lines)]

    def ids(self, event: str) -> list[str]:
        """Return the ids of an event, in order."""
        return [each.id for each in self.read() if each.event == event]


@serve.deployment(ray_actor_options=SMALL, max_ongoing_requests=4)
class Worker:
    """Notes each request at its begin and its end."""

    def __init__(
        self, effects: Effects, work_s: float = 0.02, version: int = 1, gate: str = ""
    ) -> None:
        """Return once the file `gate` exists."""
        while gate and not os.path.exists(gate):
            time.sleep(0.01)
        self.effects = effects
        self.work_s = work_s
        self.version = version
        self.config: Any = None

    def reconfigure(self, config: Any) -> None:
        self.config = config

    async def __call__(self, request: Any) -> dict[str, Any]:
        return await self.run(request.headers["x-request-id"])

    async def run(self, id: str) -> dict[str, Any]:
        self.effects.note("begin", id)
        if "poison" in id:
            os.kill(os.getpid(), 9)
        try:
            await asyncio.sleep(self.work_s)
        except asyncio.CancelledError:
            self.effects.note("cancelled", id)
            raise
        self.effects.note("end", id)
        return {"id": id, "pid": os.getpid(), "version": self.version, "config": self.config}

    async def hold(self, id: str, gate: str) -> str:
        """Wait until the file `gate` exists."""
        self.effects.note("hold", id)
        while not os.path.exists(gate):
            await asyncio.sleep(0.01)
        return id


@dataclass(frozen=True)
class Answer:
    """The end of one request, as its client saw it."""

    outcome: str
    """A status code, the class of an error, or `refused` or `lost` for a broken connection."""
    text: str = ""
    retry_after: str | None = None


class Load:
    """Threads that send requests until the context ends, over HTTP and through a handle.

    Requests over HTTP are POST, which is not repeated after it began.
    """

    def __init__(
        self, port: int | None = None, clients: int = 4, *, handle: Any = None, path: str = "/"
    ) -> None:
        self.answers: dict[str, Answer] = {}
        self.sent: list[str] = []
        self._count = itertools.count()
        self._stopped = threading.Event()
        over_http = clients if port is not None else 0
        self._threads = [
            threading.Thread(target=self._http, args=(port, path), daemon=True)
            for _ in range(over_http)
        ]
        if handle is not None:
            self._threads += [
                threading.Thread(target=self._handle, args=(handle,), daemon=True)
                for _ in range(clients)
            ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(2 * WAIT_S)
        unanswered = set(self.sent) - self.answers.keys()
        assert not unanswered, f"no answer within {2 * WAIT_S} s: {sorted(unanswered)}"

    def outcomes(self) -> Counter[str]:
        """Return the number of answers of each kind."""
        return Counter(each.outcome for each in list(self.answers.values()))

    def having(self, *outcomes: str) -> dict[str, Answer]:
        """Return the answers with one of these outcomes."""
        answers = dict(self.answers)
        return {id: each for id, each in answers.items() if each.outcome in outcomes}

    def wait_for(self, more: int, outcome: str = ANSWERED) -> None:
        """Wait for more answers with this outcome."""
        goal = self.outcomes()[outcome] + more
        wait_until(lambda: self.outcomes()[outcome] >= goal)

    def _new_id(self, prefix: str) -> str:
        id = f"{prefix}{next(self._count)}"
        self.sent.append(id)
        return id

    def _http(self, port: int, path: str) -> None:
        client = None
        while not self._stopped.is_set():
            id = self._new_id("http")
            try:
                client = client or http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
                self.answers[id] = _post(client, path, id)
            except (OSError, http.client.HTTPException) as error:
                is_refused = isinstance(error, ConnectionRefusedError)
                self.answers[id] = Answer("refused" if is_refused else "lost", repr(error))
                client = None

    def _handle(self, handle: Any) -> None:
        while not self._stopped.is_set():
            id = self._new_id("handle")
            try:
                handle.run.remote(id).result(timeout_s=WAIT_S)
            except Exception as error:
                self.answers[id] = Answer(type(error).__name__, str(error))
            else:
                self.answers[id] = Answer(ANSWERED)


def _post(client: http.client.HTTPConnection, path: str, id: str) -> Answer:
    client.request("POST", path, body=b"x", headers={"X-Request-ID": id})
    response = client.getresponse()
    text = response.read().decode()
    return Answer(str(response.status), text, response.getheader("Retry-After"))


def post(port: int, id: str, path: str = "/") -> Answer:
    """Send one request."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        return _post(client, path, id)
    finally:
        client.close()


def check_all_slots_are_free(handle: Any, effects: Effects, slots: int) -> None:
    """Check that so many requests can run at once, as after a start.

    Every request waits for all others, which would last for ever if a slot were taken.
    """
    round = f"{effects.path}.{time.monotonic_ns()}"
    ids = {f"{round}-{number}" for number in range(slots)}
    responses = [handle.hold.remote(id, round) for id in ids]
    wait_until(lambda: ids <= set(effects.ids("hold")))
    Path(round).touch()
    assert {each.result(timeout_s=WAIT_S) for each in responses} == ids


def check_effects(effects: Effects, answers: dict[str, Answer]) -> None:
    """Check that no request was lost or executed twice.

    A request with a successful answer ran once, from begin to end. One that began and did not end
    has no successful answer.
    """
    begun, ended = Counter(effects.ids("begin")), Counter(effects.ids("end"))
    doubled = [id for id, count in begun.items() if count > 1]
    assert not doubled, f"executed more than once: {doubled}"
    answered = {id for id, each in answers.items() if each.outcome == ANSWERED}
    assert answered <= ended.keys(), f"answered, not executed: {answered - ended.keys()}"
    wrong = {id: answers[id] for id in begun.keys() - ended.keys() if id in answered}
    assert not wrong, f"answered although the handler did not end: {wrong}"


def wait_until(condition: Any, limit_s: float = WAIT_S) -> None:
    """Wait for a condition."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.005)


def replicas(app: str = "default") -> list[Any]:
    """Return the replicas of an application that take calls.

    Those that have not connected to a restarted controller yet are among them.
    """
    return [
        replica
        for deployment in running_client().details().deployments
        if deployment.id.app == app
        for replica in deployment.replicas
        if replica.state in ("RUNNING", "RECOVERING")
    ]


def pids(app: str = "default") -> set[int]:
    """Return the processes of the replicas that take calls."""
    return {replica.pid for replica in replicas(app)}


def events() -> list[str]:
    """Return the last events of the controller."""
    return list(running_client().details().events)


def controller_pid() -> int | None:
    """Return the process of the controller."""
    found = [each.pid for each in actors().actors if each.name == "SERVE_CONTROLLER"]
    return found[0] if found else None


def proxy_pid() -> int | None:
    """Return the process of the proxy; None while there is none."""
    found = [each.pid for each in actors().actors if each.class_name == "ServeProxy"]
    return found[0] if found else None
