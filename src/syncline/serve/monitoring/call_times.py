"""`CallTimes`: measurements in a replica, and `ReplicaReporter`, which sends them every second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from typing import Protocol

from syncline.core.metrics_text import UserMetric
from syncline.core.tracebacks import user_traceback
from syncline.serve.monitoring.histogram import Samples, Times
from syncline.serve.monitoring.reports import (
    REPORT_S,
    BatchTimes,
    FailedCall,
    ReplicaReport,
    SlowCall,
)
from syncline.serve.monitoring.slowest import KEPT, Slowest, period_of
from syncline.serve.wire.routes import DeploymentId

MOST_FAILURES = 5
"""Failed calls per period that are reported with their traceback."""
MOST_UNREPORTED = 50_000
_LONGEST_TRACEBACK = 8_000
_LONGEST_ERROR = 1_000


class MeasuredCall(Protocol):
    """A call as its measurement needs it."""

    request_id: str
    received: float
    batch_wait_s: float

    def label(self) -> str:
        """Return the method of the user's class, or HTTP method and route."""


class CallTimes:
    """Counts and times since the last `take`. Used on the loop's thread."""

    __slots__ = (
        "_failures",
        "_slowest",
        "by_handle",
        "cancelled",
        "computed",
        "failed",
        "handled",
        "slow_from_s",
    )

    def __init__(self) -> None:
        self.handled = Samples()
        self.computed = Samples()
        self.by_handle = 0
        self.failed = 0
        self.cancelled = 0
        self.slow_from_s = -1.0
        """Seconds from which a call is passed to `note_slow`."""
        self._slowest: Slowest[SlowCall] = Slowest(2 * KEPT)  # to join those of the proxies
        self._failures: list[FailedCall] = []

    def answered(self, call: MeasuredCall) -> None:
        """Count an answered call. Called for each request: keep it short."""
        elapsed = perf_counter() - call.received
        self.handled.append(elapsed)
        if call.batch_wait_s:
            self.computed.append(elapsed - call.batch_wait_s)
        if elapsed > self.slow_from_s:
            self.note_slow(call, elapsed)

    def note_slow(self, call: MeasuredCall, elapsed: float) -> None:
        """Keep a call that is among the slowest of this period."""
        self._slowest.add(
            elapsed,
            SlowCall(
                request_id=call.request_id,
                method=call.label(),
                received=call.received,
                batch_wait_s=call.batch_wait_s,
                ended=call.received + elapsed,
            ),
        )
        self.slow_from_s = self._slowest.limit_s

    def note_failure(self, call: MeasuredCall, error: BaseException) -> None:
        """Count an exception of user code; keep the first ones of a period."""
        self.failed += 1
        if len(self._failures) < MOST_FAILURES:
            text = f"{type(error).__name__}: {error}"
            self._failures.append(
                FailedCall(
                    request_id=call.request_id,
                    method=call.label(),
                    error=text[:_LONGEST_ERROR],
                    traceback=user_traceback(error)[-_LONGEST_TRACEBACK:],
                )
            )

    def take_period(self) -> tuple[tuple[SlowCall, ...], tuple[FailedCall, ...]]:
        """Return the slowest and the failed calls of the period, and begin the next one."""
        slow, self.slow_from_s = self._slowest.take(), -1.0
        failures = tuple(self._failures)
        self._failures.clear()
        return slow, failures

    def failures(self) -> tuple[FailedCall, ...]:
        """Return the failed calls that are kept."""
        return tuple(self._failures)


class BatchRecorder:
    """Times of the batches of one method. Used on the loop's thread."""

    def __init__(self, method: str) -> None:
        self.method = method
        self._sizes: dict[int, int] = {}
        self._waits = Samples()
        self._runs = Samples()

    def began(self, waits_s: Sequence[float]) -> None:
        """Count a batch that starts, with the seconds that each of its items waited."""
        size = len(waits_s)
        self._sizes[size] = self._sizes.get(size, 0) + 1
        if len(self._waits) < MOST_UNREPORTED:  # nothing reports outside of replicas
            self._waits.extend(waits_s)

    def ended(self, run_s: float) -> None:
        """Record the seconds that a batch took."""
        if len(self._runs) < MOST_UNREPORTED:
            self._runs.append(run_s)

    def take(self) -> BatchTimes | None:
        """Return the counts since the last call; None without any."""
        if not self._sizes and not self._runs:
            return None
        sizes, self._sizes = self._sizes, {}
        return BatchTimes(
            method=self.method, sizes=sizes, wait=self._waits.take(), run=self._runs.take()
        )


