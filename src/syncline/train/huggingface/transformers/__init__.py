"""Hugging Face Transformers inside a training function: its `Trainer` on the workers of a
`TorchTrainer`.

Files in the order in which a run meets them:
    shards.py      `prepare_trainer`: datasets of `syncline.data` under the `Trainer`
    reporting.py   `RayTrainReportCallback`: reports metrics and the `Trainer`'s own checkpoints

Works with Transformers 4.46 and later. ImportError where it is not installed.
"""

from syncline.train.huggingface.transformers.reporting import RayTrainReportCallback
from syncline.train.huggingface.transformers.shards import prepare_trainer

__all__ = ["RayTrainReportCallback", "prepare_trainer"]
