"""Distributed training: trainers, functions for training functions, results.

Files and subpackages, in the order in which a run uses them:

- `config` and `run_config`: configuration of a trainer; callbacks of the program;
  `alert_callback`: alerts.
- `trainer` (also `data_parallel_trainer`, Ray's module name): check of all arguments, and `fit`;
  `local_mode`: training in the program's own process.
- `controller`: state machine and driver of a run, record of the run, retention of checkpoints.
- `workers`: worker group, and sessions of the workers.
- `backend`: setup of a framework around a training function, implemented by `torch_backend` and in
  one subpackage per framework: `torch`, `lightning`, `huggingface`, `tensorflow`, `jax`, `xgboost`,
  `lightgbm`. `boosting`: shared code of the last two.
- `session`, `collective`: functions that a training function calls; `metric_values`: checks and
  conversions of reported metrics; `media`: images and histograms among them.
- `datasets`: dataset shards of the workers; `resume_state`: exact resume; `snapshots`: the state of
  training in shared memory.
- `checkpoint`, `framework_checkpoint`: references to checkpoints; `storage`: commits in the run
  directory.
- `errors`, `result`: outcome of a run; `console`: display of a run.
- `predictor`, `batch_predictor`: inference with a checkpoint.
- `v2`: module paths of Ray.
"""

import importlib
import sys
from types import ModuleType

from syncline import optional
from syncline.suggestions import missing_attribute

with optional.without_collections():
    from syncline.train import collective
    from syncline.train.alert_callback import AlertCallback
    from syncline.train.backend import Backend, BackendConfig
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
    from syncline.train.media import Histogram, Image
    from syncline.train.result import Result
    from syncline.train.run_config import RunConfig, RunStart, UserCallback
    from syncline.train.session import (
        TrainContext,
        get_all_reported_checkpoints,
        get_checkpoint,
        get_context,
        get_dataset_shard,
        get_preemption_info,
        report,
    )
    from syncline.train.snapshots.config import SnapshotConfig
    from syncline.train.snapshots.functions import get_snapshot, register_state, save, snapshot
    from syncline.train.trainer import DataParallelTrainer

TRAIN_DATASET_KEY = "train"
"""Default name of the training dataset."""

__all__ = [
    "TRAIN_DATASET_KEY",
    "AlertCallback",
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
    "Histogram",
    "Image",
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
    "SnapshotConfig",
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
    "get_snapshot",
    "register_state",
    "report",
    "save",
    "snapshot",
]


def __getattr__(name: str) -> ModuleType:
    # Loaded on first use: torch takes a second to import and is optional.
    if name == "torch":
        return importlib.import_module("syncline.train.torch")
    raise missing_attribute(sys.modules[__name__], name)
