"""Import paths of older programs for names of `syncline.train` and `syncline.tune`.

`config`, `session` and `integrations`.
"""

from syncline.air import session
from syncline.air.config import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from syncline.train.checkpoint import Checkpoint
from syncline.train.result import Result

__all__ = [
    "Checkpoint",
    "CheckpointConfig",
    "FailureConfig",
    "Result",
    "RunConfig",
    "ScalingConfig",
    "session",
]
