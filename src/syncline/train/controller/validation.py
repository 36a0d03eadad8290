"""Validation of checkpoints: the user's function runs as a task beside training, one at a time,
first in, first out.

`ValidationQueue` runs the tasks; `ValidationRunner` records their results for the driver. A
validation that fails or times out is logged and never fails the run.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syncline.core import api
from syncline.core.engine import current_engine
from syncline.core.refs import ObjectRef
from syncline.core.remote import remote
from syncline.runs.json_values import JsonObject, Record
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import ValidationConfig, ValidationFn, ValidationTaskConfig
from syncline.train.controller.run_recorder import RunRecorder

logger = logging.getLogger("syncline")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """One checkpoint to validate."""

    index: int
    """Number of its report."""
    checkpoint: Checkpoint
    fn_kwargs: JsonObject
    timeout_s: float | None


@dataclass(frozen=True, kw_only=True)
class ValidationEnded:
    """End of one validation, with either `metrics` or `problem`."""

    index: int
    metrics: JsonObject | None = None
    problem: str | None = None
    timed_out: bool = False


def merged(config: ValidationConfig, requested: bool | ValidationTaskConfig) -> JsonObject:
    """Return `fn_kwargs` and `timeout_s` of a validation: those of `report` override the trainer's.

    They are stored with the checkpoint while the validation is pending.
    """
    default = config.task_config or ValidationTaskConfig()
    given = requested if isinstance(requested, ValidationTaskConfig) else ValidationTaskConfig()
    return {
        "fn_kwargs": {**(default.fn_kwargs or {}), **(given.fn_kwargs or {})},
        "timeout_s": given.timeout_s if given.timeout_s is not None else default.timeout_s,
    }


class ValidationQueue:
    """Runs validations one after the other. Not thread-safe.

    Args:
        config: The validation function and the options of its task.
        on_end: Called with the end of each validation, on any thread.
    """

    def __init__(self, config: ValidationConfig, on_end: Callable[[ValidationEnded], None]) -> None:
        # Training holds its resources. By default a validation requests none, so that it does not
        # wait until training has ended.
        options = {"num_cpus": 0, "max_retries": 0, **(config.ray_remote_kwargs or {})}
        self._task = remote(**options)(_validate)
        self._function = config.fn
        self._on_end = on_end
        self._waiting: deque[Validation] = deque()
        self._running: tuple[Validation, ObjectRef[object]] | None = None

    @property
    def idle(self) -> bool:
        """True if no validation is queued or running."""
        return self._running is None and not self._waiting

    @property
    def running(self) -> Validation | None:
        """Validation in progress."""
        return self._running[0] if self._running is not None else None

    def add(self, validation: Validation) -> None:
        """Queue a validation; start it if none is running."""
        self._waiting.append(validation)
        if self._running is None:
            self.start_next()

    def start_next(self) -> None:
        """Start the next validation, if any."""
        if not self._waiting:
            return
        validation = self._waiting.popleft()
        ref: ObjectRef[object] = self._task.remote(
            self._function, validation.checkpoint, validation.fn_kwargs
        )
        self._running = (validation, ref)
        current_engine().on_value(
            ref, lambda value, error: self._on_end(_result(validation.index, value, error))
        )

    def finished(self, index: int) -> bool:
        """Note that a validation has ended; return False if it was stopped before."""
        if self._running is None or self._running[0].index != index:
            return False
        self._running = None
        return True

    def stop_running(self) -> None:
        """Cancel the validation in progress."""
        if self._running is not None:
            api.cancel(self._running[1], force=True)

    def stop(self) -> None:
        """Cancel all validations; a later run of the same name queues them again."""
        self._waiting.clear()
        self.stop_running()
        self._running = None


class ValidationRunner:
    """Validations of one run, with their time limits and records. Not thread-safe.

    Args:
        config: Validation function; None if the trainer has none.
        recorder: Record of the run.
        on_end: Called with the end of a validation, on any thread; passes it to `ended` later.
        set_timer: Sets the timer of the running validation to so many seconds; None cancels it.
    """

    def __init__(
        self,
        config: ValidationConfig | None,
        recorder: RunRecorder,
        on_end: Callable[[ValidationEnded], None],
        set_timer: Callable[[float | None], None],
    ) -> None:
        self._config = config
        self._recorder = recorder
        self._queue = ValidationQueue(config, on_end) if config is not None else None
        self._set_timer = set_timer

    @property
    def idle(self) -> bool:
        """True if no validation is queued or running."""
        return self._queue is None or self._queue.idle

    def arguments(self, requested: bool | ValidationTaskConfig | None) -> JsonObject | None:
        """Return the stored arguments of a requested validation; None for no validation."""
        if self._config is None or requested is None:
            return None
        return merged(self._config, requested)

    def add(self, index: int, checkpoint: Checkpoint, arguments: Record) -> None:
        """Queue the validation of a committed checkpoint."""
        assert self._queue is not None
        validation = Validation(
            index=index,
            checkpoint=checkpoint,
            fn_kwargs=dict(arguments.get("fn_kwargs") or {}),
            timeout_s=arguments.get("timeout_s"),
        )
        is_first = self._queue.idle
        self._queue.add(validation)
        if is_first:
            self._time_running()

    def add_pending(self) -> None:
        """Queue the validations that an earlier run of this name has left pending."""
        for entry in self._recorder.manager.pending:
            if self._queue is None:
                self._recorder.validation_failed(entry.index, timed_out=False)
            else:
                self.add(entry.index, entry.checkpoint, entry.validation_kwargs or {})

    def timed_out(self) -> ValidationEnded | None:
        """Cancel the running validation at its time limit; return its end."""
        running = self._queue.running if self._queue is not None else None
        if self._queue is None or running is None:
            return None
        self._queue.stop_running()
        problem = f"it ran longer than {running.timeout_s:g} s"
        return ValidationEnded(index=running.index, problem=problem, timed_out=True)

    def ended(self, ended: ValidationEnded) -> None:
        """Record the end of a validation and start the next one.

        Raises:
            OSError: The result cannot be written.
        """
        if self._queue is None or not self._queue.finished(ended.index):
            return
        if ended.metrics is not None:
            self._recorder.validated(ended.index, ended.metrics)
        else:
            logger.warning(
                "The validation of report %d failed; training continues: %s",
                ended.index,
                ended.problem,
            )
            self._recorder.validation_failed(ended.index, timed_out=ended.timed_out)
        self._queue.start_next()
        self._time_running()

    def stop(self) -> None:
        """Cancel all validations."""
        if self._queue is not None:
            self._queue.stop()

    def _time_running(self) -> None:
        running = self._queue.running if self._queue is not None else None
        self._set_timer(running.timeout_s if running is not None else None)


def _validate(fn: ValidationFn, checkpoint: Checkpoint, fn_kwargs: JsonObject) -> JsonObject:
    """Run the user's function in the worker process of its task."""
    return fn(checkpoint, **fn_kwargs)


def _result(index: int, value: Any, error: BaseException | None) -> ValidationEnded:
    if error is not None:
        return ValidationEnded(index=index, problem=f"{type(error).__name__}: {error}")
    try:
        return ValidationEnded(index=index, metrics=metric_values.clean(value))
    except (TypeError, ValueError) as mistake:
        return ValidationEnded(
            index=index, problem=f"its return value cannot be merged into the metrics: {mistake}"
        )
