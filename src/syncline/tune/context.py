"""What a function that is a trial may call: `report`, `get_checkpoint`, `get_context`, and their
older forms.

Outside a trial the program goes on with a warning, so that a trial's function can also be called by
hand; inside a worker of a trainer, these are the functions of `syncline.train`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Number
from typing import Any, cast

from syncline.train import session as train_session
from syncline.train.checkpoint import Checkpoint
from syncline.train.session import current_session
from syncline.train.storage import StorageContext
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.result import DEFAULT_METRIC
from syncline.tune.trainable.session import TrialSession


class TuneContext:
    """Facts about the trial; made by `get_context()`. Outside a trial there are none: a warning,
    and None.

    Ranks and sizes are those of a run with one worker; in a worker of a trainer, its own.
    """

    def get_experiment_name(self) -> str | None:
        """The search's name; in a worker of a trainer, that of the run."""
        return cast("str | None", _of_session("experiment_name"))

    def get_trial_id(self) -> str | None:
        """The trial's id."""
        return cast("str | None", _of_trial("trial_id"))

    def get_trial_name(self) -> str | None:
        """What people call the trial."""
        return cast("str | None", _of_trial("trial_name"))

    def get_trial_dir(self) -> str | None:
        """The trial's directory on this machine."""
        return cast("str | None", _of_trial("trial_dir"))

    def get_trial_resources(self) -> PlacementGroupFactory | None:
        """What the trial holds."""
        return cast("PlacementGroupFactory | None", _of_trial("resources"))

    def get_storage(self) -> StorageContext | None:
        """Where the trial keeps its files."""
        return cast("StorageContext | None", _of_session("storage"))

    def get_world_size(self) -> int | None:
        """How many workers train together: 1."""
        return cast("int | None", _of_session("world_size"))

    def get_world_rank(self) -> int | None:
        """The worker's number: 0."""
        return cast("int | None", _of_session("world_rank"))

    def get_local_rank(self) -> int | None:
        """The worker's number on its node: 0."""
        return cast("int | None", _of_session("local_rank"))

    def get_local_world_size(self) -> int | None:
        """How many workers are on the node: 1."""
        return cast("int | None", _of_session("local_world_size"))

    def get_node_rank(self) -> int | None:
        """The number of the node: 0."""
        return cast("int | None", _of_session("node_rank"))


def get_context() -> TuneContext:
    """The facts about this trial: its name, id, directory and resources, and the search's name."""
    return TuneContext()


def report(
    metrics: Mapping[str, Any] | float | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    **older: Any,
) -> None:
    """Hand a result, and with it perhaps a checkpoint, to the search. Returns when the search wants
    the next one, or never.

    Each call is one iteration. Metrics may also be given by keyword, and a single number without a
    name, as older programs do.

    Args:
        metrics: numbers, strings, and lists and dicts of these; NumPy scalars are converted.
        `done=True` among them ends the trial. checkpoint: a directory with files to keep; it may be
        deleted after the call.

    Raises:
        ValueError: a tensor among the metrics.
        TypeError: metrics, or a checkpoint, of another kind.
    """
    named: Any = (
        {DEFAULT_METRIC: metrics} if isinstance(metrics, Number) else metrics
    )  # what is no mapping is refused further on
    values = named if not older else {**(named or {}), **older}
    if current_session() is None:
        _warn("report")
    else:
        train_session.report({} if values is None else values, checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """What to go on from: the last checkpoint that this trial reported, in an earlier start too, or
    was given; None at the start.
    """
    if current_session() is None:
        _warn("get_checkpoint")
        return None
    return train_session.get_checkpoint()


def get_trial_id() -> str | None:
    """As `get_context().get_trial_id()`."""
    return get_context().get_trial_id()


def get_trial_name() -> str | None:
    """As `get_context().get_trial_name()`."""
    return get_context().get_trial_name()


def get_trial_dir() -> str | None:
    """As `get_context().get_trial_dir()`."""
    return get_context().get_trial_dir()


def get_trial_resources() -> PlacementGroupFactory | None:
    """As `get_context().get_trial_resources()`."""
    return get_context().get_trial_resources()


def is_session_enabled() -> bool:
    """Whether this is a trial whose function may report."""
    return isinstance(current_session(), TrialSession)


def _of_session(fact: str) -> Any:
    session = current_session()
    return getattr(session, fact) if session is not None else _warn("get_context")


def _of_trial(fact: str) -> Any:
    session = current_session()
    return (
        getattr(session.facts, fact) if isinstance(session, TrialSession) else _warn("get_context")
    )


def _warn(function: str) -> None:
    warnings.warn(
        f"`tune.{function}()` was called outside a trial, so it does nothing and returns None: it has a meaning in the function that is "
        "given to `Tuner` or `tune.run`.",
        stacklevel=3,
    )
