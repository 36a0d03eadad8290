"""`XGBoostTrainer`: trainer whose workers train one XGBoost model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncline.suggestions import suggest_arguments
from syncline.train.boosting import refuse_older_form
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.run_config import RunConfig
from syncline.train.trainer import DataParallelTrainer, LoopConfig, TrainLoop, framework_config
from syncline.train.xgboost.checkpoint import load_booster
from syncline.train.xgboost.config import XGBoostConfig

if TYPE_CHECKING:
    from xgboost import Booster


@suggest_arguments
class XGBoostTrainer(DataParallelTrainer):
    """Runs a training function on every worker, inside one XGBoost communicator.

    The function creates a `DMatrix` from this worker's rows and calls `xgboost.train`. All ranks
    get the same model.

    Args:
        train_loop_per_worker: Training function; called with `train_loop_config` if it has a
            parameter.
        train_loop_config: Argument of the training function.
        xgboost_config: Communication of the workers.
        scaling_config: Number of workers and their resources.
        run_config: Name, storage, failure policy, callbacks.
        datasets: Dataset, or a function that creates one, by name; read with
            `get_dataset_shard(name)`.
        dataset_config: Distribution of the datasets over the workers.
        validation_config: Validation for `report(validation=True)`.
        metadata: Stored with every checkpoint.
        resume_from_checkpoint: First result of `get_checkpoint()` in a run without checkpoints.
        label_column: No longer supported.
        params: No longer supported.
        num_boost_round: No longer supported.

    Raises:
        TypeError: `xgboost_config` is not an `XGBoostConfig`; an unsupported argument is given.
        ValueError: Invalid arguments.
    """

    def __init__(
        self,
        train_loop_per_worker: TrainLoop,
        *,
        train_loop_config: LoopConfig | None = None,
        xgboost_config: XGBoostConfig | None = None,
        scaling_config: ScalingConfig | None = None,
        run_config: RunConfig | None = None,
        datasets: Mapping[str, object] | None = None,
        dataset_config: DataConfig | None = None,
        validation_config: ValidationConfig | None = None,
        metadata: dict[str, Any] | None = None,
        resume_from_checkpoint: Checkpoint | None = None,
        label_column: str | None = None,
        params: dict[str, object] | None = None,
        num_boost_round: int | None = None,
    ) -> None:
        refuse_older_form(
            "XGBoostTrainer",
            label_column=label_column,
            params=params,
            num_boost_round=num_boost_round,
        )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=framework_config("xgboost_config", xgboost_config, XGBoostConfig)
            or XGBoostConfig(),
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
        """Same as `RayTrainReportCallback.get_model`, for older programs."""
        return load_booster(checkpoint, "model.ubj")
