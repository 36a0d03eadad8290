"""LightGBM on a group of workers, each with a shard of the rows.

Files in the order in which data flows through them:
    trainer.py       `LightGBMTrainer`, and `normalize_pandas_for_lightgbm` for Arrow columns
    config.py       `LightGBMConfig`, its backend, the worker's side, `get_network_params`
    callback.py      `RayTrainReportCallback`: reports metrics and checkpoints
    checkpoint.py    `LightGBMCheckpoint`: checkpoints of models

Importing this package raises ImportError if lightgbm is not installed. It is imported by the
workers and on first use: that takes seconds, and a process with its threads cannot be forked.
"""

from syncline.optional import require
from syncline.train.lightgbm.callback import RayTrainReportCallback
from syncline.train.lightgbm.checkpoint import LightGBMCheckpoint
from syncline.train.lightgbm.config import LightGBMConfig, get_network_params
from syncline.train.lightgbm.trainer import LightGBMTrainer, normalize_pandas_for_lightgbm

__all__ = [
    "LightGBMCheckpoint",
    "LightGBMConfig",
    "LightGBMTrainer",
    "RayTrainReportCallback",
    "get_network_params",
    "normalize_pandas_for_lightgbm",
]

require("lightgbm", purpose="syncline.train.lightgbm", install="syncline[lightgbm]")
