"""Training of PyTorch models with the older API: a trainer that the program tells to train each
epoch.

Files, in the order in which a call flows: `trainer` (`TorchTrainer`, what programs hold; it keeps
the state that new workers begin with), `workers` (the processes), `session` and `runner` (one
worker), `training_operator` (what the program says of models and data), `passes` (batches over
epochs), `results` (one result from all workers'). Beside them: `constants`, `resnet` (models),
`trainable` (trainers that are trials).

Not covered: operators from Lightning modules, Apex (`use_fp16` is `torch.amp`), groups that go on
with fewer workers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from syncline.util.sgd.torch.trainer import TorchTrainer
from syncline.util.sgd.torch.training_operator import CreatorOperator, TrainingOperator

if TYPE_CHECKING:
    from syncline.util.sgd.torch.trainable import BaseTorchTrainable

__all__ = ["BaseTorchTrainable", "CreatorOperator", "TorchTrainer", "TrainingOperator"]


def __getattr__(name: str) -> Any:
    """What stands on `syncline.tune`, which trainers alone do not need."""
    if name != "BaseTorchTrainable":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("syncline.util.sgd.torch.trainable").BaseTorchTrainable
