"""`LightGBMTrainer`: a training function on workers that LightGBM trains together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from syncline.train.boosting import refuse_older_form
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.lightgbm.checkpoint import load_booster
from syncline.train.lightgbm.config import LightGBMConfig
from syncline.train.run_config import RunConfig
from syncline.train.trainer import DataParallelTrainer

if TYPE_CHECKING:
    from lightgbm import Booster


class LightGBMTrainer(DataParallelTrainer):
    """Runs a training function on every worker, connected by LightGBM.

    The function makes a `lightgbm.Dataset` of this worker's rows and calls `lightgbm.train` with
    `get_network_params()` among the parameters, `tree_learner="data"` and `pre_partition=True`;
    every rank ends with the same model.

    Args:
        train_loop_per_worker: the training function; called with `train_loop_config` if it has a
            parameter.
        train_loop_config: what it gets.
        lightgbm_config: how the workers communicate.
        scaling_config: how many workers, with what.
        run_config: the run's name, storage, failure policy and callbacks.
        datasets: name -> dataset, or a function that makes it; read with `get_dataset_shard(name)`.
        dataset_config: which of them are split over the workers.
        validation_config: how `report(validation=True)` validates.
        metadata: stored with every checkpoint.
        resume_from_checkpoint: what the first `get_checkpoint()` returns if the run has none of its
            own.
        label_column, params, num_boost_round: of an older form; refused.

    Raises:
        TypeError: `lightgbm_config` is none; an argument of the older form is given.
        ValueError: as `DataParallelTrainer`.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[[], Any] | Callable[[dict[str, Any]], Any],
        *,
        train_loop_config: dict[str, Any] | None = None,
        lightgbm_config: LightGBMConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, Any] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: dict[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        label_column: str | None = None,
        params: dict[str, Any] | None = None,
        num_boost_round: int | None = None,
    ) -> None:
        refuse_older_form(
            "LightGBMTrainer",
            label_column=label_column,
            params=params,
            num_boost_round=num_boost_round,
        )
        if lightgbm_config is not None and not isinstance(lightgbm_config, LightGBMConfig):
            raise TypeError(
                f"`lightgbm_config` is a {type(lightgbm_config).__name__}: give a `LightGBMConfig`, or nothing for the defaults."
            )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=lightgbm_config or LightGBMConfig(),
            scaling_config=scaling_config,
            run_config=run_config,
            datasets=datasets,
            dataset_config=dataset_config,
            validation_config=validation_config,
            metadata=metadata,
            resume_from_checkpoint=resume_from_checkpoint,
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint) -> Booster:
        """As `RayTrainReportCallback.get_model`, for older programs."""
        return load_booster(checkpoint, "model.txt")
