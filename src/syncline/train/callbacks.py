"""`UserCallback`: what a program overrides to watch a run from the controller's side.

Callbacks observe. They get what was reported or raised and cannot change it; an exception of a callback is the controller's failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.train.checkpoint import Checkpoint
    from syncline.train.config import RunConfig


class UserCallback:
    """Override what is of interest; every method does nothing by default.

    The methods run one at a time in the program that called `fit()`, so they may hold state. A slow one delays the run.
    """

    def after_report(self, run_context: RunConfig, metrics: list[dict[str, Any]], checkpoint: Checkpoint | None) -> None:
        """Every rank's report of one round has arrived.

        Args:
            run_context: The run's configuration (`.name`, `.storage_path`, …).
            metrics: One dictionary per rank, rank 0 first.
            checkpoint: The committed checkpoint of that round, if it had one.
        """

    def after_exception(self, run_context: RunConfig, worker_exceptions: dict[int, Exception]) -> None:
        """At least one worker failed; called before the group is restarted or the run ends.

        Args:
            run_context: The run's configuration.
            worker_exceptions: Exception of each failed rank, by rank.
        """
