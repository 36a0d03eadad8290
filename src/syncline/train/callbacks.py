"""`UserCallback`: what a program overrides to watch a run from the controller's side.

The order of the calls, one at a time:

    on_run_start                 once, before anything starts
    on_report                    for every report of rank 0
    after_report                 for every round of reports, when all ranks have made theirs
    after_exception              when workers have failed; training may start again, and reports go on
    on_run_end                   once, however the run ends (unless the program is killed)

Callbacks observe. They get what was reported or raised and cannot change it; an exception of a
callback is the controller's failure and ends the run, but for one in `on_run_end`, which is logged:
what the run has come to stays as it is. They run where the controller does: in the program that
called `fit()`, or, on a cluster, in the run's actor, which gets a copy of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.train.checkpoint import Checkpoint
    from syncline.train.config import RunConfig
    from syncline.train.result import Result


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """What is known of a run when it starts."""

    path: str
    """The run directory, a path on the filesystem of the run's storage."""

    config: Mapping[str, Any]
    """`train_loop_config` in plain values: numbers, texts, lists and dictionaries; other objects as
    descriptions, secrets as `***`.
    """

    next_step: int
    """0 in a new run. Where an earlier program's is continued: one more than the highest step that
    it has reported.
    """


class UserCallback:
    """Override what is of interest; every method does nothing by default.

    The methods run one at a time in the controller, so they may hold state. A slow one delays the
    run.
    """

    def on_run_start(self, run_context: RunConfig, start: RunStart) -> None:
        """`fit()` was called. An exception here ends the run before it has begun, as a
        `ControllerError`.

        Args:
            run_context: The run's configuration (`.name`, `.storage_path`, …).
            start: What it trains with, and whether it goes on.
        """

    def on_report(self, run_context: RunConfig, step: int, metrics: dict[str, Any]) -> None:
        """Rank 0 has reported; other ranks may be behind, and a checkpoint is not committed yet.

        Args:
            run_context: The run's configuration.
            step: 0, 1, …: a report that is made again after a restart has the step that it had
                before.
            metrics: Rank 0's.
        """

    def after_report(
        self, run_context: RunConfig, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None
    ) -> None:
        """Every rank's report of one round has arrived.

        Args:
            run_context: The run's configuration (`.name`, `.storage_path`, …).
            metrics: One dictionary per rank, rank 0 first.
            checkpoint: The committed checkpoint of that round, if it had one.
        """

    def after_exception(
        self, run_context: RunConfig, worker_exceptions: dict[int, Exception]
    ) -> None:
        """At least one worker failed; called before the group is restarted or the run ends.

        Args:
            run_context: The run's configuration.
            worker_exceptions: Exception of each failed rank, by rank.
        """

    def on_run_end(
        self, run_context: RunConfig, result: Result | None, error: BaseException | None
    ) -> None:
        """The run has ended, and its outcome is written down.

        Args:
            run_context: The run's configuration.
            result: What `fit()` returns, without `return_value`; None if the run did not finish.
            error: What `fit()` raises then: a `TrainingFailedError`, or whatever has broken the run
                off, such as KeyboardInterrupt.
        """
