"""The configuration classes under their older address: those of `syncline.tune`, which trainers and
searches both take.
"""

from syncline.train.config import ScalingConfig, SyncConfig
from syncline.tune.config import CheckpointConfig, FailureConfig, RunConfig

__all__ = ["CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig", "SyncConfig"]
