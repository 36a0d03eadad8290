"""`FunctionTrainable`: a function as a trainable. It runs in its own thread; each report is one
iteration.

The function does not run past a report before the next `train()`: its result and checkpoint are
processed while it waits.
"""

from __future__ import annotations

import contextvars
import copy
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from numbers import Number
from typing import Any, TypeAlias

from syncline.core.lifecycle import ensure_engine, is_initialized
from syncline.train.checkpoint import Checkpoint
from syncline.tune.execution.placement_groups import (
    PlacementGroupFactory,
    resource_dict_to_pg_factory,
)
from syncline.tune.result import (
    DEFAULT_METRIC,
    DONE,
    SHOULD_CHECKPOINT,
    TIME_TOTAL_S,
    TRAINING_ITERATION,
    Config,
    Metrics,
)
from syncline.tune.trainable.session import Ended, Reported, ReportQueue, TrialSession, TrialStopped
from syncline.tune.trainable.trainable import Trainable, TrainingResult, as_checkpoint
from syncline.tune.trainable.trainable_state import trainable_name

TrainFunction: TypeAlias = Callable[[Config], object]
Resources: TypeAlias = PlacementGroupFactory | Mapping[str, float] | Callable[[Config], Any] | None
"""Value of `with_resources`."""

FUNCTION_THREAD = "syncline-function"
RESET_LIMIT_S = 2.0
"""Seconds that a function may take to end before its process is reused. After that the next trial
gets a new process.
"""


class FunctionTrainable(Trainable):
    """Base of the classes that `wrap_function` returns."""

    _function: TrainFunction
    """The function; called with the configuration."""
    _resources: Resources = None

    def setup(self, config: Config) -> None:
        """Prepare the function, which starts with the first `train()`."""
        self._parameters = config
        self._reports = ReportQueue()
        self.session = TrialSession(self._info, self._reports)
        self._thread: threading.Thread | None = None
        self.message: Reported | Ended | None = None
        """Report of the last `train()`, whose checkpoint the next one may delete, or the end of the
        function.
        """
        self._failed: Ended | None = None  # raised by the next `train()`
        if (
            self._info.trial_dir is not None
            and is_initialized()
            and not ensure_engine().is_local_mode
        ):
            self.session.install()

    @property
    def ended(self) -> bool:
        """True if the function returned: the last `train()` had no new report."""
        return isinstance(self.message, Ended)

    def train(self) -> Metrics:
        """Return the next report with all filled-in keys. After the function returned, return the
        last one again with `done=True`.

        Raises:
            BaseException: The exception of the function, with its traceback.
        """
        (result,) = self.train_buffered(0.0, max_buffer_length=1)
        return result

    def train_buffered(self, buffer_time_s: float, max_buffer_length: int = 1000) -> list[Metrics]:
        """Return at least one result, as `train()` does, and those that follow. Stops when the time
        is over, the buffer is full, or a result has `done`, `should_checkpoint` or a checkpoint.

        Raises:
            BaseException: The exception of the function, with its traceback. If there are results,
                the next call raises it.
        """
        if self.ended:
            raise RuntimeError(
                f"{self!r} has already returned, so it cannot train further: create a new one."
            )
        results: list[Metrics] = []
        began = self._clock.steady()
        until = began + buffer_time_s

        def take(message: Reported) -> bool:
            """Complete a report; return True if the function may continue."""
            nonlocal began
            result = self._complete(dict(message.metrics), began)
            self.message = message
            results.append(result)
            began = self._clock.steady()
            needs_decision = (
                message.checkpoint is not None or result[DONE] or result.get(SHOULD_CHECKPOINT)
            )
            return not needs_decision and began < until and len(results) < max_buffer_length

        end = self._failed or self._continue(take)
        if end is None:
            return results
        if end.error is not None and results:
            self._failed = end
            return results
        self.message = end
        if end.error is not None:
            raise end.error
        last = self._last_result or {
            TRAINING_ITERATION: self.iteration,
            TIME_TOTAL_S: self.time_total_s,
            **self.get_auto_filled_metrics(time_this_iter=self._clock.steady() - began),
        }
        return [*results, {**last, DONE: True}]

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> TrainingResult:
        """Return the last reported checkpoint.

        Raises:
            ValueError: `checkpoint_dir` is given, but a function writes its own files.
            RuntimeError: The function reported no checkpoint.
        """
        if checkpoint_dir is not None:
            raise ValueError(
                f"save({os.fspath(checkpoint_dir)!r}): a function saves when it reports a "
                "checkpoint: call `save()` without a directory."
            )
        if self.session.latest is None:
            raise RuntimeError(
                f"{self!r} has reported no checkpoint: call `tune.report(metrics, checkpoint=…)` "
                "in the function."
            )
        return TrainingResult(checkpoint=self.session.latest, metrics=dict(self._last_result or {}))

    def restore(
        self, checkpoint_path: str | os.PathLike[str] | Checkpoint | TrainingResult
    ) -> None:
        """Set the checkpoint for `get_checkpoint()`. Call it before the first `train()`."""
        self.session.latest = as_checkpoint(checkpoint_path)
        if isinstance(checkpoint_path, TrainingResult):
            self.continue_from(checkpoint_path.metrics)

    def reset_config(self, new_config: Config) -> bool:
        """Stop the function; return True if it ended, so that a new call may start."""
        self.cleanup()
        if not self.wait_ended():
            return False
        self.setup(copy.deepcopy(new_config))
        return True

    def cleanup(self) -> None:
        """Ask the function to end at its next report. Does not wait."""
        self._reports.stop()
        self.session.uninstall()

    def wait_ended(self) -> bool:
        """Wait up to RESET_LIMIT_S after `cleanup()`; return True if the function ended."""
        if self._thread is not None:
            self._thread.join(RESET_LIMIT_S)
        return self._thread is None or not self._thread.is_alive()

    def _continue(self, take: Callable[[Reported], bool]) -> Ended | None:
        """Let the function run until `take` returns False for a report; return its end, if it ends
        before.
        """
        self._reports.expect(take)
        with self.session.active():
            if self._thread is None:
                # In this context, so that the function's actors take the bundles of the trial.
                self._thread = threading.Thread(
                    target=contextvars.copy_context().run,
                    args=(self._run,),
                    name=FUNCTION_THREAD,
                    daemon=True,
                )
                self._thread.start()
            else:
                self._reports.resume()
            return self._reports.receive()

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            for values in _reports(type(self)._function(self._parameters), repr(self)):
                self.session.send(values, None)
        except TrialStopped:
            self.session.uninstall()  # a trainer inside may have restored it
            return
        except SystemExit as leaving:
            error = RuntimeError(
                f"{self!r} called `sys.exit({leaving.code!r})`, which does not end a trial: "
                "return, or raise an exception."
            )
            error.__cause__ = leaving
        except BaseException as raised:
            error = raised
        self._reports.end(Ended(error=error))

    @classmethod
    def default_resource_request(cls, config: Config) -> PlacementGroupFactory | None:
        """Return the resources set by `with_resources`."""
        return requested_resources(cls._resources, config)

    def __repr__(self) -> str:
        return type(self).__name__


