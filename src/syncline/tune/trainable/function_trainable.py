"""`FunctionTrainable`: a function as a trainable. It runs in a thread of its own; every report is
one iteration.

The function never runs past a report before the next `train()`: what it reported, its checkpoint
too, is dealt with while it waits.
"""

from __future__ import annotations

import copy
import inspect
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from numbers import Number
from typing import Any

from syncline.core.lifecycle import ensure_engine, is_initialized
from syncline.train.checkpoint import Checkpoint
from syncline.tune.execution.placement_groups import (
    PlacementGroupFactory,
    resource_dict_to_pg_factory,
)
from syncline.tune.result import DEFAULT_METRIC, DONE, TIME_TOTAL_S, TRAINING_ITERATION
from syncline.tune.trainable.names import trainable_name
from syncline.tune.trainable.session import Ended, Exchange, Reported, TrialSession, TrialStopped
from syncline.tune.trainable.trainable import Trainable, TrainingResult, as_checkpoint

TrainFunction = Callable[[dict[str, Any]], Any]
Resources = PlacementGroupFactory | Mapping[str, float] | Callable[[dict[str, Any]], Any] | None

RESET_LIMIT_S = 2.0
"""How long a function may take to end before its process is another trial's; else that gets a new
process, if it can.
"""


class FunctionTrainable(Trainable):
    """Base of the classes that `wrap_function` makes."""

    _function: TrainFunction
    """What is trained; called with the configuration."""
    _resources: Resources = None

    def setup(self, config: dict[str, Any]) -> None:
        """Prepare to run the function, which begins with the first `train()`."""
        self._parameters = config
        self._exchange = Exchange()
        self._session = TrialSession(self._facts, self._exchange)
        self._thread: threading.Thread | None = None
        self._said: Reported | Ended | None = None
        if (
            self._facts.trial_dir is not None
            and is_initialized()
            and not ensure_engine().is_local_mode
        ):
            self._session.move_in()

    # -- what the runner reads after `train()`

    @property
    def ended(self) -> bool:
        """Whether the function has returned: the last `train()` brought nothing new."""
        return isinstance(self._said, Ended)

    @property
    def reported_checkpoint(self) -> Checkpoint | None:
        """What came with the last result. Its files may be gone after the next `train()`."""
        return self._said.checkpoint if isinstance(self._said, Reported) else None

    @property
    def reported_in_place(self) -> bool:
        """Whether that checkpoint is to stay where it lies."""
        return isinstance(self._said, Reported) and self._said.in_place

    @property
    def starting_checkpoint(self) -> Checkpoint | None:
        """What the function gets from `get_checkpoint()`: the one to begin from, or where the last
        one that it reported is kept.
        """
        return self._session.latest

    @starting_checkpoint.setter
    def starting_checkpoint(self, checkpoint: Checkpoint | None) -> None:
        self._session.latest = checkpoint

    # -- Trainable

    def train(self) -> dict[str, Any]:
        """The function's next report, with the counters and facts filled in; the last one again
        with `done=True` when it has returned.

        Raises:
            BaseException: what the function raises, with its traceback.
        """
        began = self._clock.steady()
        said = self._said = self._next()
        if isinstance(said, Reported):
            return self._complete(dict(said.metrics), began)
        if said.error is not None:
            raise said.error
        last = self._last_result or {
            TRAINING_ITERATION: self.iteration,
            TIME_TOTAL_S: self.time_total_s,
            **self.get_auto_filled_metrics(time_this_iter=self._clock.steady() - began),
        }
        return {**last, DONE: True}

    def save(self, checkpoint_dir: str | os.PathLike[str] | None = None) -> TrainingResult:
        """The last checkpoint that the function has reported.

        Raises:
            ValueError: a directory was given: the function says where its files are.
            RuntimeError: it has reported none.
        """
        if checkpoint_dir is not None:
            raise ValueError(
                f"save({os.fspath(checkpoint_dir)!r}): a function saves itself when it reports, so no directory can be given."
            )
        if self._session.latest is None:
            raise RuntimeError(
                f"{self!r} has no checkpoint: it reports none (`tune.report(metrics, checkpoint=…)`)."
            )
        return TrainingResult(
            checkpoint=self._session.latest, metrics=dict(self._last_result or {})
        )

    def restore(
        self, checkpoint_path: str | os.PathLike[str] | Checkpoint | TrainingResult
    ) -> None:
        """What the function gets from `get_checkpoint()`; before the first `train()`."""
        self.starting_checkpoint = as_checkpoint(checkpoint_path)
        if isinstance(checkpoint_path, TrainingResult):
            self.continue_from(checkpoint_path.metrics)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """True if the function has ended, or does at once: another call of it may begin."""
        self.cleanup()
        if not self.has_left():
            return False
        self.setup(copy.deepcopy(new_config))
        return True

    def cleanup(self) -> None:
        """Tell the function to end. It does so at its next report; nobody waits for that."""
        self._exchange.stop()
        self._session.move_out()

    def has_left(self) -> bool:
        """Whether the function has ended, or does within RESET_LIMIT_S; after `cleanup()`."""
        if self._thread is not None:
            self._thread.join(RESET_LIMIT_S)
        return self._thread is None or not self._thread.is_alive()

    def _next(self) -> Reported | Ended:
        if self.ended:
            raise RuntimeError(
                f"{self!r} has returned already, so there is nothing to train any more: make a new one."
            )
        with self._session.at_work():
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="syncline-function", daemon=True
                )
                self._thread.start()
            else:
                self._exchange.go_on()
            return self._exchange.hear()

    def _run(self) -> None:
        """The function's thread."""
        error: BaseException | None = None
        try:
            for values in _reports(type(self)._function(self._parameters), repr(self)):
                self._session.hand_over(values, None)
        except TrialStopped:
            self._session.move_out()  # a trainer inside has put it back
            return
        except SystemExit as leaving:
            error = RuntimeError(
                f"{self!r} called `sys.exit({leaving.code!r})`, which ends no trial: return, or raise an error."
            )
            error.__cause__ = leaving
        except BaseException as raised:
            error = raised
        self._exchange.say(Ended(error=error))

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:
        """What `with_resources` said."""
        return requested(cls._resources, config)

    def __repr__(self) -> str:
        return type(self).__name__


