"""Start of a worker group: resources, workers, dataset shards, worker specifications, backend."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from syncline import settings
from syncline.core import api
from syncline.train.backend import Backend, Worker
from syncline.train.controller.events import StartGroup
from syncline.train.controller.run_recorder import RunRecorder
from syncline.train.controller.run_snapshots import RunSnapshots
from syncline.train.snapshots.config import SnapshotSpec
from syncline.train.storage.probe import StorageProbe, probe_error, ranks_to_probe
from syncline.train.workers.group import ActorWorkerGroup, InlineWorkerGroup, TrainingGroup
from syncline.train.workers.ranks import visible_gpus
from syncline.train.workers.reservation import Reservation, is_hosted
from syncline.train.workers.spec import RunSpec, WorkerSpec, deserialized


class GroupStarter:
    """Starts the worker groups of one run.

    Args:
        spec: The run.
        recorder: Record of the run.
        reservation: Resources of the group.
        local_mode: True for the inline engine, which has one worker in this process.
        node_id: Node of this process.
    """

    def __init__(
        self,
        spec: RunSpec,
        recorder: RunRecorder,
        reservation: Reservation,
        *,
        local_mode: bool,
        node_id: str,
    ) -> None:
        self._spec = spec
        self._recorder = recorder
        self._reservation = reservation
        self._local_mode = local_mode
        self._node_id = node_id
        self._backend: Backend[Any] = spec.backend_config.backend_cls()
        self._shares = _dataset_shares(spec, recorder)
        self._run_token = secrets.token_hex(4)
        self.snapshots = RunSnapshots(
            spec,
            run_path=recorder.storage.experiment_fs_path,
            started=recorder.started,
            earlier_nodes=recorder.earlier_nodes,
            refused=recorder.refused_snapshot,
            node_id=node_id,
        )
        """Memory snapshots of the run."""

    def train_function(self) -> tuple[Any, Any]:
        """Return function and configuration, or references to them: pickled once for all workers.

        Raises:
            TypeError: One of them cannot be pickled.
        """
        config = self._spec.train_config if self._spec.takes_config else None
        if self._local_mode:
            return self._spec.train_function, config
        return api.put(self._spec.train_function), api.put(config)

    def create(self, world_size: int) -> TrainingGroup:
        """Return a group that is not started."""
        if self._local_mode:
            return InlineWorkerGroup(num_workers=world_size)
        return ActorWorkerGroup(
            placement=self._reservation.group,
            scaling=self._spec.scaling_config,
            runtime_env=self._spec.run_config.worker_runtime_env,
            modules=self._spec.backend_config.worker_modules,
            has_lost_a_node=self._reservation.has_lost_a_node,
        )

    def start(self, group: TrainingGroup, instruction: StartGroup) -> None:
        """Start the workers and the backend.

        Raises:
            WorkerStartError: A worker did not start.
            ValueError: A node does not see the run directory.
        """
        group.start()
        shares = self._shares(group.workers)
        snapshots = (
            None if self._local_mode else self.snapshots.choose(group, self._recorder.latest_report)
        )
        group.prepare(
            [
                self._worker_spec(group, worker, instruction, shares[worker.rank], snapshots)
                for worker in group.workers
            ]
        )
        with self._storage_probed(group):
            self._backend.on_start(group, self._spec.backend_config)
        self._backend.on_training_start(group, self._spec.backend_config)

    def shut_down(self, group: TrainingGroup) -> None:
        """Shut the backend down after every training function has returned."""
        self._backend.on_shutdown(group, self._spec.backend_config)
        self.snapshots.remove(group)

    @property
    def resumes(self) -> bool:
        """True if readers resume: the run itself has a checkpoint, and `DataConfig.resume`."""
        return self._recorder.manager.latest is not None and self._spec.data_config.resume

    def _worker_spec(
        self,
        group: TrainingGroup,
        worker: Worker,
        instruction: StartGroup,
        shares: Mapping[str, object],
        snapshots: SnapshotSpec | None,
    ) -> WorkerSpec:
        spec, storage = self._spec, self._recorder.storage
        # On a remote filesystem, logs are collected on this node before their upload.
        keeps_log = not self._local_mode and (storage.local or worker.node_id == self._node_id)
        shows_gpus = bool(worker.gpu_ids) and not (
            self._local_mode or settings.keeps_cuda_visible_devices()
        )
        return WorkerSpec(
            worker=worker,
            world_size=len(group),
            run_name=storage.experiment_dir_name,
            output_label=f"rank {worker.rank}"
            if not is_hosted()
            else f"{storage.experiment_dir_name} rank {worker.rank}",
            attempt=instruction.attempt,
            token=f"{self._run_token}-{instruction.attempt}",
            storage=storage,
            use_gpu=spec.scaling_config.use_gpu,
            first_index=instruction.first_index,
            latest_checkpoint=self._recorder.latest,
            has_validation=spec.validation_config is not None,
            score_attribute=self._recorder.manager.unused_score_attribute,
            resumes=self.resumes,
            snapshots=snapshots,
            hang_limit_s=min(
                spec.backend_config.collective_timeout_s, settings.train_collective_timeout_s()
            ),
            visible_gpus=tuple(visible_gpus(group.workers, worker.node_id)) if shows_gpus else None,
            log_path=self._recorder.log_path(f"rank-{worker.rank}.log") if keeps_log else None,
            # In local mode, the workers share the program's settings.
            data_context=None if self._local_mode else spec.data_context,
            shares=shares,
        )

    @contextmanager
    def _storage_probed(self, group: TrainingGroup) -> Iterator[None]:
        """Check during the block that every other node reads what this node writes.

        Raises:
            ValueError: Some nodes do not.
        """
        ranks = ranks_to_probe(group.workers, self._node_id)
        if not ranks:
            yield
            return
        probe = StorageProbe(storage=self._recorder.storage)
        probe.write()
        try:
            pending = [group.execute_single_async(rank, probe.problem) for rank in ranks]
            yield
            problems = dict(zip(ranks, group.gather(pending), strict=True))
        finally:
            probe.remove()
        error = probe_error(probe.storage, problems, group.workers)
        if error is not None:
            raise ValueError(error)


def _dataset_shares(
    spec: RunSpec, recorder: RunRecorder
) -> Callable[[Sequence[Worker]], Sequence[Mapping[str, object]]]:
    """Return a function from the workers of a group to the dataset shards of each rank."""
    given = deserialized(spec.datasets)
    if not given:
        return lambda workers: [{} for _ in workers]
    from syncline.train.datasets import Datasets  # loads syncline.data: half a second

    return Datasets(given, spec.data_config, recorder.storage.files).shares
