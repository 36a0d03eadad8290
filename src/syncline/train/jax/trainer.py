"""`JaxTrainer`: a training function on workers that JAX sees as one computer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.jax.config import JaxConfig
from syncline.train.run_config import RunConfig
from syncline.train.trainer import DataParallelTrainer


class JaxTrainer(DataParallelTrainer):
    """Runs a training function on every worker, with JAX connected: `jax.devices()` has the devices
    of all of them.

    Import JAX in the function, or in modules that only workers import: a process that holds a TPU
    keeps it from the others.

    Args:
        train_loop_per_worker: the training function; called with `train_loop_config` if it has a
            parameter.
        train_loop_config: what it gets.
        jax_config: on which kind of device; by default as `scaling_config` says.
        scaling_config: how many workers, with what.
        run_config: the run's name, storage, failure policy and callbacks.
        datasets: name -> dataset, or a function that makes it; read with `get_dataset_shard(name)`.
        dataset_config: which of them are split over the workers.
        validation_config: how `report(validation=True)` validates.

    Raises:
        TypeError: `jax_config` is none.
        ValueError: as `DataParallelTrainer`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        jax_config: JaxConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
    ) -> None:
        if jax_config is not None and not isinstance(jax_config, JaxConfig):
            raise TypeError(
                f"`jax_config` is a {type(jax_config).__name__}: give a `JaxConfig`, or nothing for the defaults."
            )
        scaling = scaling_config if isinstance(scaling_config, ScalingConfig) else ScalingConfig()
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=jax_config
            or JaxConfig(use_tpu=scaling.use_tpu, use_gpu=scaling.use_gpu),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
        )
