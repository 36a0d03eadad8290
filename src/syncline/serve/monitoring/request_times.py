"""`ProxyMonitor`: measurements in a proxy, their reports to the controller, and the access log."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from syncline.serve.monitoring.access_log import AccessLog, access_log_for
from syncline.serve.monitoring.histogram import NO_TIMES, Times
from syncline.serve.monitoring.reports import (
    REPORT_S,
    ProxyReport,
    RecordTo,
    RouteReport,
    SlowRequest,
)
from syncline.serve.monitoring.slowest import Slowest, period_of
from syncline.serve.proxy.statistics import HttpStatistics, RouteSummary

if TYPE_CHECKING:
    from syncline.serve.monitoring.call_times import Waits
    from syncline.serve.proxy.requests import HttpCall
    from syncline.serve.proxy.server import HttpServer
    from syncline.serve.routing.controller_connection import ControllerConnection

_WEBSOCKET = 101


class RequestTimes:
    """Observer of the requests of a proxy: the slowest ones, and the access log."""

    __slots__ = ("_slowest", "log", "slow_from_s")

    def __init__(self) -> None:
        self.log: AccessLog | None = None
        """None: no access log."""
        self.slow_from_s = -1.0
        self._slowest: Slowest[SlowRequest] = Slowest()

    def finished(self, call: HttpCall, status: int, elapsed: float) -> None:
        """Record a finished request. Called for each one: keep it short."""
        if elapsed > self.slow_from_s and call.route is not None:
            self.note_slow(call, status, elapsed)
        log = self.log
        if log is not None:
            log.add((call.request_id, call.method, call.target, status, call.started, elapsed))

    def note_slow(self, call: HttpCall, status: int, elapsed: float) -> None:
        """Keep a request that is among the slowest of this period."""
        if status == _WEBSOCKET or call.route is None:  # open as long as its client wants
            return
        ended = call.started + elapsed
        self._slowest.add(
            elapsed,
            SlowRequest(
                request_id=call.request_id,
                app=call.route.app,
                route=call.route.label,
                method=call.method,
                status=status,
                deployment=call.route.ingress,
                replica_id=call.replica_id,
                started=call.started,
                sent=call.sent or ended,
                ended=ended,
            ),
        )
        self.slow_from_s = self._slowest.limit_s

    def take_slow(self) -> tuple[SlowRequest, ...]:
        """Return the slowest requests and begin the next period."""
        self.slow_from_s = -1.0
        return self._slowest.take()


class ProxyReporter:
    """Sends a `ProxyReport` every second if something has changed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        times: RequestTimes,
        *,
        proxy_id: str,
        node_id: str,
        statistics: Callable[[], HttpStatistics],
        link: Waits,
        send: Callable[[ProxyReport], None],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._loop = loop
        self._times = times
        self._proxy_id = proxy_id
        self._node_id = node_id
        self._statistics = statistics
        self._link = link
        self._send = send
        self._wall_clock = wall_clock
        self._period = period_of(wall_clock())
        self._known: dict[tuple[str, str], RouteSummary] = {}
        self._sent: ProxyReport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Report from now on."""
        self._timer = self._loop.call_later(REPORT_S, self._tick, self._loop.time() + REPORT_S)

    def stop(self) -> None:
        """Send a last report, with the requests of the current period."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.report(0.0, is_last=True)

    def _tick(self, planned: float) -> None:
        self.start()
        self.report(max(0.0, self._loop.time() - planned))

    def report(self, loop_lag_s: float, *, is_last: bool = False) -> None:
        """Send the changes since the last report."""
        statistics, period = self._statistics(), period_of(self._wall_clock())
        slow: tuple[SlowRequest, ...] = ()
        if period != self._period or is_last:
            self._period = period
            slow = self._times.take_slow()
        routes = tuple(
            changed
            for summary in statistics.routes
            if (changed := self._changes(summary)) is not None
        )
        report = ProxyReport(
            proxy_id=self._proxy_id,
            node_id=self._node_id,
            pid=os.getpid(),
            connections=statistics.connections,
            ongoing=statistics.ongoing_requests,
            refused=statistics.refused_requests,
            routes=routes,
            waits=self._link.take_waits(),
            slow=slow,
            loop_lag_s=round(loop_lag_s, 4) if loop_lag_s > 0.01 else 0.0,
        )
        if report != self._sent or routes:
            self._sent = report
            self._send(report)

    def _changes(self, summary: RouteSummary) -> RouteReport | None:
        """Return the requests of a route since the last report; None without any."""
        key = (summary.app, summary.route)
        before, self._known[key] = self._known.get(key), summary
        if before is not None and before.requests == summary.requests:
            return None
        earlier = before.by_method_and_status if before is not None else {}
        if before is None and not summary.requests:
            return None
        return RouteReport(
            app=summary.app,
            route=summary.route,
            by_method_and_status={
                key: count - earlier.get(key, 0)
                for key, count in summary.by_method_and_status.items()
                if count != earlier.get(key, 0)
            },
            total=_times(summary) - (_times(before) if before is not None else NO_TIMES),
        )


def _times(summary: RouteSummary) -> Times:
    return Times(
        count=summary.requests, sum_s=summary.latency_sum_s, buckets=summary.latency_buckets
    )


class ProxyMonitor:
    """Everything that a proxy measures: its reports, and its access log."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        server: HttpServer,
        controller: ControllerConnection,
        link: Waits,
        *,
        proxy_id: str,
        node_id: str,
        is_near: bool,
    ) -> None:
        """`is_near` is True on the controller's node."""
        self._server = server
        self._is_near = is_near
        self._times = RequestTimes()
        server.on_request_done = self._times.finished
        controller.handle(RecordTo, self._record_to)
        self._reporter = ProxyReporter(
            loop,
            self._times,
            proxy_id=proxy_id,
            node_id=node_id,
            statistics=server.statistics,
            link=link,
            send=controller.notify,
        )

    def start(self) -> None:
        """Report from now on."""
        self._reporter.start()

    def stop(self) -> None:
        """Send the last report and end the access log."""
        self._reporter.stop()
        if self._times.log is not None:
            self._times.log.close()

    def _record_to(self, message: RecordTo) -> None:
        self._server.metrics_path = message.metrics_path
        if self._times.log is None:
            self._times.log = access_log_for(message, is_same_node=self._is_near)
