"""XGBoost on a group of workers, each with its part of the rows.

Files in the order in which a run meets them:
    trainer.py       `XGBoostTrainer`: what the program makes and fits
    config.py        `XGBoostConfig`, and the backend that connects the workers
    collective.py    the worker's side of that: tracker, communicator
    callback.py      `RayTrainReportCallback`: reports every round, and the model as checkpoints
    checkpoint.py    `XGBoostCheckpoint`: a model as a checkpoint

ImportError where xgboost is not installed. Where it is, it is imported by the workers and by what
needs it: that takes seconds, and a process that has its threads cannot be forked.
"""

import importlib
from typing import TYPE_CHECKING, Any

from syncline.optional import require
from syncline.train.xgboost.checkpoint import XGBoostCheckpoint
from syncline.train.xgboost.config import XGBoostConfig
from syncline.train.xgboost.trainer import XGBoostTrainer

if TYPE_CHECKING:
    from syncline.train.xgboost.callback import RayTrainReportCallback

__all__ = ["RayTrainReportCallback", "XGBoostCheckpoint", "XGBoostConfig", "XGBoostTrainer"]

require("xgboost", purpose="syncline.train.xgboost", install="syncline[xgboost]")


def __getattr__(name: str) -> Any:
    if name == "RayTrainReportCallback":
        return importlib.import_module("syncline.train.xgboost.callback").RayTrainReportCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
