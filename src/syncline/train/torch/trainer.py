"""`TorchTrainer`: data-parallel training in one torch process group."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from syncline.core import worker_imports
from syncline.suggestions import suggest_arguments
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.run_config import RunConfig
from syncline.train.torch.model_use import COMPILER, trains_a_model
from syncline.train.torch_backend import TorchConfig
from syncline.train.trainer import DataParallelTrainer, LoopConfig, TrainLoop, framework_config


@suggest_arguments
class TorchTrainer(DataParallelTrainer):
    """Runs a training function on every worker, inside one `torch.distributed` process group.

    A single worker has a process group as well. In the function, call `prepare_model` and
    `prepare_data_loader` to train on this worker's device and share of the data.

    Args:
        train_loop_per_worker: Training function; called with `train_loop_config` if it has a
            parameter.
        train_loop_config: Argument of the training function.
        torch_config: Backend and time limits of the process group.
        scaling_config: Number of workers and their resources.
        run_config: Name, storage, failure policy, callbacks.
        datasets: Dataset, or a function that creates one, by name; read with
            `get_dataset_shard(name)`.
        dataset_config: Distribution of the datasets over the workers.
        resume_from_checkpoint: First result of `get_checkpoint()` in a run without checkpoints.
        metadata: Stored with every checkpoint.
        validation_config: Validation for `report(validation=True)`.

    Raises:
        TypeError: `torch_config` is not a `TorchConfig`.
        ValueError: Invalid arguments.
    """

    def __init__(
        self,
        train_loop_per_worker: TrainLoop,
        *,
        train_loop_config: LoopConfig | None = None,
        torch_config: TorchConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, object] | None = None,
        dataset_config: DataConfig | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        metadata: dict[str, Any] | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=framework_config("torch_config", torch_config, TorchConfig)
            or TorchConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            resume_from_checkpoint=resume_from_checkpoint,
            metadata=metadata,
            validation_config=validation_config,
        )
        if "torch" in sys.modules and trains_a_model(train_loop_per_worker):
            worker_imports.expect(COMPILER)
