"""Lightning's environment and strategies on training workers, and `prepare_trainer`, which checks
that a `Trainer` uses them.

The workers are already processes of one group, so Lightning neither starts nor joins processes.
`TorchConfig` configures the group; `process_group_backend`, `timeout` and `start_method` of the
strategies have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncline.train.lightning.library import environments, pl
from syncline.train.lightning.loaders import (
    Trainer,
    check_prepared,
    training_loader,
    validation_loader,
)
from syncline.train.lightning.snapshots import SnapshotStrategy, follow_trainer
from syncline.train.session import get_session
from syncline.train.torch.device import get_device

if TYPE_CHECKING:
    import torch

_REMEDY = (
    "create it with `Trainer(strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()], ...)` "
    "or another of these strategies."
)


def prepare_trainer(trainer: Trainer) -> Trainer:
    """Check that a Lightning `Trainer` is configured for training workers, and return it.

    With `RunConfig(snapshot=SnapshotConfig())`, a memory snapshot is taken after each optimizer
    step, and `trainer.fit` starts from it in the next attempt.

    Raises:
        RuntimeError: Its strategy is not one of `RayDDPStrategy`, `RayFSDPStrategy` and
            `RayDeepSpeedStrategy`, or its environment is not `RayLightningEnvironment`.
    """
    strategy = trainer.strategy
    if not isinstance(strategy, WorkerStrategy):
        raise RuntimeError(
            f"The Trainer has the strategy {type(strategy).__name__}, which starts processes and "
            f"selects devices, but training workers are already running: {_REMEDY}"
        )
    environment = getattr(strategy, "cluster_environment", None)
    if environment is not None and not isinstance(environment, RayLightningEnvironment):
        raise RuntimeError(
            f"The Trainer has the environment {type(environment).__name__}, which does not know "
            f"the workers' ranks: {_REMEDY}"
        )
    follow_trainer(trainer)
    return trainer


class RayLightningEnvironment(environments.LightningEnvironment):
    """Ranks of the training session, for `Trainer(plugins=[RayLightningEnvironment()])`. Its
    methods raise RuntimeError outside a training function.
    """

    @property
    def creates_processes_externally(self) -> bool:
        """True: the workers are already running."""
        return True

    def world_size(self) -> int:
        """Return the number of workers."""
        return get_session("lightning.RayLightningEnvironment").world_size

    def global_rank(self) -> int:
        """Return this worker's rank."""
        return get_session("lightning.RayLightningEnvironment").world_rank

    def local_rank(self) -> int:
        """Return this worker's rank on its node."""
        return get_session("lightning.RayLightningEnvironment").local_rank

    def node_rank(self) -> int:
        """Return the rank of this node."""
        return get_session("lightning.RayLightningEnvironment").node_rank

    def set_world_size(self, size: int) -> None:
        """Do nothing: the session determines it."""

    def set_global_rank(self, rank: int) -> None:
        """Do nothing: the session determines it."""

    def teardown(self) -> None:
        """Do nothing: other libraries read the environment variables."""


class WorkerStrategy:
    """Mixin for strategies whose processes are training workers."""

    @property
    def root_device(self) -> torch.device:
        """The worker's device."""
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """Share of the samples of this rank, if Lightning shards them."""
        session = get_session("lightning")
        return {"num_replicas": session.world_size, "rank": session.world_rank}

    def setup(self, trainer: Trainer) -> None:
        """Called by Lightning when the processes and the model exist."""
        if trainer.ckpt_path is not None:
            # Lightning would restore the checkpoint's random states before the sanity check.
            trainer.num_sanity_val_steps = 0
        super().setup(trainer)  # type: ignore[misc]

    def process_dataloader(self, dataloader: Any) -> Any:
        """Return the loader that Lightning uses in place of `dataloader`."""
        check_prepared(dataloader)
        processed = super().process_dataloader(dataloader)  # type: ignore[misc]
        trainer = self.lightning_module.trainer  # type: ignore[attr-defined]
        if trainer.training:
            return training_loader(processed, trainer)
        if trainer.validating or trainer.sanity_checking:
            return validation_loader(processed, trainer)
        return processed


class RayDDPStrategy(SnapshotStrategy, WorkerStrategy, pl.strategies.DDPStrategy):
    """`DDPStrategy` on the workers of a `TorchTrainer`, with the same arguments: a replica of the
    model on each worker.
    """


class RayFSDPStrategy(WorkerStrategy, pl.strategies.FSDPStrategy):
    """`FSDPStrategy` on the workers of a `TorchTrainer`, with the same arguments: the parameters
    are sharded over the workers, which must have GPUs.
    """


class RayDeepSpeedStrategy(WorkerStrategy, pl.strategies.DeepSpeedStrategy):
    """`DeepSpeedStrategy` on the workers of a `TorchTrainer`, with the same arguments. Needs the
    package `deepspeed`.
    """
