"""Distributed training: trainers, functions for training functions, results.

Files, in the order in which a run flows through them:

- `config` (configuration of a trainer), `trainer` (checks its arguments, `fit`), `local_mode`
  (training in the program's own process)
- `controller/` (state machine and driver of a run), `workers/` (worker group and workers)
- `backend`, `torch_backend` and one folder per framework (setup around a training function)
- `session` and `collective` (functions for training functions), `metric_values` (plain metrics),
  `datasets`, `resume_state`, `random_states` (dataset shards and exact resume)
- `checkpoint`, `framework_checkpoint`, `storage/` (checkpoints and their storage)
- `callbacks`, `errors`, `result` (observers and outcome of a run), `console/` (display)
- `predictor`, `batch_predictor` (inference with a checkpoint), `boosting` (XGBoost and LightGBM)
- `v2/` (module paths of Ray)
"""

import importlib
from types import ModuleType

from syncline.train import collective
from syncline.train.backend import Backend, BackendConfig
from syncline.train.callbacks import RunStart, UserCallback
from syncline.train.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
)
from syncline.train.config import (
    CheckpointConfig,
    DataConfig,
    FailureConfig,
    LoggingConfig,
    RunConfig,
    ScalingConfig,
    SyncConfig,
    ValidationConfig,
    ValidationFn,
    ValidationTaskConfig,
)
from syncline.train.controller.remote_controller import attach
from syncline.train.errors import (
    ControllerError,
    NCCLHangError,
    PreemptionError,
    PreemptionInfo,
    TrainingFailedError,
    WorkerGroupError,
)
from syncline.train.result import Result
from syncline.train.session import (
    TrainContext,
    get_all_reported_checkpoints,
    get_checkpoint,
    get_context,
    get_dataset_shard,
    get_preemption_info,
    report,
)
from syncline.train.trainer import DataParallelTrainer

TRAIN_DATASET_KEY = "train"
"""Default name of the training dataset."""

__all__ = [
    "TRAIN_DATASET_KEY",
    "Backend",
    "BackendConfig",
    "Checkpoint",
    "CheckpointConfig",
    "CheckpointConsistencyMode",
    "CheckpointUploadMode",
    "ControllerError",
    "DataConfig",
    "DataParallelTrainer",
    "FailureConfig",
    "LoggingConfig",
    "NCCLHangError",
    "PreemptionError",
    "PreemptionInfo",
    "ReportedCheckpoint",
    "ReportedCheckpointStatus",
    "Result",
    "RunConfig",
    "RunStart",
    "ScalingConfig",
    "SyncConfig",
    "TrainContext",
    "TrainingFailedError",
    "UserCallback",
    "ValidationConfig",
    "ValidationFn",
    "ValidationTaskConfig",
    "WorkerGroupError",
    "attach",
    "collective",
    "get_all_reported_checkpoints",
    "get_checkpoint",
    "get_context",
    "get_dataset_shard",
    "get_preemption_info",
    "report",
]


def __getattr__(name: str) -> ModuleType:
    # Loaded on first use: torch takes a second to import and is optional.
    if name == "torch":
        return importlib.import_module("syncline.train.torch")
    raise AttributeError(f"module 'syncline.train' has no attribute {name!r}")
