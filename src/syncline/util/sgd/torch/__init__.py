"""Training of PyTorch models with the older API, in which the program starts each epoch.

Files in the order of the data flow: `trainer` (`TorchTrainer`, which keeps the state for restarts),
`workers` (the processes), `session` and `runner` (one worker), `training_operator` (the user's
models, data and loops), `passes` (batches over epochs), `results` (reduction of the workers'
results). Besides: `value_types`, `constants`, `resnet` (models), `trainable` (trainers
as trials).

Not covered: operators from Lightning modules, Apex (`use_fp16` is `torch.amp`), groups that
continue with fewer workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncline.util.sgd.torch.trainer import TorchTrainer
from syncline.util.sgd.torch.training_operator import CreatorOperator, TrainingOperator

if TYPE_CHECKING:
    from syncline.util.sgd.torch.trainable import BaseTorchTrainable

__all__ = ["BaseTorchTrainable", "CreatorOperator", "TorchTrainer", "TrainingOperator"]


def __getattr__(name: str) -> Any:
    """Load the class that needs `syncline.tune`, which trainers alone do not."""
    if name != "BaseTorchTrainable":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from syncline.util.sgd.torch.trainable import BaseTorchTrainable

    return BaseTorchTrainable
