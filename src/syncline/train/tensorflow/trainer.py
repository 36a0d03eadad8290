"""`TensorflowTrainer`: a training function on workers that are one TensorFlow cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.run_config import RunConfig
from syncline.train.tensorflow.config import TensorflowConfig
from syncline.train.trainer import DataParallelTrainer


class TensorflowTrainer(DataParallelTrainer):
    """Runs a training function on every worker, where TF_CONFIG names them all.

    The function makes a `tf.distribute.MultiWorkerMirroredStrategy`, and its model in the
    strategy's scope.

    Args:
        train_loop_per_worker: the training function; called with `train_loop_config` if it has a
            parameter.
        train_loop_config: what it gets.
        tensorflow_config: how the workers communicate.
        scaling_config: how many workers, with what.
        run_config: the run's name, storage, failure policy and callbacks.
        datasets: name -> dataset, or a function that makes it; read with `get_dataset_shard(name)`.
        dataset_config: which of them are split over the workers.
        validation_config: how `report(validation=True)` validates.
        metadata: stored with every checkpoint.
        resume_from_checkpoint: what the first `get_checkpoint()` returns if the run has none of its
            own.

    Raises:
        TypeError: `tensorflow_config` is none.
        ValueError: as `DataParallelTrainer`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        tensorflow_config: TensorflowConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: dict[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
    ) -> None:
        if tensorflow_config is not None and not isinstance(tensorflow_config, TensorflowConfig):
            raise TypeError(
                f"`tensorflow_config` is a {type(tensorflow_config).__name__}: give a `TensorflowConfig`, or nothing for the defaults."
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=tensorflow_config or TensorflowConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )
