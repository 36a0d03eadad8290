"""Validation of checkpoints: the user's function runs as a task alongside training, one at a time,
first in, first out.

A validation that fails or times out is logged and never fails the run.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syncline.core import api
from syncline.core.engine import current_engine
from syncline.core.error_messages import death_of
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


class ValidationRunner:
    """Validations of one run, with their time limits and records. Not thread-safe.

    Args:
        config: Validation function and options of its task; None if the trainer has none.
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
        self._on_end = on_end
        self._set_timer = set_timer
        # Training holds its resources. By default a validation requests none, so that it does not
        # wait until training has ended.
        options = {"num_cpus": 0, "max_retries": 0}
        if config is not None:
            options |= config.ray_remote_kwargs or {}
        self._task = remote(**options)(_validate)
        self._waiting: deque[Validation] = deque()
        self._running: tuple[Validation, ObjectRef[object]] | None = None

    @property
    def idle(self) -> bool:
        """True if no validation is queued or running."""
        return self._running is None and not self._waiting

    def arguments(self, requested: bool | ValidationTaskConfig | None) -> JsonObject | None:
        """Return `fn_kwargs` and `timeout_s` of a requested validation: those of `report` override
        the trainer's. They are stored with the checkpoint while the validation is pending. None for
        no validation.
        """
        if self._config is None or requested is None:
            return None
        default = self._config.task_config or ValidationTaskConfig()
        given = requested if isinstance(requested, ValidationTaskConfig) else ValidationTaskConfig()
        return {
            "fn_kwargs": {**(default.fn_kwargs or {}), **(given.fn_kwargs or {})},
            "timeout_s": given.timeout_s if given.timeout_s is not None else default.timeout_s,
        }

    def add(self, index: int, checkpoint: Checkpoint, arguments: Record) -> None:
        """Queue the validation of a committed checkpoint; start it if none is running."""
        self._waiting.append(
            Validation(
                index=index,
                checkpoint=checkpoint,
                fn_kwargs=dict(arguments.get("fn_kwargs") or {}),
                timeout_s=arguments.get("timeout_s"),
            )
        )
        if self._running is None:
            self._start_next()

    def add_pending(self) -> None:
        """Queue the validations that an earlier run of this name has left pending."""
        for entry in self._recorder.manager.pending:
            if self._config is None:
                self._recorder.validated(entry.index, None)
            else:
                self.add(entry.index, entry.checkpoint, entry.validation_kwargs or {})

    def timed_out(self) -> ValidationEnded | None:
        """Cancel the running validation at its time limit; return its end."""
        if self._running is None:
            return None
        validation, ref = self._running
        api.cancel(ref, force=True)
        problem = f"it ran longer than {validation.timeout_s:g} s"
        return ValidationEnded(index=validation.index, problem=problem, timed_out=True)

    def ended(self, ended: ValidationEnded) -> None:
        """Record the end of a validation and start the next one. No effect if it was stopped.

        Raises:
            OSError: The result cannot be written.
        """
        if self._running is None or self._running[0].index != ended.index:
            return
        self._running = None
        if ended.metrics is None:
            logger.warning(
                "The validation of report %d failed; training continues: %s",
                ended.index,
                ended.problem,
            )
        self._recorder.validated(ended.index, ended.metrics, timed_out=ended.timed_out)
        if self._waiting:
            self._start_next()
        else:
            self._set_timer(None)

    def stop(self) -> None:
        """Cancel all validations; a later run of the same name queues them again."""
        self._waiting.clear()
        if self._running is not None:
            api.cancel(self._running[1], force=True)
            self._running = None

    def _start_next(self) -> None:
        assert self._config is not None, "validations need a function"
        validation = self._waiting.popleft()
        ref: ObjectRef[object] = self._task.remote(
            self._config.fn, validation.checkpoint, validation.fn_kwargs
        )
        self._running = (validation, ref)
        current_engine().on_value(
            ref, lambda value, error: self._on_end(_result(validation.index, value, error))
        )
        self._set_timer(validation.timeout_s)


def _validate(fn: ValidationFn, checkpoint: Checkpoint, fn_kwargs: JsonObject) -> JsonObject:
    """Run the user's function in the worker process of its task."""
    return fn(checkpoint, **fn_kwargs)


def _result(index: int, value: Any, error: BaseException | None) -> ValidationEnded:
    if error is not None:
        error = death_of("Its process", error)
        return ValidationEnded(index=index, problem=f"{type(error).__name__}: {error}")
    try:
        return ValidationEnded(index=index, metrics=metric_values.clean(value))
    except (TypeError, ValueError) as mistake:
        return ValidationEnded(
            index=index, problem=f"its return value cannot be merged into the metrics: {mistake}"
        )
