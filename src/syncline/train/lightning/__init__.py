"""PyTorch Lightning in training functions: its `Trainer` on the workers of a `TorchTrainer`.

Files in the order in which data flows through them:
    library.py        import of Lightning, from one of its two packages
    loaders.py        loaders with a position that is resumed after a restart
    step_callback.py  base of callbacks that act after each optimizer step
    snapshots.py      memory snapshots after each optimizer step
    strategies.py     environment and strategies for a `Trainer`; `prepare_trainer` checks them
    reporting.py      `RayTrainReportCallback`: reports metrics and Lightning's checkpoints

Works with Lightning 2, as `lightning` or `pytorch_lightning`. Importing this package raises
ImportError if neither is installed.
"""

from syncline.train.lightning.reporting import RayTrainReportCallback
from syncline.train.lightning.strategies import (
    RayDDPStrategy,
    RayDeepSpeedStrategy,
    RayFSDPStrategy,
    RayLightningEnvironment,
    prepare_trainer,
)

__all__ = [
    "RayDDPStrategy",
    "RayDeepSpeedStrategy",
    "RayFSDPStrategy",
    "RayLightningEnvironment",
    "RayTrainReportCallback",
    "prepare_trainer",
]
