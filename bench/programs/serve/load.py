"""wrk: a closed-loop load generator in C, on one thread, started afresh for each measurement."""

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("post.lua")
TIMEOUT_S = 5
"""Seconds after which wrk counts a request as failed."""
GRACE_S = 15.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """Outcome of one run of wrk."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    failed: int
    """Requests without an answer, or with one other than 2xx and 3xx."""

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


@dataclass(frozen=True, kw_only=True)
class Body:
    """The body that every request has."""

    content: bytes
    content_type: str = "application/octet-stream"


def generate(url: str, body: Body, *, connections: int, seconds: int) -> Load:
    """Send requests for some seconds: a connection sends its next one when it has the answer.

    Raises:
        RuntimeError: wrk is not installed, or did not end properly.
    """
    wrk = shutil.which("wrk")
    if wrk is None:
        raise RuntimeError("wrk is not installed: run `apt-get install wrk`")
    with tempfile.NamedTemporaryFile() as file:
        file.write(body.content)
        file.flush()
        ended = subprocess.run(
            [
                wrk,
                "--threads=1",
                f"--connections={connections}",
                f"--duration={seconds}s",
                f"--timeout={TIMEOUT_S}s",
                f"--script={SCRIPT}",
                url,
            ],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds + GRACE_S,
            env={**os.environ, "BENCH_BODY": file.name, "BENCH_CONTENT_TYPE": body.content_type},
        )
    if ended.returncode != 0:
        raise RuntimeError(f"wrk ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
    return parse(ended.stdout)


def parse(output: str) -> Load:
    """Return the totals that `post.lua` prints last."""
    totals = json.loads(output.strip().splitlines()[-1])
    return Load(
        requests=totals["requests"],
        seconds=totals["duration_us"] / 1e6,
        p50_ms=totals["p50_us"] / 1e3,
        p99_ms=totals["p99_us"] / 1e3,
        failed=totals["failed"],
    )
