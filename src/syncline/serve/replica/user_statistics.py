"""`UserStatistics`: the hooks `record_autoscaling_stats` and `record_routing_stats` of a replica.

Results go to the controller when they have changed. They must be JSON values, because the
controller and other callers read them without the user's modules.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from syncline.core.tracebacks import user_traceback
from syncline.serve.controller.messages import AutoscalingStats, RoutingStats
from syncline.serve.replica.user_code import UserCode

logger = logging.getLogger("syncline.serve")

AUTOSCALING_PERIOD_S = 1.0
"""Seconds between calls of `record_autoscaling_stats`."""
AUTOSCALING_TIMEOUT_S = 30.0

Hook = Callable[[], Awaitable["Mapping[str, Any] | None"]]


class UserStatistics:
    """The hooks of one replica."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        user: UserCode,
        replica_id: str,
        *,
        routing_period_s: float,
        routing_timeout_s: float,
        send: Callable[[object], None],
    ) -> None:
        self._loop = loop
        self._user = user
        self._replica_id = replica_id
        self._routing_period_s = routing_period_s
        self._routing_timeout_s = routing_timeout_s
        self._send = send
        self._tasks: list[asyncio.Task[None]] = []
        self._sent: dict[str, Mapping[str, Any]] = {}

    def start(self) -> None:
        """Call the hooks that the class has, now and periodically."""
        user = self._user
        if user.has_hook("record_autoscaling_stats"):
            self._repeat(
                "record_autoscaling_stats",
                user.record_autoscaling_stats,
                lambda stats: AutoscalingStats(replica_id=self._replica_id, stats=stats),
                AUTOSCALING_PERIOD_S,
                AUTOSCALING_TIMEOUT_S,
            )
        if user.has_hook("record_routing_stats"):
            self._repeat(
                "record_routing_stats",
                user.record_routing_stats,
                lambda stats: RoutingStats(replica_id=self._replica_id, stats=stats),
                self._routing_period_s,
                self._routing_timeout_s,
            )

    def stop(self) -> None:
        """Call the hooks no more."""
        for task in self._tasks:
            task.cancel()

    def send_again(self) -> None:
        """Send the next results also if they have not changed, to a new controller."""
        self._sent.clear()

    def _repeat(
        self,
        name: str,
        hook: Hook,
        message: Callable[[Mapping[str, Any]], object],
        period_s: float,
        timeout_s: float,
    ) -> None:
        async def run() -> None:
            while True:
                try:
                    stats = plain(name, await asyncio.wait_for(hook(), timeout_s))
                except Exception as error:
                    logger.warning("%s failed:\n%s", name, user_traceback(error).rstrip())
                else:
                    if stats is not None and stats != self._sent.get(name):
                        self._sent[name] = stats
                        self._send(message(stats))
                await asyncio.sleep(period_s)

        self._tasks.append(self._loop.create_task(run()))


def plain(name: str, stats: object) -> dict[str, Any] | None:
    """Return the result of a hook as JSON values; raise TypeError for other values."""
    if stats is None:
        return None
    if not isinstance(stats, Mapping):
        raise TypeError(f"`{name}` returned a {type(stats).__name__}: return a dict, or None")
    result: dict[str, Any] = json.loads(json.dumps(dict(stats), default=_number))
    return result


def _number(value: object) -> Any:
    """Return the number in a NumPy scalar or a tensor of one element."""
    item = getattr(value, "item", None)
    if item is None:
        raise TypeError(f"a value is a {type(value).__name__}: give numbers, texts, lists or dicts")
    return item()
