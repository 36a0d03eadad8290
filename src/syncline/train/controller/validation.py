"""Validations: the user's function, run on checkpoints as a task beside training; one at a time,
first in, first out.

A validation that fails or takes too long is told and never fails the run.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from syncline.core import api
from syncline.core import refs as references
from syncline.core.refs import ObjectRef
from syncline.core.remote import remote
from syncline.train import metrics as metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import ValidationConfig, ValidationFn, ValidationTaskConfig

logger = logging.getLogger("syncline")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """One checkpoint to validate."""

    index: int
    """The number of its report."""
    checkpoint: Checkpoint
    fn_kwargs: dict[str, Any]
    timeout_s: float | None


@dataclass(frozen=True, kw_only=True)
class ValidationEnded:
    """One validation is over: `metrics`, or `problem` and whether that was the time."""

    index: int
    metrics: dict[str, Any] | None = None
    problem: str | None = None
    timed_out: bool = False


def merged(config: ValidationConfig, asked: bool | ValidationTaskConfig) -> dict[str, Any]:
    """`fn_kwargs` and `timeout_s` of a validation: what the report says over what the trainer says.
    Kept while it is pending.
    """
    default = config.task_config or ValidationTaskConfig()
    given = asked if isinstance(asked, ValidationTaskConfig) else ValidationTaskConfig()
    return {
        "fn_kwargs": {**(default.fn_kwargs or {}), **(given.fn_kwargs or {})},
        "timeout_s": given.timeout_s if given.timeout_s is not None else default.timeout_s,
    }


class ValidationQueue:
    """Runs validations in turn; their ends are told to `on_end`, on any thread. Not safe for use
    from several threads.
    """

    def __init__(self, config: ValidationConfig, on_end: Callable[[ValidationEnded], None]) -> None:
        # Training holds what it needs; a validation that asks for nothing must not wait until
        # training has ended.
        self._task = remote(
            **{"num_cpus": 0, "max_retries": 0, **(config.ray_remote_kwargs or {})}
        )(_validate)
        self._function = config.fn
        self._on_end = on_end
        self._waiting: deque[Validation] = deque()
        self._running: tuple[Validation, ObjectRef[Any]] | None = None

    @property
    def idle(self) -> bool:
        """Nothing waits or runs."""
        return self._running is None and not self._waiting

    @property
    def running(self) -> Validation | None:
        """The one in flight."""
        return self._running[0] if self._running is not None else None

    def add(self, validation: Validation) -> bool:
        """Put one at the end; True if it runs at once."""
        self._waiting.append(validation)
        return self._running is None and self.start_next()

    def start_next(self) -> bool:
        """Begin with the next; True if there was one."""
        if not self._waiting:
            return False
        validation = self._waiting.popleft()
        ref: ObjectRef[Any] = self._task.remote(
            self._function, validation.checkpoint, validation.fn_kwargs
        )
        self._running = (validation, ref)
        references.current_engine().on_value(
            ref, lambda value, error: self._on_end(_judged(validation.index, value, error))
        )
        return True

    def finished(self, index: int) -> bool:
        """The validation of this number has ended; False if that was known (it had run out of
        time).
        """
        if self._running is None or self._running[0].index != index:
            return False
        self._running = None
        return True

    def stop_running(self) -> None:
        """End the one in flight."""
        if self._running is not None:
            api.cancel(self._running[1], force=True)

    def stop(self) -> None:
        """End the one in flight and forget the others: a later run of the same name queues them
        again.
        """
        self._waiting.clear()
        self.stop_running()
        self._running = None


def _validate(
    fn: ValidationFn, checkpoint: Checkpoint, fn_kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The task: runs in a worker process of its own."""
    return fn(checkpoint, **fn_kwargs)


def _judged(index: int, value: Any, error: BaseException | None) -> ValidationEnded:
    if error is not None:
        return ValidationEnded(index=index, problem=f"{type(error).__name__}: {error}")
    try:
        return ValidationEnded(index=index, metrics=metric_values.clean(value))
    except (TypeError, ValueError) as mistake:
        return ValidationEnded(
            index=index, problem=f"what it returned cannot be merged into the metrics: {mistake}"
        )
