"""Ray's job API over HTTP, as the head node's dashboard serves it. Nothing of Ray is needed on this
side.

The output of a job that is followed comes over a WebSocket, each piece once. Where the cluster asks
for a token, the user's is shown; to servers that do not ask it is not.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from syncline.cli import cluster_token
from syncline.cli.cluster_token import TokenError
from syncline.cli.output import CommandError
from syncline.cli.packages import Package
from syncline.cli.websocket import HandshakeRefused, WebSocket
from syncline.core.cluster.token_sources import TOKEN_SOURCES

DEFAULT_PORT = 8265
CONNECT_S = 10.0
ANSWER_S = 120.0
SUCCEEDED = "SUCCEEDED"
ENDED = frozenset({SUCCEEDED, "FAILED", "STOPPED"})
PAUSE_S = 0.3
"""After so long without output it is asked whether the job has ended; also between two attempts to
connect again.
"""
ASKS_FOR_TOKEN, REFUSES_TOKEN = 401, 403


@dataclass(frozen=True, kw_only=True)
class Job:
    """One submitted program; `--json` gives these names."""

    id: str
    """By which it is followed and stopped."""
    status: str
    """PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED."""
    command: str
    """What runs."""
    started: float | None
    """Seconds since the epoch."""
    ended: float | None
    """Seconds since the epoch."""
    message: str | None
    """What the cluster says of it."""


class ServerError(CommandError):
    """The job API has answered, and refuses."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class JobApi:
    """The job API at one address. All methods raise CommandError where it does not answer, or
    refuses.

    Args:
        url: `http://host:port`.
        is_found_here: Whether nobody named it, so that it belongs to this machine.
        sleep: Waits.
    """

    def __init__(
        self, url: str, *, is_found_here: bool = False, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url = url.rstrip("/")
        self._is_found_here = is_found_here
        self._sleep = sleep
        self._token: Mapping[str, str] = {}

    def version(self) -> str:
        """The cluster's version of Ray."""
        return str(
            json.loads(self._request("GET", "/api/version", limit_s=CONNECT_S))["ray_version"]
        )

    def submit(
        self,
        command: str,
        runtime_env: Mapping[str, Any],
        submission_id: str | None,
        resources: Mapping[str, float],
    ) -> str:
        """Start a program; its id."""
        body = {
            "entrypoint": command,
            "runtime_env": dict(runtime_env),
            "submission_id": submission_id,
            **resources,
        }
        return str(
            json.loads(self._request("POST", "/api/jobs/", json.dumps(body).encode()))[
                "submission_id"
            ]
        )

    def upload(self, package: Package) -> None:
        """Bring a package to the cluster, unless it is there."""
        path = f"/api/packages/gcs/{package.name}"
        try:
            self._request("GET", path)
        except ServerError as error:
            if error.status != 404:
                raise
            self._request("PUT", path, package.data)

    def jobs(self) -> list[Job]:
        """Every submitted program that the cluster remembers, the latest first."""
        entries = [
            entry
            for entry in json.loads(self._request("GET", "/api/jobs/"))
            if entry.get("submission_id")
        ]
        return sorted(map(_job, entries), key=lambda job: job.started or 0.0, reverse=True)

    def job(self, job_id: str) -> Job:
        """One of them."""
        return _job(json.loads(self._request("GET", f"/api/jobs/{urllib.parse.quote(job_id)}")))

    def output(self, job_id: str) -> str:
        """All that it has printed."""
        return str(
            json.loads(self._request("GET", f"/api/jobs/{urllib.parse.quote(job_id)}/logs"))["logs"]
            or ""
        )

    def stop(self, job_id: str) -> bool:
        """Ask it to end; whether it was running."""
        return bool(
            json.loads(self._request("POST", f"/api/jobs/{urllib.parse.quote(job_id)}/stop"))[
                "stopped"
            ]
        )

    def follow(self, job_id: str) -> Iterator[str]:
        """What it prints, in pieces as they come, until it has ended. A connection that breaks is
        made again.
        """
        seen = 0
        while self.job(job_id).status not in ENDED:
            known = seen
            for piece in self._tail(job_id):
                new = piece[known:]
                known = max(0, known - len(piece))
                seen += len(new)
                if new:
                    yield new
        rest = self.output(job_id)[seen:]
        if rest:
            yield rest

    def _tail(self, job_id: str) -> Iterator[str]:
        """What it prints, from the beginning, until it has ended or the connection has."""
        try:
            with self._connect(f"/api/jobs/{urllib.parse.quote(job_id)}/logs/tail") as connection:
                while True:
                    piece = connection.receive(PAUSE_S)
                    if piece is not None:
                        yield piece
                    elif self.job(job_id).status in ENDED:
                        return
        except (EOFError, ConnectionError):
            self._sleep(PAUSE_S)

    def _connect(self, path: str) -> WebSocket:
        try:
            return WebSocket(self.url + path, self._token, ANSWER_S)
        except HandshakeRefused as error:
            raise ServerError(
                f"{self.url} opens no WebSocket for the job's output ({error}): if a proxy is between, let it pass WebSockets on, or "
                "read the output so far with `syncline jobs logs`",
                error.status,
            ) from None
        except OSError as error:
            raise CommandError(f"{self.url} does not answer GET {path}: {error}") from None

    def _request(
        self, method: str, path: str, body: bytes | None = None, limit_s: float = ANSWER_S
    ) -> bytes:
        """The answer's body. The token is shown from the first time on that the server asks for
        it.
        """
        try:
            return self._answer(method, path, body, limit_s)
        except ServerError as error:
            if error.status != ASKS_FOR_TOKEN or self._token:
                raise
        self._token = cluster_token.headers(self.url, is_found_here=self._is_found_here)
        return self._answer(method, path, body, limit_s)

    def _answer(self, method: str, path: str, body: bytes | None, limit_s: float) -> bytes:
        kind = "application/octet-stream" if method == "PUT" else "application/json"
        request = urllib.request.Request(
            self.url + path,
            data=body,
            method=method,
            headers={"Content-Type": kind} if body else {},
        )
        for name, value in self._token.items():
            request.add_unredirected_header(name, value)  # no other server is to see it
        try:
            with urllib.request.urlopen(request, timeout=limit_s) as answer:
                data: bytes = answer.read()
                return data
        except urllib.error.HTTPError as error:
            if error.code == REFUSES_TOKEN and self._token:
                raise TokenError(
                    f"{self.url} refuses the token that is here: have its own {TOKEN_SOURCES}"
                ) from None
            said = error.read().decode(errors="replace").strip().splitlines()
            raise ServerError(
                f"{self.url} refuses {method} {path}: {said[-1] if said else error.reason}",
                error.code,
            ) from None
        except http.client.HTTPException:
            raise CommandError(
                f"what answers at {self.url} does not speak HTTP, so it is no dashboard"
            ) from None
        except (OSError, ValueError) as error:
            raise CommandError(f"{self.url} does not answer {method} {path}: {error}") from None


def _job(fields: Mapping[str, Any]) -> Job:
    started, ended = fields.get("start_time"), fields.get("end_time")
    return Job(
        id=str(fields["submission_id"]),
        status=str(fields["status"]),
        command=str(fields.get("entrypoint", "")),
        started=started / 1000 if started else None,
        ended=ended / 1000 if ended else None,
        message=fields.get("message"),
    )


def candidates(address: str | None) -> list[str]:
    """Where the job API may be for an address as people give it: the dashboard's, or the cluster's
    own with the usual port.

    ValueError for what is no address.
    """
    if address is None or address == "auto":
        return [f"http://127.0.0.1:{DEFAULT_PORT}"]
    if address.startswith(("http://", "https://")):
        return [address]
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator:
        return [f"http://{address.removeprefix('ray://')}:{DEFAULT_PORT}"]
    if not host or not port.isdecimal():
        raise ValueError(
            f"{address!r} is no address: give http://HOST:{DEFAULT_PORT}, HOST or HOST:PORT"
        )
    given = [] if address.startswith("ray://") else [f"http://{host}:{port}"]
    return list(dict.fromkeys([*given, f"http://{host}:{DEFAULT_PORT}"]))


def find(address: str | None) -> JobApi:
    """The job API for an address. CommandError, naming what was tried, where none answers."""
    try:
        urls = candidates(address)
    except ValueError as error:
        raise CommandError(str(error)) from None
    failures = []
    for url in urls:
        api = JobApi(url, is_found_here=address in (None, "auto"))
        try:
            api.version()
        except TokenError:
            raise
        except (CommandError, KeyError, ValueError) as error:
            failures.append(str(error))
        else:
            return api
    raise CommandError(
        "no cluster takes jobs there:\n"
        + "\n".join(f"  {failure}" for failure in failures)
        + f"\nGive the address of the head node's dashboard (--address=http://HOST:{DEFAULT_PORT}). It takes jobs where "
        '`pip install "syncline[cluster]"` (or "ray[default]") was done on the head node before it was started; Ray alone has no job API. '
        "From elsewhere it is reached if the head was started with --dashboard-host=0.0.0.0."
    )
