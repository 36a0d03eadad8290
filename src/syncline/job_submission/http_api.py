"""Client of Ray's job API over HTTP, as the head node's dashboard serves it; needs no Ray.

The output of a followed job comes over a WebSocket, each piece once; that needs websocket-client.
The client sends the user's token to servers that require one, and to no others.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from syncline import optional
from syncline.core.cluster.token_sources import TOKEN_SOURCES
from syncline.job_submission import cluster_token
from syncline.job_submission.details import Job, JobDetails
from syncline.job_submission.errors import (
    JobError,
    JobServerError,
    JobServerUnreachableError,
    TokenError,
)
from syncline.job_submission.packages import Package

DEFAULT_PORT = 8265
CONNECT_S = 10.0
ANSWER_S = 120.0
SUCCEEDED = "SUCCEEDED"
ENDED = frozenset({SUCCEEDED, "FAILED", "STOPPED"})
PAUSE_S = 0.3
"""Seconds without output after which the client checks whether the job has ended, and between two
connection attempts.
"""
TOKEN_REQUIRED, TOKEN_REFUSED = 401, 403


class JobApi:
    """The job API at one address. Methods raise JobError if it does not answer, or refuses.

    Args:
        url: `http://host:port`.
        is_found_here: True if the address was not given, so that the server is on this machine.
        headers: Headers of every request.
        verify: False to accept any certificate, or the path of a certificate of an authority.
        sleep: Function that waits.
    """

    def __init__(
        self,
        url: str,
        *,
        is_found_here: bool = False,
        headers: Mapping[str, str] | None = None,
        verify: bool | str = True,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self._is_found_here = is_found_here
        self._headers = dict(headers or {})
        self._tls = _tls_context(verify) if self.url.startswith("https://") else None
        self._sleep = sleep
        self._token: Mapping[str, str] = {}

    def version(self) -> str:
        """Return the cluster's version of Ray."""
        answer = self._request("GET", "/api/version", limit_s=CONNECT_S)
        return str(json.loads(answer)["ray_version"])

    def submit(
        self,
        command: str,
        runtime_env: Mapping[str, Any],
        submission_id: str | None,
        requests: Mapping[str, Any],
    ) -> str:
        """Start a program; return its id. `requests` are further fields, such as its resources."""
        body = {
            "entrypoint": command,
            "runtime_env": dict(runtime_env),
            "submission_id": submission_id,
            **requests,
        }
        answer = self._request("POST", "/api/jobs/", json.dumps(body).encode())
        return str(json.loads(answer)["submission_id"])

    def upload(self, package: Package) -> None:
        """Upload a package unless the cluster has it."""
        path = f"/api/packages/gcs/{package.name}"
        try:
            self._request("GET", path)
        except JobServerError as error:
            if error.status != 404:
                raise
            self._request("PUT", path, package.data)

    def all_details(self) -> list[JobDetails]:
        """Return all programs known to the cluster, including those not submitted as jobs."""
        answer = json.loads(self._request("GET", "/api/jobs/"))
        return [JobDetails.from_fields(entry) for entry in answer]

    def details(self, job_id: str) -> JobDetails:
        """Return the cluster's information about a job."""
        return JobDetails.from_fields(json.loads(self._request("GET", _path(job_id))))

    def jobs(self) -> list[Job]:
        """Return every submitted program that the cluster remembers, latest first."""
        jobs = [Job.of(entry) for entry in self.all_details() if entry.submission_id]
        return sorted(jobs, key=lambda job: job.started or 0.0, reverse=True)

    def job(self, job_id: str) -> Job:
        """Return one job."""
        return Job.of(self.details(job_id))

    def delete(self, job_id: str) -> bool:
        """Discard a job that has ended; return True if the cluster knew it."""
        return bool(json.loads(self._request("DELETE", _path(job_id)))["deleted"])

    def output(self, job_id: str) -> str:
        """Return the complete output of a job."""
        return str(json.loads(self._request("GET", f"{_path(job_id)}/logs"))["logs"] or "")

    def stop(self, job_id: str) -> bool:
        """Tell a job to stop; return True if it was running."""
        return bool(json.loads(self._request("POST", f"{_path(job_id)}/stop"))["stopped"])

    def follow(self, job_id: str) -> Iterator[str]:
        """Yield the output in pieces as they come, until the job has ended; reconnect if needed."""
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
        """Yield the output from its start, until the job or the connection ends."""
        websocket = _websocket()
        connection = self._connect(f"{_path(job_id)}/logs/tail")
        connection.settimeout(PAUSE_S)
        try:
            while True:
                try:
                    opcode, message = connection.recv_data()
                except websocket.WebSocketTimeoutException:
                    if self.job(job_id).status in ENDED:
                        return
                    continue
                if opcode == websocket.ABNF.OPCODE_CLOSE:
                    break
                yield message.decode(errors="replace")
        except (websocket.WebSocketConnectionClosedException, ConnectionError):
            pass  # `follow` connects again
        finally:
            connection.shutdown()
        self._sleep(PAUSE_S)

    def _connect(self, path: str) -> Any:
        websocket = _websocket()
        url = (self.url + path).replace("http", "ws", 1)
        try:
            return websocket.create_connection(
                url,
                ANSWER_S,
                header={**self._headers, **self._token},
                http_no_proxy=["*"],
                sslopt={} if self._tls is None else {"context": self._tls},
            )
        except websocket.WebSocketException as error:
            raise JobError(
                f"{self.url} accepts no WebSocket for the job's output ({error}): if there is a "
                "proxy, let it forward WebSockets, or read the output so far with "
                "`syncline jobs logs`"
            ) from None
        except OSError as error:
            raise JobServerUnreachableError(
                f"{self.url} does not answer GET {path}: {error}"
            ) from None

    def _request(
        self, method: str, path: str, body: bytes | None = None, limit_s: float = ANSWER_S
    ) -> bytes:
        """Return the body of the answer; send the token after the server first requires it."""
        try:
            return self._answer(method, path, body, limit_s)
        except JobServerError as error:
            if error.status != TOKEN_REQUIRED or self._token:
                raise
        self._token = cluster_token.headers(self.url, is_found_here=self._is_found_here)
        return self._answer(method, path, body, limit_s)

    def _answer(self, method: str, path: str, body: bytes | None, limit_s: float) -> bytes:
        kind = "application/octet-stream" if method == "PUT" else "application/json"
        request = urllib.request.Request(
            self.url + path,
            data=body,
            method=method,
            headers={**self._headers, **({"Content-Type": kind} if body else {})},
        )
        for name, value in self._token.items():
            request.add_unredirected_header(name, value)  # never sent to another server
        try:
            with urllib.request.urlopen(request, timeout=limit_s, context=self._tls) as answer:
                data: bytes = answer.read()
                return data
        except urllib.error.HTTPError as error:
            if error.code == TOKEN_REFUSED and self._token:
                raise TokenError(
                    f"{self.url} refuses the token: put the cluster's own {TOKEN_SOURCES}"
                ) from None
            text = error.read().decode(errors="replace")
            said = [line for line in text.splitlines() if any(map(str.isalnum, line))]
            raise JobServerError(
                f"{self.url} refuses {method} {path}: {said[-1] if said else error.reason}",
                error.code,
            ) from None
        except http.client.HTTPException:
            raise JobServerUnreachableError(
                f"the server at {self.url} does not speak HTTP, so it is not a dashboard"
            ) from None
        except (OSError, ValueError) as error:
            raise JobServerUnreachableError(
                f"{self.url} does not answer {method} {path}: {error}"
            ) from None


