"""`JaxTrainer`: trainer whose workers are one distributed JAX computation."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.suggestions import suggest_arguments
from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.jax.backend import JaxConfig
from syncline.train.run_config import RunConfig
from syncline.train.trainer import DataParallelTrainer, LoopConfig, TrainLoop, framework_config


@suggest_arguments
class JaxTrainer(DataParallelTrainer):
    """Runs a training function on every worker, in one JAX computation: `jax.devices()` returns the
    devices of all workers.

    Import JAX in the function, or in modules that only workers import: a process that uses a TPU
    blocks it for others.

    Args:
        train_loop_per_worker: Training function; called with `train_loop_config` if it has a
            parameter.
        train_loop_config: Argument of the training function.
        jax_config: Kind of device; by default that of `scaling_config`.
        scaling_config: Number of workers and their resources.
        run_config: Name, storage, failure policy, callbacks.
        datasets: Dataset, or a function that creates one, by name; read with
            `get_dataset_shard(name)`.
        dataset_config: Distribution of the datasets over the workers.
        validation_config: Validation for `report(validation=True)`.

    Raises:
        TypeError: `jax_config` is not a `JaxConfig`.
        ValueError: Invalid arguments.
    """

    def __init__(
        self,
        train_loop_per_worker: TrainLoop,
        *,
        train_loop_config: LoopConfig | None = None,
        jax_config: JaxConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, object] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        scaling = scaling_config if isinstance(scaling_config, ScalingConfig) else ScalingConfig()
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=framework_config("jax_config", jax_config, JaxConfig)
            or JaxConfig(use_tpu=scaling.use_tpu, use_gpu=scaling.use_gpu),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
        )
