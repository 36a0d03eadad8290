"""Hugging Face Transformers in training functions: its `Trainer` on the workers of a
`TorchTrainer`.

Files in the order in which data flows through them:
    snapshots.py       memory snapshots after each optimizer step
    shard_loading.py   `prepare_trainer`: datasets of `syncline.data` in the `Trainer`
    reporting.py       `RayTrainReportCallback`: reports metrics and the `Trainer`'s checkpoints

Works with Transformers 4.46 and later. Importing this package raises ImportError if it is not
installed.
"""

from syncline.train.huggingface.transformers.reporting import RayTrainReportCallback
from syncline.train.huggingface.transformers.shard_loading import prepare_trainer

__all__ = ["RayTrainReportCallback", "prepare_trainer"]
