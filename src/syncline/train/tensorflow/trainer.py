"""`TensorflowTrainer`: trainer whose workers are one TensorFlow cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.suggestions import suggest_arguments
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.run_config import RunConfig
from syncline.train.tensorflow.config import TensorflowConfig
from syncline.train.trainer import DataParallelTrainer, LoopConfig, TrainLoop, framework_config


@suggest_arguments
class TensorflowTrainer(DataParallelTrainer):
    """Runs a training function on every worker, with the addresses of all workers in TF_CONFIG.

    The function creates a `tf.distribute.MultiWorkerMirroredStrategy`, and the model in its scope.

    Args:
        train_loop_per_worker: Training function; called with `train_loop_config` if it has a
            parameter.
        train_loop_config: Argument of the training function.
        tensorflow_config: Communication of the workers.
        scaling_config: Number of workers and their resources.
        run_config: Name, storage, failure policy, callbacks.
        datasets: Dataset, or a function that creates one, by name; read with
            `get_dataset_shard(name)`.
        dataset_config: Distribution of the datasets over the workers.
        validation_config: Validation for `report(validation=True)`.
        metadata: Stored with every checkpoint.
        resume_from_checkpoint: First result of `get_checkpoint()` in a run without checkpoints.

    Raises:
        TypeError: `tensorflow_config` is not a `TensorflowConfig`.
        ValueError: Invalid arguments.
    """

    def __init__(
        self,
        train_loop_per_worker: TrainLoop,
        *,
        train_loop_config: LoopConfig | None = None,
        tensorflow_config: TensorflowConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, object] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: dict[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=framework_config(
                "tensorflow_config", tensorflow_config, TensorflowConfig
            )
            or TensorflowConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )
