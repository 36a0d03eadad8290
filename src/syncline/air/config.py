"""The configuration classes of `syncline.train` under their older address."""

from syncline.train.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, SyncConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig", "SyncConfig"]
