"""`TorchTrainer`: data-parallel training whose workers form one torch process group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, RunConfig, ScalingConfig, ValidationConfig
from syncline.train.torch_backend import TorchConfig
from syncline.train.trainer import DataParallelTrainer


class TorchTrainer(DataParallelTrainer):
    """Runs a training function on every worker, inside one `torch.distributed` process group.

    A process group exists with a single worker too. Inside the function `prepare_model` and
    `prepare_data_loader` do what is needed to train on this worker's share and device.

    Args:
        train_loop_per_worker: the training function; called with `train_loop_config` if it has a
            parameter.
        train_loop_config: what it gets.
        torch_config: backend and limits of the process group.
        scaling_config: how many workers, with what.
        run_config: the run's name, storage, failure policy and callbacks.
        datasets: name -> dataset, or a function that makes it; read with `get_dataset_shard(name)`.
        dataset_config: which of them are split over the workers.
        resume_from_checkpoint: what the first `get_checkpoint()` returns if the run has none of its
            own.
        metadata: stored with every checkpoint.
        validation_config: how `report(validation=True)` validates.

    Raises:
        TypeError: `torch_config` is none.
        ValueError: as `DataParallelTrainer`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        if torch_config is not None and not isinstance(torch_config, TorchConfig):
            raise TypeError(
                f"`torch_config` is a {type(torch_config).__name__}: give a `TorchConfig`, or nothing for the defaults."
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=torch_config or TorchConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            validation_config=validation_config,
        )
