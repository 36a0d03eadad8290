"""Functions for the function of a trial: `report`, `get_checkpoint`, `get_context`.

Outside a trial they warn and do nothing, so that the function of a trial can be called directly.
Inside a worker of a trainer they are the functions of `syncline.train`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from numbers import Number
from typing import Any, cast

from syncline.train import session as train_session
from syncline.train.checkpoint import Checkpoint
from syncline.train.session import current_session
from syncline.train.storage.context import StorageContext
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.result import DEFAULT_METRIC
from syncline.tune.trainable.session import TrialSession


class TuneContext:
    """Information about the trial; returned by `get_context()`. Outside a trial each method warns
    and returns None.

    A trial has one worker; in a worker of a trainer, ranks and sizes are the worker's.
    """

    def get_experiment_name(self) -> str | None:
        """Return the name of the search; in a worker of a trainer, that of the run."""
        return cast("str | None", _of_session("experiment_name"))

    def get_trial_id(self) -> str | None:
        """Return the id of the trial."""
        return cast("str | None", _of_trial("trial_id"))

    def get_trial_name(self) -> str | None:
        """Return the display name of the trial."""
        return cast("str | None", _of_trial("trial_name"))

    def get_trial_dir(self) -> str | None:
        """Return the directory of the trial on this machine."""
        directory = cast("str | None", _of_trial("trial_dir"))
        if directory is not None:  # a short trial has none before it needs one
            os.makedirs(directory, exist_ok=True)
        return directory

    def get_trial_resources(self) -> PlacementGroupFactory | None:
        """Return the reserved resources of the trial."""
        return cast("PlacementGroupFactory | None", _of_trial("resources"))

    def get_storage(self) -> StorageContext | None:
        """Return the directory of the trial on the storage."""
        storage = cast("StorageContext | None", _of_session("storage"))
        if storage is not None and storage.local:
            os.makedirs(storage.experiment_fs_path, exist_ok=True)
        return storage

    def get_world_size(self) -> int | None:
        """Return the number of workers: 1."""
        return cast("int | None", _of_session("world_size"))

    def get_world_rank(self) -> int | None:
        """Return the rank of the worker: 0."""
        return cast("int | None", _of_session("world_rank"))

    def get_local_rank(self) -> int | None:
        """Return the rank of the worker on its node: 0."""
        return cast("int | None", _of_session("local_rank"))

    def get_local_world_size(self) -> int | None:
        """Return the number of workers on the node: 1."""
        return cast("int | None", _of_session("local_world_size"))

    def get_node_rank(self) -> int | None:
        """Return the rank of the node: 0."""
        return cast("int | None", _of_session("node_rank"))


def get_context() -> TuneContext:
    """Return name, id, directory and resources of this trial, and the name of the search."""
    return TuneContext()


def report(
    metrics: Mapping[str, Any] | float | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    **older: object,
) -> None:
    """Report a result, and optionally a checkpoint, to the search. Return when the search wants the
    next one; do not return if it stops the trial.

    Each call is one iteration. Older programs pass metrics by keyword, or a single number.

    Args:
        metrics: Numbers, strings, and lists and dicts of these; NumPy scalars are converted.
            `done=True` ends the trial.
        checkpoint: Directory with files to keep; it may be deleted after the call.

    Raises:
        ValueError: A tensor among the metrics.
        TypeError: Metrics, or a checkpoint, of another type.
    """
    # `train_session.report` refuses metrics that are no mapping.
    named: Any = {DEFAULT_METRIC: metrics} if isinstance(metrics, Number) else metrics
    values = named if not older else {**(named or {}), **older}
    if current_session() is None:
        _warn("report")
    else:
        train_session.report({} if values is None else values, checkpoint)


def get_checkpoint() -> Checkpoint | None:
    """Return the checkpoint to continue from: the last one that this trial reported, also in an
    earlier start, or was given; None without one.
    """
    if current_session() is None:
        _warn("get_checkpoint")
        return None
    return train_session.get_checkpoint()


def _of_session(attribute: str) -> object:
    session = current_session()
    if session is None:
        _warn("get_context")
    return getattr(session, attribute, None)


def _of_trial(attribute: str) -> object:
    session = current_session()
    if not isinstance(session, TrialSession):
        _warn("get_context")
        return None
    return getattr(session.info, attribute)


def _warn(function: str) -> None:
    warnings.warn(
        f"`tune.{function}()` was called outside a trial, so it does nothing and returns None: "
        "call it in the function that is passed to `Tuner` or `tune.run`.",
        stacklevel=3,
    )
