"""`LightGBMTrainer`: trainer whose workers train one LightGBM model; and
`normalize_pandas_for_lightgbm`, for its training functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncline.suggestions import suggest_arguments
from syncline.train.boosting import refuse_older_form
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.lightgbm.checkpoint import load_booster
from syncline.train.lightgbm.config import LightGBMConfig
from syncline.train.run_config import RunConfig
from syncline.train.trainer import DataParallelTrainer, LoopConfig, TrainLoop, framework_config

if TYPE_CHECKING:
    import pandas as pd
    from lightgbm import Booster

_NULLABLE = {"i": "Int", "u": "UInt", "f": "Float"}


@suggest_arguments
class LightGBMTrainer(DataParallelTrainer):
    """Runs a training function on every worker, connected by LightGBM.

    The function creates a `lightgbm.Dataset` from this worker's rows and calls `lightgbm.train`
    with the parameters of `get_network_params()`, `tree_learner="data"` and `pre_partition=True`.
    All ranks get the same model.

    Args:
        train_loop_per_worker: Training function; called with `train_loop_config` if it has a
            parameter.
        train_loop_config: Argument of the training function.
        lightgbm_config: Communication of the workers.
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
        TypeError: `lightgbm_config` is not a `LightGBMConfig`; an unsupported argument is given.
        ValueError: Invalid arguments.
    """

    def __init__(
        self,
        train_loop_per_worker: TrainLoop,
        *,
        train_loop_config: LoopConfig | None = None,
        lightgbm_config: LightGBMConfig | None = None,
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
            "LightGBMTrainer",
            label_column=label_column,
            params=params,
            num_boost_round=num_boost_round,
        )
        super().__init__(
            train_loop_per_worker,
            train_loop_config=train_loop_config,
            backend_config=framework_config("lightgbm_config", lightgbm_config, LightGBMConfig)
            or LightGBMConfig(),
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
        return load_booster(checkpoint, "model.txt")


def normalize_pandas_for_lightgbm(df: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with Arrow columns of numbers and booleans converted to pandas' nullable
    types, which LightGBM accepts.

    Missing values are kept. Other columns are neither changed nor copied. 16-bit floats become
    32-bit floats, since pandas has no nullable type for them.
    """
    found = {
        name: _nullable(dtype)
        for name, dtype in df.dtypes.items()
        if type(dtype).__name__ == "ArrowDtype"
    }
    wanted = {name: dtype for name, dtype in found.items() if dtype is not None}
    return df.astype(wanted) if wanted else df


def _nullable(dtype: Any) -> str | None:
    """Return the nullable type for an ArrowDtype; None if it holds no numbers."""
    if dtype.kind == "b":
        return "boolean"
    if dtype.kind not in _NULLABLE:
        return None
    bits = max(8 * dtype.numpy_dtype.itemsize, 32 if dtype.kind == "f" else 8)
    return f"{_NULLABLE[dtype.kind]}{bits}"
