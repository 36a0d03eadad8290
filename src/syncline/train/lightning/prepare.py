"""`prepare_trainer`: whether a Lightning `Trainer` can run on training workers."""

from __future__ import annotations

from typing import Any

from syncline.train.lightning.strategies import OnWorker, RayLightningEnvironment

_REMEDY = "make it as `Trainer(strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()], ...)`, or with another of these strategies."


def prepare_trainer(trainer: Any) -> Any:
    """Check that `trainer`, a Lightning `Trainer`, was made for training workers, and return it.

    Raises:
        RuntimeError: its strategy is none of syncline's (`RayDDPStrategy`, `RayFSDPStrategy`,
        `RayDeepSpeedStrategy`), or its
            environment is not `RayLightningEnvironment`.
    """
    strategy = trainer.strategy
    if not isinstance(strategy, OnWorker):
        raise RuntimeError(
            f"The Trainer has the strategy {type(strategy).__name__}, which starts processes and picks devices itself, so it cannot run on "
            f"workers that run already: {_REMEDY}"
        )
    environment = getattr(strategy, "cluster_environment", None)
    if environment is not None and not isinstance(environment, RayLightningEnvironment):
        raise RuntimeError(
            f"The Trainer has the environment {type(environment).__name__}, which does not know the workers' ranks: {_REMEDY}"
        )
    return trainer
