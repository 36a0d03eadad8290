"""What Lightning asks about a rank, answered by the training session: which ranks there are, and
which device is this one's.

The workers are processes of one group already: Lightning starts none and joins none. How the group
is made, `TorchConfig` says; the strategies' own `process_group_backend`, `timeout` and
`start_method` have no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncline.train.lightning.library import environments, pl
from syncline.train.lightning.loaders import check_prepared, for_training, for_validation
from syncline.train.session import get_session
from syncline.train.torch.device import get_device

if TYPE_CHECKING:
    import torch


class RayLightningEnvironment(environments.LightningEnvironment):
    """The ranks of the training session; for `Trainer(plugins=[RayLightningEnvironment()])`.
    RuntimeError outside a training function.
    """

    @property
    def creates_processes_externally(self) -> bool:
        """True: the workers run."""
        return True

    def world_size(self) -> int:
        """How many workers train together."""
        return get_session("lightning.RayLightningEnvironment").world_size

    def global_rank(self) -> int:
        """This worker's number, from 0."""
        return get_session("lightning.RayLightningEnvironment").world_rank

    def local_rank(self) -> int:
        """This worker's number on its node, from 0."""
        return get_session("lightning.RayLightningEnvironment").local_rank

    def node_rank(self) -> int:
        """The number of this node, from 0."""
        return get_session("lightning.RayLightningEnvironment").node_rank

    def set_world_size(self, size: int) -> None:
        """Nothing: the session knows better."""

    def set_global_rank(self, rank: int) -> None:
        """Nothing: the session knows better."""

    def teardown(self) -> None:
        """Nothing: the variables of the environment are syncline's, and other libraries read
        them.
        """


class OnWorker:
    """Mixin for strategies whose processes are training workers."""

    @property
    def root_device(self) -> torch.device:
        """The worker's device."""
        return get_device()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """The share of the samples that Lightning gives this rank, where Lightning shares them
        out.
        """
        session = get_session("lightning")
        return {"num_replicas": session.world_size, "rank": session.world_rank}

    def setup(self, trainer: Any) -> None:
        """Called by Lightning when the processes and the model are there."""
        if trainer.ckpt_path is not None:
            # The check comes first, apart from the random states that everybody else sees: those of
            # the checkpoint would come back in it.
            trainer.num_sanity_val_steps = 0
        super().setup(trainer)  # type: ignore[misc]

    def process_dataloader(self, dataloader: Any) -> Any:
        """What Lightning iterates over in place of `dataloader`."""
        check_prepared(dataloader)
        processed = super().process_dataloader(dataloader)  # type: ignore[misc]
        trainer = self.lightning_module.trainer  # type: ignore[attr-defined]
        if trainer.training:
            return for_training(processed, trainer)
        return (
            for_validation(processed, trainer)
            if trainer.validating or trainer.sanity_checking
            else processed
        )


class RayDDPStrategy(OnWorker, pl.strategies.DDPStrategy):
    """`DDPStrategy` on the workers of a `TorchTrainer`: a replica of the model on each. Takes what
    `DDPStrategy` takes.
    """


class RayFSDPStrategy(OnWorker, pl.strategies.FSDPStrategy):
    """`FSDPStrategy` on the workers of a `TorchTrainer`: the parameters sharded over them, which
    must have GPUs.

    Takes what `FSDPStrategy` takes.
    """


class RayDeepSpeedStrategy(OnWorker, pl.strategies.DeepSpeedStrategy):
    """`DeepSpeedStrategy` on the workers of a `TorchTrainer`; needs the package `deepspeed`. Takes
    what `DeepSpeedStrategy` takes.
    """
