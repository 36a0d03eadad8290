"""`UserCallback`: base class of callbacks that observe a run from the controller's side.

Order of the calls, one at a time:

    on_run_start      once, before anything starts
    on_report         for every report of rank 0
    after_report      for every round, when all ranks have reported
    after_exception   after workers have failed; training may restart, and reports continue
    on_run_end        once, at the end of the run (unless the program is killed)

Callbacks observe: they cannot change reports or errors. An exception of a callback is a failure of
the controller and ends the run, except one of `on_run_end`, which is logged. Callbacks run in the
process of the controller: the program that called `fit()`, or on a cluster the run's actor, which
gets a copy of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline.train.checkpoint import Checkpoint

if TYPE_CHECKING:
    from syncline.train.config import RunConfig
    from syncline.train.result import Result


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """Facts about a run that starts."""

    path: str
    """Run directory, a path on the filesystem of the run's storage."""

    config: Mapping[str, Any]
    """`train_loop_config` in plain values; other objects as descriptions, secrets as `***`."""

    next_step: int
    """Step of the next report: 0 in a new run, else the highest reported step plus one."""


class UserCallback:
    """Override the methods of interest; by default they do nothing.

    The methods run one at a time, so they may keep state. A slow one delays the run.
    """

    def on_run_start(self, run_context: RunConfig, start: RunStart) -> None:
        """Handle the start of a run. An exception ends the run as a `ControllerError`.

        Args:
            run_context: The run's configuration (`.name`, `.storage_path`, …).
            start: Facts about the run.
        """

    def on_report(self, run_context: RunConfig, step: int, metrics: dict[str, Any]) -> None:
        """Handle a report of rank 0, before other ranks report and before a checkpoint is
        committed.

        Args:
            run_context: The run's configuration.
            step: Number from 0; a report repeated after a restart has the same step.
            metrics: Metrics of rank 0.
        """

    def after_report(
        self, run_context: RunConfig, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Handle a round: reports of every rank.

        Args:
            run_context: The run's configuration.
            metrics: One dictionary per rank, in rank order.
            checkpoint: Committed checkpoint of the round, if any.
        """

    def after_exception(
        self, run_context: RunConfig, worker_exceptions: dict[int, Exception]
    ) -> None:
        """Handle failures of workers, before the group restarts or the run ends.

        Args:
            run_context: The run's configuration.
            worker_exceptions: Exception by failed rank.
        """

    def on_run_end(
        self, run_context: RunConfig, result: Result | None, error: BaseException | None
    ) -> None:
        """Handle the end of the run, after its outcome was recorded.

        Args:
            run_context: The run's configuration.
            result: Result of `fit()` without `return_value`; None if the run did not finish.
            error: Exception of `fit()`: a `TrainingFailedError`, or one that interrupted the run,
                such as KeyboardInterrupt.
        """