def _path(job_id: str) -> str:
    return f"/api/jobs/{urllib.parse.quote(job_id)}"


def _tls_context(verify: bool | str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _websocket() -> Any:
    """Import websocket-client."""
    return optional.load(
        "websocket", purpose="following the output of a job", install="syncline[cli]"
    )


def candidates(address: str | None) -> list[str]:
    """Return possible URLs of the job API: the given one, and the cluster's with the usual port.

    Raises:
        ValueError: `address` is not an address.
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
            f"{address!r} is not an address: pass http://HOST:{DEFAULT_PORT}, HOST or HOST:PORT"
        )
    given = [] if address.startswith("ray://") else [f"http://{host}:{port}"]
    return list(dict.fromkeys([*given, f"http://{host}:{DEFAULT_PORT}"]))


def find(
    address: str | None, *, headers: Mapping[str, str] | None = None, verify: bool | str = True
) -> JobApi:
    """Find the job API for an address.

    Raises:
        JobError: The address is not one.
        JobServerUnreachableError: No server answers; the text has all attempts.
    """
    try:
        urls = candidates(address)
    except ValueError as error:
        raise JobError(str(error)) from None
    failures = []
    for url in urls:
        is_found_here = address in (None, "auto")
        api = JobApi(url, is_found_here=is_found_here, headers=headers, verify=verify)
        try:
            api.version()
        except TokenError:
            raise
        except (JobError, KeyError, ValueError) as error:
            failures.append(str(error))
        else:
            return api
    raise JobServerUnreachableError(
        f"no cluster accepts jobs at {' or '.join(urls)}:\n"
        + "\n".join(f"  {failure}" for failure in failures)
        + f"\nPass the address of the head node's dashboard (http://HOST:{DEFAULT_PORT}). It "
        'accepts jobs if `pip install "syncline[cluster]"` (or "ray[default]") was done on the '
        "head node before its start; plain Ray has no job API. To reach it from another machine, "
        "start the head with --dashboard-host=0.0.0.0."
    )
