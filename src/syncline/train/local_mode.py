"""Local mode (`num_workers=0`): the training function runs in the program's own process, for
debuggers and torchrun.

No process is started and no file is written: `report` only collects, and errors are raised as they
are. Under torchrun, the ranks are those that it sets in the environment; `check_torchrun` refuses
runs that would start workers of their own in each of its processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline import settings
from syncline.runs.json_values import JsonObject
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint, CheckpointConsistencyMode, ReportedCheckpoint
from syncline.train.errors import PreemptionInfo
from syncline.train.result import Result
from syncline.train.resume_state import Readers
from syncline.train.session import (
    ReportCall,
    TrainSession,
    current_session,
    set_session,
    unknown_dataset,
)
from syncline.train.storage.context import StorageContext
from syncline.train.workers.spec import RunSpec, deserialized


class LocalSession(TrainSession):
    """Session of the program's own process."""

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
        self.reports: list[JsonObject] = []
        """Metrics of every report."""
        self._starting_point = spec.resume_from_checkpoint
        self._checkpoints: list[ReportedCheckpoint] = []
        self._shares: Mapping[str, object] = {}
        given = deserialized(spec.datasets)
        if given:
            from syncline.train import datasets  # loads syncline.data: half a second

            self._shares = datasets.whole(given)

    @property
    def storage(self) -> StorageContext:
        raise RuntimeError(
            "With `num_workers=0` there is no storage: set `num_workers=1` for a run directory."
        )

    @property
    def latest(self) -> Checkpoint | None:
        """Last reported checkpoint."""
        return self._checkpoints[-1].checkpoint if self._checkpoints else None

    def report(self, call: ReportCall) -> None:
        plain = metric_values.clean(call.metrics)
        call.check_validation()
        self.reports.append(plain)
        if call.checkpoint is not None:
            self._checkpoints.append(ReportedCheckpoint(call.checkpoint, plain))

    def get_checkpoint(self) -> Checkpoint | None:
        return self.latest or self._starting_point

    def get_all_reported_checkpoints(
        self, consistency_mode: CheckpointConsistencyMode, timeout_s: float | None
    ) -> list[ReportedCheckpoint]:
        return list(self._checkpoints)

    def get_dataset_shard(self, name: str) -> Any:
        if not self._shares:
            raise unknown_dataset(name, ())
        from syncline.train import datasets  # imported in __init__ already

        return datasets.shard(self._shares, name, self)

    def get_preemption_info(self) -> PreemptionInfo | None:
        return None

    def barrier(self, data: object) -> Any:
        return data


def run_in_process(spec: RunSpec) -> Result:
    """Run the training function in this process and raise its errors as they are.

    Raises:
        RuntimeError: Called inside a training function that is not a trial.
    """
    outer = current_session()
    if outer is not None and not outer.may_contain_runs:
        raise RuntimeError(
            "`fit()` with `num_workers=0` was called inside a training function, and a process can "
            "have only one. Set `num_workers=1`."
        )
    session = LocalSession(spec)
    set_session(session)
    try:
        with spec.backend_config.local_context():
            function, config = deserialized(spec.train_function), deserialized(spec.train_config)
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


def check_torchrun(run: str) -> None:
    """Check that this program is not one of several processes of torchrun: each would start the
    whole `run`, such as "a training".

    Raises:
        RuntimeError: It is one of them.
    """
    if settings.environment("TORCHELASTIC_RUN_ID") is None:
        return
    count = _number("WORLD_SIZE", 1)
    if count > 1 and current_session() is None:
        raise RuntimeError(
            f"torchrun started this program {count} times (this is rank {_number('RANK', 0)}), so "
            f"there would be {count} times {run}, each with its own workers. Start the program "
            "with `python` instead; `ScalingConfig(num_workers=…)` sets the number of workers. To "
            "train in the processes of torchrun, set `ScalingConfig(num_workers=0)`."
        )


def _number(variable: str, default: int) -> int:
    text = settings.environment(variable)
    return int(text) if text else default
