"""Calls the callbacks that a program has passed in its `RunConfig`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from syncline.runs.json_values import plain
from syncline.runs.secrets import masked
from syncline.train.checkpoint import Checkpoint
from syncline.train.errors import ControllerError
from syncline.train.metric_values import Metrics
from syncline.train.result import Result
from syncline.train.run_config import RunStart, UserCallback
from syncline.train.workers.spec import RunSpec

logger = logging.getLogger("syncline")


class CallbackRunner:
    """Callbacks of one run. Their exceptions are raised, except those of `on_run_end`.

    Callbacks of other types, which a configuration may have for a search, are ignored.
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
        """Call `on_run_start`.

        Raises:
            ControllerError: A callback raised.
        """
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

    def report(self, step: int, metrics: Metrics) -> None:
        """Call `on_report` for a report of rank 0."""
        for callback in self._callbacks:
            callback.on_report(run_context=self._run_config, step=step, metrics=dict(metrics))

    def round(self, metrics: Sequence[Metrics | None], checkpoint: Checkpoint | None) -> None:
        """Call `after_report` for a complete round; metrics are None for ranks left behind."""
        for callback in self._callbacks:
            of_all = [dict(of_rank or {}) for of_rank in metrics]
            callback.after_report(
                run_context=self._run_config, metrics=of_all, checkpoint=checkpoint
            )

    def failure(self, exceptions: Mapping[int, BaseException]) -> None:
        """Call `after_exception`."""
        for callback in self._callbacks:
            # Ray declares Exception, though a worker may raise SystemExit.
            callback.after_exception(
                run_context=self._run_config,
                worker_exceptions=dict(exceptions),  # type: ignore[arg-type]
            )

    def end(self, result: Result | None, error: BaseException | None) -> None:
        """Call `on_run_end` of the callbacks whose `on_run_start` was called."""
        started, self._started = self._started, []
        for callback in started:
            try:
                callback.on_run_end(run_context=self._run_config, result=result, error=error)
            except Exception:
                logger.exception(
                    "%s.on_run_end failed; the outcome of the run is not affected.",
                    type(callback).__name__,
                )
