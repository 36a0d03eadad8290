"""XGBoost on a group of workers, each with a shard of the rows.

Files in the order in which data flows through them:
    trainer.py       `XGBoostTrainer`
    config.py       `XGBoostConfig`, its backend, and the worker's side: tracker, communicator
    callback.py      `RayTrainReportCallback`: reports metrics and checkpoints
    checkpoint.py    `XGBoostCheckpoint`: checkpoints of models

Importing this package raises ImportError if xgboost is not installed. It is imported by the workers
and on first use: that takes seconds, and a process with its threads cannot be forked.
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
