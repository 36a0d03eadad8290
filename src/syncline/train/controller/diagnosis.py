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
from syncline.diagnosis.rank_diagnosis import RankDiagnosis
from syncline.diagnosis.rank_health import RankHealth
from syncline.runs.outliers import ranks_text
from syncline.runs.verdicts import EVENT, OVER, Cause, Verdict
from syncline.train.backend import Worker
from syncline.train.controller.attempt import WorkerFailure
from syncline.train.controller.clock_offsets import clock_offsets
from syncline.train.controller.run_recorder import RunRecorder
from syncline.train.metric_values import Metrics

logger = logging.getLogger("syncline")

CHECK_S = 2.0
"""Interval of checks for operations that do not end."""


class Diagnosis(RankDiagnosis):
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
        super().__init__(clock)
        self._recorder = recorder
        self._on_verdict = on_verdict
        self._workers: Sequence[Worker] = ()
        self._not_finite: set[str] = set()  # names of metrics
        self._bad_inputs: set[tuple[int, int]] = set()  # rank, report

    def attempt_began(self, workers: Sequence[Worker], ask: Callable[[int], float]) -> None:
        """Begin with the workers of an attempt.

        Args:
            workers: Workers in the order of their ranks.
            ask: Returns the time of a rank's clock in seconds since the epoch.
        """
        self._workers = workers
        health = self._health = RankHealth(range(len(workers)))

        def measure() -> None:
            try:
                health.offsets_s = clock_offsets(workers, ask)
            except Exception as error:  # the attempt may end meanwhile
                logger.debug("The clocks of the nodes could not be compared: %r", error)

        if len({worker.node_id for worker in workers}) > 1:
            threading.Thread(target=measure, name="syncline-clocks", daemon=True).start()

    def failed(self, failures: Mapping[int, WorkerFailure]) -> None:
        """Record the ranks whose processes died, unless calls that differ explain it."""
        self._died({rank: str(each.exception) for rank, each in failures.items() if each.died})

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

    def _tell(self, verdict: Verdict) -> None:
        self._record(verdict)
        self._on_verdict(verdict)
        logger.log(logging.INFO if verdict.may_pass else logging.WARNING, "%s", verdict.text)

    def _tell_over(self) -> None:
        self._recorder.event(OVER)
        self._on_verdict(None)

    def _record(self, verdict: Verdict) -> None:
        self._recorder.event(EVENT, **verdict.to_json())

    def _is_stopped(self, rank: int) -> bool:
        """Return True if the process of a rank is on this machine and stopped."""
        return ensure_engine().address == "local" and is_stopped(self._workers[rank].pid)


def _names_not_finite(metrics: Sequence[Metrics | None]) -> set[str]:
    return {
        name for each in metrics if each for name, value in each.items() if _is_not_finite(value)
    }


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
