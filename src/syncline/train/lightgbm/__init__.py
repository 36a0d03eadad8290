"""LightGBM on a group of workers, each with its part of the rows.

Files in the order in which a run meets them:
    trainer.py       `LightGBMTrainer`: what the program makes and fits
    config.py        `LightGBMConfig`, and the backend that tells the workers of each other
    network.py       the worker's side of that: `get_network_params`
    frames.py        `normalize_pandas_for_lightgbm`: columns of Arrow types as LightGBM takes them
    callback.py      `RayTrainReportCallback`: reports every round, and the model as checkpoints
    checkpoint.py    `LightGBMCheckpoint`: a model as a checkpoint

ImportError where lightgbm is not installed. Where it is, it is imported by the workers and by what
needs it: that takes seconds, and a process that has its threads cannot be forked.
"""

from syncline.optional import require
from syncline.train.lightgbm.callback import RayTrainReportCallback
from syncline.train.lightgbm.checkpoint import LightGBMCheckpoint
from syncline.train.lightgbm.config import LightGBMConfig
from syncline.train.lightgbm.frames import normalize_pandas_for_lightgbm
from syncline.train.lightgbm.network import get_network_params
from syncline.train.lightgbm.trainer import LightGBMTrainer

__all__ = [
    "LightGBMCheckpoint",
    "LightGBMConfig",
    "LightGBMTrainer",
    "RayTrainReportCallback",
    "get_network_params",
    "normalize_pandas_for_lightgbm",
]

require("lightgbm", purpose="syncline.train.lightgbm", install="syncline[lightgbm]")
