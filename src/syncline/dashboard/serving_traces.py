"""Slow requests and errors of a serve, from `slow.jsonl` and `errors.jsonl`. Pure.

A trace begins when the proxy has read the head of a request. Replicas report only their slowest
calls, so that the fast calls of a slow request are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.dashboard.serving_state import text, whole
from syncline.runs.json_values import Record, finite

MAX_CALLS = 50
_PARTS = ("queue", "batch_wait", "handler", "transfer")
_PASSED_ON = "RayTaskError("


@dataclass(frozen=True, kw_only=True)
class SlowCall:
    """A call that a slow request made to another deployment; times in milliseconds."""

    name: str
    """`Deployment.method`."""
    after: float | None
    """From the start of the request to the arrival of the call; None if it ran on another node."""
    total: float
    batch_wait: float

    def __str__(self) -> str:
        when = f" after {self.after:.1f} ms" if self.after is not None else ""
        return f"{self.name}: {self.total:.1f} ms{when}"


@dataclass(frozen=True, kw_only=True)
class SlowRequest:
    """A slow request; times in milliseconds."""

    time: float
    """When it was recorded, in seconds since the epoch."""
    request_id: str
    app: str
    deployment: str
    what: str
    """Method and route."""
    status: int
    total: float
    parts: tuple[float, ...] | None
    """One time for each of `serving_figures.PARTS`; None if the replica's part is unknown."""
    queue: float
    replica: str
    calls: tuple[SlowCall, ...]
    """Calls to other deployments in the order of their arrival."""


def slow_requests(
    lines: Sequence[Record], app: str = "", deployment: str = ""
) -> list[SlowRequest]:
    """Return the slow requests of an application or ingress: the latest first, then the slowest."""
    found = [_slow(line) for line in lines if _is_of(line, app, deployment)]
    return sorted(found, key=lambda each: (-each.time, -each.total))


def errors(lines: Sequence[Record], app: str = "", deployment: str = "") -> list[Record]:
    """Return the lines of errors of an application or deployment, the latest first.

    An error that a deployment got from a call to another one is left out if that one is there.
    """
    found = [line for line in reversed(lines) if _is_of(line, app, deployment)]
    raised = {
        line.get("request_id")
        for line in found
        if not text(line.get("error")).startswith(_PASSED_ON)
    }
    return [
        line
        for line in found
        if not text(line.get("error")).startswith(_PASSED_ON)
        or line.get("request_id") not in raised
    ]


def _is_of(line: Record, app: str, deployment: str) -> bool:
    return (not app or line.get("app") == app) and (
        not deployment or line.get("deployment") == deployment
    )


def _slow(line: Record) -> SlowRequest:
    parts = None
    if all(finite(line.get(name)) is not None for name in _PARTS):
        parts = tuple(_milliseconds(line.get(name)) for name in _PARTS)
    calls = line.get("calls")
    return SlowRequest(
        time=finite(line.get("time")) or 0.0,
        request_id=text(line.get("request_id")),
        app=text(line.get("app")),
        deployment=text(line.get("deployment")),
        what=f"{text(line.get('method'))} {text(line.get('route'))}",
        status=whole(line.get("status")),
        total=_milliseconds(line.get("total")),
        parts=parts,
        queue=_milliseconds(line.get("queue")),
        replica=text(line.get("replica")).rpartition("#")[2],
        calls=tuple(
            _call(each)
            for each in (calls if isinstance(calls, list) else [])[:MAX_CALLS]
            if isinstance(each, dict)
        ),
    )


def _call(value: Record) -> SlowCall:
    total = _milliseconds(value.get("ms"))
    after = finite(value.get("after"))
    return SlowCall(
        name=f"{text(value.get('deployment'))}.{text(value.get('method'))}",
        after=None if after is None else max(0.0, after),
        total=total,
        batch_wait=min(total, _milliseconds(value.get("batch_wait"))),
    )


def _milliseconds(value: object) -> float:
    return max(0.0, finite(value) or 0.0)
