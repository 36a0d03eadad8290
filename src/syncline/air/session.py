"""Functions for training functions at their older import path; see `syncline.train`."""

from __future__ import annotations

from typing import Any

from syncline.train import session as train_session
from syncline.train.checkpoint import Checkpoint


def report(
    metrics: dict[str, Any],
    *,
    checkpoint: Checkpoint | None = None,
    checkpoint_dir_name: str | None = None,
) -> None:
    """Call `syncline.train.report`."""
    train_session.report(metrics, checkpoint=checkpoint, checkpoint_dir_name=checkpoint_dir_name)


def get_checkpoint() -> Checkpoint | None:
    """Call `syncline.train.get_checkpoint`."""
    return train_session.get_checkpoint()


def get_dataset_shard(dataset_name: str | None = None) -> Any:
    """Call `syncline.train.get_dataset_shard`."""
    return train_session.get_dataset_shard(dataset_name)


def get_experiment_name() -> str:
    """Call `syncline.train.get_context().get_experiment_name`."""
    return train_session.get_context().get_experiment_name()


def get_world_size() -> int:
    """Call `syncline.train.get_context().get_world_size`."""
    return train_session.get_context().get_world_size()


def get_world_rank() -> int:
    """Call `syncline.train.get_context().get_world_rank`."""
    return train_session.get_context().get_world_rank()


def get_local_rank() -> int:
    """Call `syncline.train.get_context().get_local_rank`."""
    return train_session.get_context().get_local_rank()


def get_local_world_size() -> int:
    """Call `syncline.train.get_context().get_local_world_size`."""
    return train_session.get_context().get_local_world_size()


def get_node_rank() -> int:
    """Call `syncline.train.get_context().get_node_rank`."""
    return train_session.get_context().get_node_rank()
