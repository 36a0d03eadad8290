"""`Observers`: calls the callbacks that a program gave for its run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from syncline.runs.secrets import masked
from syncline.runs.values import plain
from syncline.train.callbacks import RunStart, UserCallback
from syncline.train.checkpoint import Checkpoint
from syncline.train.errors import ControllerError
from syncline.train.result import Result
from syncline.train.workers.spec import RunSpec

logger = logging.getLogger("syncline")


class Observers:
    """The callbacks of one run; what one raises goes to the caller, but at the end.

    A configuration may serve a search, too: its callbacks for that are left alone.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self._run_config = spec.run_config
        self._callbacks = [
            callback
            for callback in spec.run_config.callbacks or ()
            if isinstance(callback, UserCallback)
        ]
        self._started: list[UserCallback] = []

    def start(self, path: str, next_step: int) -> None:
        """`fit()` was called. ControllerError with what a callback raises."""
        if not self._callbacks:
            return
        config = masked(plain(self._spec.description().get("train_config")))
        start = RunStart(
            path=path, config=config if isinstance(config, dict) else {}, next_step=next_step
        )
        for callback in self._callbacks:
            try:
                callback.on_run_start(run_context=self._run_config, start=start)
            except Exception as error:
                raise ControllerError(error) from error
            self._started.append(callback)

    def report(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Rank 0 has reported."""
        for callback in self._callbacks:
            callback.on_report(run_context=self._run_config, step=step, metrics=dict(metrics))

    def round(
        self, metrics: Sequence[Mapping[str, Any] | None], checkpoint: Checkpoint | None
    ) -> None:
        """A round of reports is complete; None where a rank is not waited for."""
        for callback in self._callbacks:
            of_all = [dict(of_rank or {}) for of_rank in metrics]
            callback.after_report(
                run_context=self._run_config, metrics=of_all, checkpoint=checkpoint
            )

    def failure(self, exceptions: Mapping[int, BaseException]) -> None:
        """Workers have failed."""
        for callback in self._callbacks:
            callback.after_exception(
                run_context=self._run_config, worker_exceptions=dict(exceptions)
            )  # type: ignore[arg-type]

    def end(self, result: Result | None, error: BaseException | None) -> None:
        """The run has ended; those that have been told of its start are told."""
        started, self._started = self._started, []
        for callback in started:
            try:
                callback.on_run_end(run_context=self._run_config, result=result, error=error)
            except Exception:
                logger.exception(
                    "%s.on_run_end failed; what the run has come to stays as it is.",
                    type(callback).__name__,
                )