def wrap_function(
    train_func: Callable[..., Any], name: str | None = None
) -> type[FunctionTrainable]:
    """The trainable class of a function with one parameter, its configuration.

    The function may report, return a dictionary or a number (one report), or be a generator (a
    report each).

    Raises:
        TypeError: `train_func` cannot be called.
        ValueError: it takes no parameter, or needs more than one.
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


def requested(resources: Resources, config: dict[str, Any]) -> PlacementGroupFactory | None:
    """What `with_resources` was given, for one configuration. TypeError if that is no amount of
    resources.
    """
    if callable(resources) and not isinstance(resources, PlacementGroupFactory):
        resources = resources(config)
    if resources is None or isinstance(resources, PlacementGroupFactory):
        return resources
    if isinstance(resources, Mapping):
        return resource_dict_to_pg_factory(resources)
    raise TypeError(
        f"resources {resources!r} are of an unknown kind: give a dictionary such as {{'cpu': 1, 'gpu': 0.5}}, a PlacementGroupFactory, "
        "or a function that takes the configuration and returns one of these."
    )


def check_signature(function: Callable[..., Any]) -> None:
    """That `function(config)` is possible. TypeError, ValueError if not."""
    if not callable(function):
        raise TypeError(
            f"{function!r} cannot be trained: give a function that takes the configuration, or a class derived from Trainable."
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in callables do not say what they take
        return
    name, older = trainable_name(function), signature.parameters.keys()
    try:
        signature.bind({})
    except TypeError as error:
        if not older:
            remedy = f"give it one parameter for the configuration, as in `def {name}(config):`"
        elif "reporter" in older:
            remedy = "leave `reporter` out and call `tune.report(metrics)` instead"
        elif "checkpoint_dir" in older:
            remedy = "leave `checkpoint_dir` out and call `tune.get_checkpoint()` instead"
        else:
            remedy = "bind what it needs besides with `tune.with_parameters(function, name=value)`"
        raise ValueError(
            f"`{name}{signature}` cannot be a trial, because a trial's function is called with its configuration: {remedy}."
        ) from error
    if "checkpoint_dir" in older:
        warnings.warn(
            f"`{name}{signature}`: `checkpoint_dir` is not passed any more, so the function would never go on from a checkpoint: call "
            "`tune.get_checkpoint()` instead.",
            stacklevel=3,
        )


def _reports(output: Any, name: str) -> Iterator[dict[str, Any]]:
    """What a function returned or yields, as reports."""
    if not inspect.isgenerator(output):
        if output is not None:
            yield _named(output, name)
        return
    with closing(output):
        for value in output:
            if value is not None:
                yield _named(value, name)


def _named(value: Any, name: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Number):
        return {DEFAULT_METRIC: value}
    raise ValueError(
        f"`{name}` returned or yielded a {type(value).__name__}, which is no result: return a dictionary of metrics, a number, or nothing."
    )