def wrap_function(
    train_func: Callable[..., object], name: str | None = None
) -> type[FunctionTrainable]:
    """Return the trainable class of a function with one parameter, its configuration.

    The function may call `report`, return a dictionary or a number (one report), or yield them (one
    report each).

    Raises:
        TypeError: `train_func` is not callable.
        ValueError: It takes no parameter, or requires more than one.
    """
    check_signature(train_func)
    resources: Resources = getattr(train_func, "_resources", None)
    attributes = {
        "_function": staticmethod(train_func),
        "_resources": staticmethod(resources) if callable(resources) else resources,
        "__doc__": train_func.__doc__,
        "__module__": FunctionTrainable.__module__,
    }
    return type(name or trainable_name(train_func), (FunctionTrainable,), attributes)


def requested_resources(resources: Resources, config: Config) -> PlacementGroupFactory | None:
    """Return the resources for one configuration.

    Raises:
        TypeError: `resources` has an unknown type.
    """
    if callable(resources) and not isinstance(resources, PlacementGroupFactory):
        resources = resources(config)
    if resources is None or isinstance(resources, PlacementGroupFactory):
        return resources
    if isinstance(resources, Mapping):
        return resource_dict_to_pg_factory(resources)
    raise TypeError(
        f"resources {resources!r} have an unknown type: pass a dictionary such as "
        "{'cpu': 1, 'gpu': 0.5}, a PlacementGroupFactory, or a function that takes the "
        "configuration and returns one of these."
    )


def check_signature(function: Callable[..., object]) -> None:
    """Check that `function(config)` is a valid call.

    Raises:
        TypeError: `function` is not callable.
        ValueError: It takes no parameter, or requires more than one.
    """
    if not callable(function):
        raise TypeError(
            f"{function!r} is not callable, so it cannot be trained: pass a function that takes "
            "the configuration, or a subclass of Trainable."
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in callables have no signature
        return
    name, parameters = trainable_name(function), signature.parameters.keys()
    try:
        signature.bind({})
    except TypeError as error:
        if not parameters:
            remedy = f"add a parameter for the configuration, as in `def {name}(config):`"
        elif "reporter" in parameters:
            remedy = "remove `reporter` and call `tune.report(metrics)` instead"
        elif "checkpoint_dir" in parameters:
            remedy = "remove `checkpoint_dir` and call `tune.get_checkpoint()` instead"
        else:
            remedy = "bind the other ones with `tune.with_parameters(function, name=value)`"
        raise ValueError(
            f"`{name}{signature}` cannot be a trial, because a trial calls it with its "
            f"configuration only: {remedy}."
        ) from error
    if "checkpoint_dir" in parameters:
        warnings.warn(
            f"`{name}{signature}`: `checkpoint_dir` is no longer passed, so the function never "
            "continues from a checkpoint: call `tune.get_checkpoint()` instead.",
            stacklevel=3,
        )


def _reports(output: object, name: str) -> Iterator[Metrics]:
    """Yield the returned or yielded values of a function as reports."""
    if not inspect.isgenerator(output):
        if output is not None:
            yield _named(output, name)
        return
    with closing(output):
        for value in output:
            if value is not None:
                yield _named(value, name)


def _named(value: object, name: str) -> Metrics:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Number):
        return {DEFAULT_METRIC: value}
    raise ValueError(
        f"`{name}` returned or yielded a {type(value).__name__}, which is no result: return a "
        "dictionary of metrics, a number, or None."
    )
