"""`ProgressReporter`: the contract between the controller of a search and whoever shows its
progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syncline.tune.experiment.trial import Trial


class ProgressReporter:
    """Shows how a search gets on. All methods are called by the controller, from one thread.

    `should_report` is asked after every event and must therefore be cheap: it may not walk through
    the trials each time. Where it agrees, `report` follows. `trials` is the controller's own list,
    in the order in which the trials were made: read it, and keep no copy.
    """

    def setup(
        self,
        start_time: float | None = None,
        total_samples: int | float | None = None,
        metric: str | None = None,
        mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Called once, before anything else. By default nothing happens.

        Args:
            start_time: When the search began, in seconds since the epoch.
            total_samples: So many trials will be made; `math.inf` without end, None if that is not
                known.
            metric: What the search optimises.
            mode: "min" or "max".
            kwargs: `trials`, those that the search begins with; and what later versions may tell.
        """

    def should_report(self, trials: Sequence[Trial], done: bool = False) -> bool:
        """Whether `report` is to be called now. `done`: the search is over, and this is the last
        time.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must say in `should_report(trials, done)` whether it is time to report."
        )

    def report(self, trials: Sequence[Trial], done: bool, *sys_info: str) -> None:
        """Show the trials. `sys_info`: lines about the machines, such as the resources in use."""
        raise NotImplementedError(
            f"{type(self).__name__} must show the trials in `report(trials, done, *sys_info)`."
        )

    def close(self) -> None:
        """The search is over, or has failed: leave the screen as it should stay. May be called
        twice; by default nothing happens.
        """
