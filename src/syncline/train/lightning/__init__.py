"""PyTorch Lightning inside a training function: its `Trainer` on the workers of a `TorchTrainer`.

Files in the order in which a run meets them:
    library.py      which of Lightning's two packages is meant
    strategies.py   where a rank stands and which device it has: the environment and the strategies that a `Trainer` is given
    loaders.py      loaders that go on where they were after a restart
    prepare.py      `prepare_trainer`: checks that the `Trainer` was given them
    reporting.py    `RayTrainReportCallback`: reports metrics and Lightning's own checkpoint

Works with Lightning 2, as `lightning` or as `pytorch_lightning`. ImportError where neither is
installed.
"""

from syncline.train.lightning.prepare import prepare_trainer
from syncline.train.lightning.reporting import RayTrainReportCallback
from syncline.train.lightning.strategies import (
    RayDDPStrategy,
    RayDeepSpeedStrategy,
    RayFSDPStrategy,
    RayLightningEnvironment,
)

__all__ = [
    "RayDDPStrategy",
    "RayDeepSpeedStrategy",
    "RayFSDPStrategy",
    "RayLightningEnvironment",
    "RayTrainReportCallback",
    "prepare_trainer",
]
