"""Configuration classes at their older import path; trainers and searches accept them."""

from syncline.train.config import ScalingConfig, SyncConfig
from syncline.tune.config import CheckpointConfig, FailureConfig, RunConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig", "SyncConfig"]