_recorders: dict[str, BatchRecorder] = {}


def batch_recorder(method: str) -> BatchRecorder:
    """Return this process's recorder for the batches of a method."""
    return _recorders.setdefault(method, BatchRecorder(method))


class Waits(Protocol):
    """A link, as far as its calls wait for replicas."""

    def take_waits(self) -> Mapping[DeploymentId, Times]:
        """Return the waits since the last call, by deployment."""


class CallingLink(Waits, Protocol):
    """The link of a replica."""

    @property
    def called(self) -> Collection[DeploymentId]:
        """Deployments that got calls."""


class Counts(Protocol):
    """Counts of a replica's calls."""

    def statistics(self) -> AdmissionCounts:
        """Return the current counts."""


class AdmissionCounts(Protocol):
    """Counts of an admission."""

    @property
    def ongoing(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def refused(self) -> int: ...


class ReplicaReporter:
    """Sends a `ReplicaReport` every second if something has changed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        times: CallTimes,
        *,
        replica_id: str,
        deployment: DeploymentId,
        node_id: str,
        admission: Counts,
        link: CallingLink,
        send: Callable[[ReplicaReport], None],
        user_metrics: Callable[[], tuple[UserMetric, ...]] = tuple,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._loop = loop
        self._times = times
        self._replica_id = replica_id
        self._deployment = deployment
        self._node_id = node_id
        self._admission = admission
        self._link = link
        self._send = send
        self._user_metrics = user_metrics
        self._wall_clock = wall_clock
        self._period = period_of(wall_clock())
        self._sent: ReplicaReport | None = None
        self._sent_metrics: tuple[UserMetric, ...] = ()
        self._refused = 0
        self._reported_failures = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Report from now on."""
        self._timer = self._loop.call_later(REPORT_S, self._tick, self._loop.time() + REPORT_S)

    def stop(self) -> None:
        """Send a last report, with the calls of the current period."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.report(0.0, is_last=True)

    def _tick(self, planned: float) -> None:
        self.start()
        self.report(max(0.0, self._loop.time() - planned))

    def report(self, loop_lag_s: float, *, is_last: bool = False) -> None:
        """Send the changes since the last report."""
        times, admission = self._times, self._admission.statistics()
        period = period_of(self._wall_clock())
        new = times.failures()[self._reported_failures :]
        self._reported_failures += len(new)
        slow: tuple[SlowCall, ...] = ()
        if period != self._period or is_last:
            self._period = period
            self._reported_failures = 0
            slow, _ = times.take_period()
        metrics = self._user_metrics()
        report = ReplicaReport(
            replica_id=self._replica_id,
            deployment=self._deployment,
            node_id=self._node_id,
            ongoing=admission.ongoing,
            limit=admission.limit,
            handled=times.handled.take(),
            computed=times.computed.take(),
            by_handle=times.by_handle,
            failed=times.failed,
            cancelled=times.cancelled,
            busy=admission.refused - self._refused,
            batches=tuple(each for one in _recorders.values() if (each := one.take()) is not None),
            waits=self._link.take_waits(),
            called=tuple(sorted(self._link.called)),
            loop_lag_s=round(loop_lag_s, 4) if loop_lag_s > 0.01 else 0.0,
            slow=slow,
            failures=new,
            user_metrics=metrics if metrics != self._sent_metrics else None,
        )
        times.by_handle = times.failed = times.cancelled = 0
        self._refused, self._sent_metrics = admission.refused, metrics
        if report != self._sent or report.handled.count:
            self._sent = report
            self._send(report)
