"""`Diagnosis`: the controller's side of finding the rank that delays or stops a training.

It passes observations of the ranks to `RankHealth`, and records, shows and hands on its verdicts.
It also finds ranks whose process has died, and the first rank that reports a number that is not
finite.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from syncline.core.host import is_stopped
from syncline.core.lifecycle import ensure_engine
from syncline.diagnosis.observation import RankObserved
from syncline.diagnosis.rank_health import RankHealth
from syncline.runs.outliers import ranks_text
from syncline.runs.verdicts import DIFFERENCES, EVENT, OVER, Cause, Verdict
from syncline.train.backend import Worker
from syncline.train.controller.attempt import WorkerFailure
from syncline.train.controller.clock_offsets import clock_offsets
from syncline.train.controller.run_recorder import RunRecorder
from syncline.train.metric_values import Metrics

logger = logging.getLogger("syncline")

CHECK_S = 2.0
"""Interval of checks for operations that do not end."""


class Diagnosis:
    """Diagnosis of one run.

    Args:
        recorder: Record of the run.
        on_verdict: Called with each new verdict, and with None once it does not hold any more.
        clock: Monotonic clock in seconds.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        on_verdict: Callable[[Verdict | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recorder = recorder
        self._on_verdict = on_verdict
        self._clock = clock
        self._workers: Sequence[Worker] = ()
        self._health = RankHealth(0)
        self._not_finite: set[str] = set()  # names of metrics
        self._bad_inputs: set[tuple[int, int]] = set()  # rank, report

    def attempt_began(self, workers: Sequence[Worker], ask: Callable[[int], float]) -> None:
        """Begin with the workers of an attempt.

        Args:
            workers: Workers in the order of their ranks.
            ask: Returns the time of a rank's clock in seconds since the epoch.
        """
        self._workers = workers
        health = self._health = RankHealth(len(workers))

        def measure() -> None:
            try:
                health.offsets_s = clock_offsets(workers, ask)
            except Exception as error:  # the attempt may end meanwhile
                logger.debug("The clocks of the nodes could not be compared: %r", error)

        if len({worker.node_id for worker in workers}) > 1:
            threading.Thread(target=measure, name="syncline-clocks", daemon=True).start()

    @property
    def current(self) -> Verdict | None:
        """The latest verdict that still holds."""
        return self._health.current

    def waited_for(self, rank: int) -> float | None:
        """Return the share of the last window that the others waited for a rank, if known."""
        return self._health.table.get(rank)

    def to_json(self) -> dict[str, object]:
        """Return the state for a person who looks at the run; see `RankHealth.to_json`."""
        return self._health.to_json()

    def observed(self, rank: int, message: RankObserved) -> None:
        """Add an observation of a rank."""
        before = self.current
        self._tell(self._health.observe(rank, message, self._clock()))
        if before is not None and self.current is None:
            self._recorder.event(OVER)
            self._on_verdict(None)

    def check(self) -> None:
        """Look for an operation that does not end; call it every `CHECK_S`."""
        if not self._health.calls:
            return
        now = self._clock()
        self._tell(self._health.stalled(now, self._stopped(self._health.silent_ranks(now))))

    def failed(self, failures: Mapping[int, WorkerFailure]) -> None:
        """Record the ranks whose processes died, unless calls that differ explain it."""
        current = self._health.current
        if current is not None and current.cause in DIFFERENCES:
            return
        for rank, failure in failures.items():
            if failure.died:
                text = str(failure.exception)
                self._record(Verdict(cause=Cause.DEAD, ranks=(rank,), seconds=0.0, text=text))

    def bad_inputs(self, rank: int, report: int) -> None:
        """Note that the batch of a rank before a report had a value that is not finite."""
        self._bad_inputs.add((rank, report))

    def round(self, report: int, metrics: Sequence[Metrics | None]) -> None:
        """Look for the first rank that reports a number that is not finite.

        Args:
            report: Number of the report.
            metrics: Metrics by rank.
        """
        for name in _names_not_finite(metrics) - self._not_finite:
            self._not_finite.add(name)
            ranks = tuple(
                rank for rank, each in enumerate(metrics) if each and _is_not_finite(each.get(name))
            )
            bad = tuple(rank for rank in ranks if (rank, report) in self._bad_inputs)
            ranks = bad or ranks
            rest = (
                "The batch has values that are not finite."
                if bad
                else "All ranks have it at once, so it comes from the model or from its optimizer."
                if len(ranks) == len(metrics) > 1
                else "No such value was found in the model's inputs, so look at the model and the "
                "loss. Inputs passed by name, or without `prepare_model`, are not looked at."
            )
            self._tell(
                Verdict(
                    cause=Cause.NOT_A_NUMBER,
                    ranks=ranks,
                    seconds=0.0,
                    text=f"`{name}` is not finite for the first time on {ranks_text(ranks)}, in "
                    f"report {report}. {rest}",
                )
            )

    def _tell(self, verdict: Verdict | None) -> None:
        if verdict is None:
            return
        self._record(verdict)
        self._on_verdict(verdict)
        logger.log(logging.INFO if verdict.may_pass else logging.WARNING, "%s", verdict.text)

    def _record(self, verdict: Verdict) -> None:
        self._recorder.event(EVENT, **verdict.to_json())

    def _stopped(self, ranks: Sequence[int]) -> set[int]:
        """Return those of the ranks whose processes are on this machine and stopped."""
        if not ranks or ensure_engine().address != "local":
            return set()
        return {rank for rank in ranks if is_stopped(self._workers[rank].pid)}


def _names_not_finite(metrics: Sequence[Metrics | None]) -> set[str]:
    return {
        name for each in metrics if each for name, value in each.items() if _is_not_finite(value)
    }


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
