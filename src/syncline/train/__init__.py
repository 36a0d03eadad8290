"""Training functions on groups of workers: trainers, what a training function may call, results.

Files, in the order in which a run flows through them: `config` (what a program states), `trainer`
(checks it), `controller/` (decides: `driver`, `state` with `attempt`, `events`, `policy`,
`barriers`, `hangs`; keeps: `recorder`, `checkpoints`, `steps`, `validation`, `goodput`; tells:
`observers`, `live`; on a cluster in an actor: `apart`, `run_actor`, `story`), `workers/` (where it
happens: `placement`, `group`, `ranks`, `worker`, `session`, `uploads`, `send_buffer`, `messages`; beside
the training function: `observer`, `watchdog`, `stacks`, `profiling/`), `backend` and a folder for
each framework (what surrounds the function), `session` and `collective` (what the function calls),
`datasets`, `readers`, `random_states` (what it reads, and how it goes on there), `metrics`,
`checkpoint`, `storage`, `filesystem`, `retries` (what it reports and where that lies), `step_times`
(what it spent), `callbacks`, `errors`, `result` (what comes back), `local` (all of it in this
process).
"""

import importlib
from typing import Any

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
"""The name of the dataset that training reads."""

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


def __getattr__(name: str) -> Any:
    # Torch takes a second to import, and programs that do not train with it need not have it.
    if name == "torch":
        return importlib.import_module("syncline.train.torch")
    raise AttributeError(f"module 'syncline.train' has no attribute {name!r}")
