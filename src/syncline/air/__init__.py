"""What older programs import from here and is now in `syncline.train` and `syncline.tune`:
`config`, `session`, `integrations`. Nothing here behaves in a way of its own.
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
