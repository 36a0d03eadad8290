"""Ray's job API over HTTP, as the head node's dashboard serves it. Nothing of Ray is needed on this side.

The output of a job comes whole with every request, so following it asks seldom where an answer takes long.
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

from syncline.cli.output import CommandError
from syncline.cli.packages import Package

DEFAULT_PORT = 8265
CONNECT_S = 10.0
ANSWER_S = 120.0
SUCCEEDED = "SUCCEEDED"
ENDED = frozenset({SUCCEEDED, "FAILED", "STOPPED"})
PAUSE_S = 0.3
"""Between two questions for a job's output; longer where an answer takes long."""


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
    """The job API at one address. All methods raise CommandError where it does not answer, or refuses.

    Args:
        url: `http://host:port`.
        clock: Seconds that pass; for how long answers take.
        sleep: Waits.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self.url = url.rstrip("/")
        self._clock = clock
        self._sleep = sleep

    def version(self) -> str:
        """The cluster's version of Ray."""
        return str(json.loads(self._request("GET", "/api/version", limit_s=CONNECT_S))["ray_version"])

    def submit(self, command: str, runtime_env: Mapping[str, Any], submission_id: str | None, resources: Mapping[str, float]) -> str:
        """Start a program; its id."""
        body = {"entrypoint": command, "runtime_env": dict(runtime_env), "submission_id": submission_id, **resources}
        return str(json.loads(self._request("POST", "/api/jobs/", json.dumps(body).encode()))["submission_id"])

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
        entries = [entry for entry in json.loads(self._request("GET", "/api/jobs/")) if entry.get("submission_id")]
        return sorted(map(_job, entries), key=lambda job: job.started or 0.0, reverse=True)

    def job(self, job_id: str) -> Job:
        """One of them."""
        return _job(json.loads(self._request("GET", f"/api/jobs/{urllib.parse.quote(job_id)}")))

    def output(self, job_id: str) -> str:
        """All that it has printed."""
        return str(json.loads(self._request("GET", f"/api/jobs/{urllib.parse.quote(job_id)}/logs"))["logs"] or "")

    def stop(self, job_id: str) -> bool:
        """Ask it to end; whether it was running."""
        return bool(json.loads(self._request("POST", f"/api/jobs/{urllib.parse.quote(job_id)}/stop"))["stopped"])

    def follow(self, job_id: str) -> Iterator[str]:
        """What it prints, in pieces as they come, until it has ended."""
        seen = 0
        while True:
            ended = self.job(job_id).status in ENDED
            asked = self._clock()
            output = self.output(job_id)
            if len(output) > seen:
                yield output[seen:]
                seen = len(output)
            if ended:
                return
            self._sleep(max(PAUSE_S, 5 * (self._clock() - asked)))

    def _request(self, method: str, path: str, body: bytes | None = None, limit_s: float = ANSWER_S) -> bytes:
        kind = "application/octet-stream" if method == "PUT" else "application/json"
        request = urllib.request.Request(self.url + path, data=body, method=method, headers={"Content-Type": kind} if body else {})
        try:
            with urllib.request.urlopen(request, timeout=limit_s) as answer:
                data: bytes = answer.read()
                return data
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace").strip().splitlines()
            raise ServerError(f"{self.url} refuses {method} {path}: {said[-1] if said else error.reason}", error.code) from None
        except http.client.HTTPException:
            raise CommandError(f"what answers at {self.url} does not speak HTTP, so it is no dashboard") from None
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
    """Where the job API may be for an address as people give it: the dashboard's, or the cluster's own with the usual port.

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
        raise ValueError(f"{address!r} is no address: give http://HOST:{DEFAULT_PORT}, HOST or HOST:PORT")
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
        api = JobApi(url)
        try:
            api.version()
        except (CommandError, KeyError) as error:
            failures.append(str(error))
        else:
            return api
    raise CommandError(
        "no cluster takes jobs there:\n"
        + "\n".join(f"  {failure}" for failure in failures)
        + f"\nGive the address of the head node's dashboard (--address=http://HOST:{DEFAULT_PORT}). It takes jobs where `pip install "
        '"ray[default]"` is on the head node; from elsewhere it is reached if the head was started with --dashboard-host=0.0.0.0.'
    )
