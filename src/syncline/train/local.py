"""Local mode (`num_workers=0`): the training function runs in the program's own process, under
debuggers and under torchrun.

Nothing is started and nothing is kept: `report` only remembers, errors come out as they are. Under
torchrun the ranks are those that it sets in the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline import settings
from syncline.train import datasets
from syncline.train import metrics as metric_values
from syncline.train.checkpoint import (
    Checkpoint,
    CheckpointConsistencyMode,
    CheckpointUploadMode,
    ReportedCheckpoint,
)
from syncline.train.config import ValidationTaskConfig
from syncline.train.errors import PreemptionInfo
from syncline.train.readers import Readers
from syncline.train.result import Result
from syncline.train.session import TrainSession, UploadFunction, current_session, set_session
from syncline.train.storage import StorageContext
from syncline.train.workers.shipped import loaded
from syncline.train.workers.spec import RunSpec


class LocalSession(TrainSession):
    """The session of the program's own process."""

    def __init__(self, spec: RunSpec) -> None:
        self.world_rank = _number("RANK", 0)
        self.world_size = _number("WORLD_SIZE", 1)
        self.local_rank = _number("LOCAL_RANK", 0)
        self.local_world_size = _number("LOCAL_WORLD_SIZE", 1)
        self.node_rank = _number("GROUP_RANK", 0)
        self.gpu_ids = ()
        self.use_gpu = spec.scaling_config.use_gpu
        self.local_mode = True
        self.experiment_name = spec.run_config.name or "local"
        self.communication_meters = []
        self.readers = Readers(rank=self.world_rank, world_size=self.world_size)
        self.reports: list[dict[str, Any]] = []
        """Metrics of every report."""
        self._starting_point = spec.resume_from_checkpoint
        self._checkpoints: list[ReportedCheckpoint] = []
        self._shares = datasets.whole(loaded(spec.datasets))

    @property
    def storage(self) -> StorageContext:
        raise RuntimeError(
            "with `num_workers=0` nothing is kept, so there is no storage: set `num_workers=1` for a run directory."
        )

    @property
    def latest(self) -> Checkpoint | None:
        """The last checkpoint reported."""
        return self._checkpoints[-1].checkpoint if self._checkpoints else None

    def report(
        self,
        metrics: Mapping[str, Any],
        checkpoint: Checkpoint | None,
        *,
        dir_name: str | None,
        upload_mode: CheckpointUploadMode,
        delete_local: bool | None,
        upload_fn: UploadFunction | None,
        validation: bool | ValidationTaskConfig,
    ) -> None:
        plain = metric_values.clean(metrics)
        if validation and checkpoint is None:
            raise ValueError(
                "report(validation=…) without a checkpoint leaves nothing to validate: pass `checkpoint=` too."
            )
        self.reports.append(plain)
        if checkpoint is not None:
            self._checkpoints.append(ReportedCheckpoint(checkpoint, plain))

    def get_checkpoint(self) -> Checkpoint | None:
        return self.latest or self._starting_point

    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        return list(self._checkpoints)

    def get_dataset_shard(self, name: str) -> Any:
        return datasets.shard(self._shares, name, self)

    def get_preemption_info(self) -> PreemptionInfo | None:
        return None

    def barrier(self, data: Any) -> Any:
        return data


def run_here(spec: RunSpec) -> Result:
    """Run the training function in this process. Raises what it raises; RuntimeError inside a
    training function that is no trial.
    """
    outer = current_session()
    if outer is not None and not outer.may_contain_runs:
        raise RuntimeError(
            "`fit()` with `num_workers=0` was called inside a training function, and one process can only hold one: set `num_workers=1`."
        )
    session = LocalSession(spec)
    set_session(session)
    try:
        with spec.backend_config.local_context():
            function, config = loaded(spec.train_function), loaded(spec.train_config)
            value = function(dict(config)) if spec.takes_config else function()
    finally:
        set_session(outer)
    reports = [
        {"iteration": index, "time": None, "rank": session.world_rank, "metrics": metrics}
        for index, metrics in enumerate(session.reports)
    ]
    return Result(
        metrics=session.reports[-1] if session.reports else None,
        checkpoint=session.latest,
        return_value=value,
        reports=reports,
    )


def _number(variable: str, default: int) -> int:
    text = settings.environment(variable)
    return int(text) if text else default
