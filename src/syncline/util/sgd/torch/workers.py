"""Workers of a trainer: one process per rank, or the program's own process for a single rank.

Every method of `Workers` runs on all ranks and waits. An error of user code is raised with its
class and the worker's traceback; the death of a worker raises `WorkerDied`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from syncline.core import api
from syncline.core.refs import AnyRef, ObjectRef
from syncline.exceptions import RayError, RayTaskError
from syncline.train.backend import Worker
from syncline.train.config import DataConfig, ScalingConfig
from syncline.train.datasets import Datasets, whole
from syncline.train.torch_backend import TorchBackend, TorchConfig
from syncline.train.workers.group import ActorWorkerGroup, WorkerStartError
from syncline.train.workers.ranks import visible_gpus
from syncline.train.workers.reservation import Reservation
from syncline.util.sgd.torch.runner import (
    Plan,
    Snapshot,
    TorchRunner,
    call_runner,
    enter_session,
    start_runner,
)
from syncline.util.sgd.torch.session import OperatorSession, inside

DEATH_NOTICE_S = 2.0
"""Seconds to wait after an error for the other ranks, and for news of a death behind it."""


class WorkerDied(Exception):
    """A worker died: its rank and the engine's error. The group is unusable."""

    def __init__(self, rank: int, cause: BaseException) -> None:
        super().__init__(rank, cause)
        self.rank = rank
        self.cause = cause


class Workers(ABC):
    """The workers of one trainer. Not thread-safe."""

    @abstractmethod
    def start(self, snapshots: Sequence[Snapshot] | None) -> None:
        """Start every worker, from snapshots by rank if given.

        Raises:
            ValueError: The resources can never be reserved.
        """

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """True if there are workers."""

    @abstractmethod
    def run(self, method: str, *args: object) -> list[Any]:
        """Call a method of every runner; return the results by rank."""

    @abstractmethod
    def run_with_shards(self, method: str, *args: object, dataset: object) -> list[Any]:
        """Call a method of every runner with the rank's shard of a dataset as last argument."""

    @abstractmethod
    def run_first(self, method: str, *args: object) -> Any:
        """Call a method of rank 0's runner only."""

    @abstractmethod
    def kill(self) -> None:
        """Kill every worker; their resources stay reserved for the next workers."""

    @abstractmethod
    def stop(self, *, force: bool) -> None:
        """End every worker and release the resources.

        With `force`, the workers do not leave their process group first.
        """


class LocalWorkers(Workers):
    """One worker in this process. It cannot die alone, and keeps its state through errors."""

    def __init__(self, plan: Plan, *, use_gpu: bool) -> None:
        self._plan = plan
        self._session = OperatorSession(None, world_size=1, use_gpu=use_gpu)
        self._runner: TorchRunner | None = None

    @property
    def runner(self) -> TorchRunner:
        """The worker. Raises RuntimeError before `start` and after `stop`."""
        if self._runner is None:
            raise RuntimeError("The trainer was shut down: create a new one.")
        return self._runner

    def start(self, snapshots: Sequence[Snapshot] | None) -> None:
        with inside(self._session):
            self._runner = TorchRunner(self._plan)

    @property
    def is_running(self) -> bool:
        return self._runner is not None

    def run(self, method: str, *args: object) -> list[Any]:
        return [self.run_first(method, *args)]

    def run_with_shards(self, method: str, *args: object, dataset: object) -> list[Any]:
        return self.run(method, *args, whole({"train": dataset})["train"])

    def run_first(self, method: str, *args: object) -> Any:
        with inside(self._session):
            return getattr(self.runner, method)(*args)

    def kill(self) -> None:
        """Do nothing: the worker is this process."""

    def stop(self, *, force: bool) -> None:
        self._runner = None


class RemoteWorkers(Workers):
    """One process per rank, in one process group."""

    def __init__(self, plan: Plan, *, scaling: ScalingConfig, torch_config: TorchConfig) -> None:
        self._plan = api.put(plan)
        self._scaling = scaling
        self._torch_config = torch_config
        self._reservation = Reservation(scaling)
        self._backend = TorchBackend()
        self._group: ActorWorkerGroup | None = None

    def start(self, snapshots: Sequence[Snapshot] | None) -> None:
        self._reservation.reserve()
        self._group = group = ActorWorkerGroup(
            placement=self._reservation.group,
            scaling=self._scaling,
            runtime_env=None,
            modules=(*self._torch_config.worker_modules, TorchRunner.__module__),
            has_lost_a_node=self._reservation.has_lost_a_node,
        )
        try:
            group.start()
            group.gather([self._enter(group, worker) for worker in group.workers])
            self._backend.on_start(group, self._torch_config)
            self._results(
                [
                    # Workers receive the plan for its reference.
                    group.execute_single_async(rank, start_runner, self._plan, *at)  # type: ignore[arg-type]
                    for rank, at in enumerate(_starting_points(snapshots, len(group)))
                ]
            )
        except BaseException as error:
            self.kill()
            if not isinstance(error, WorkerStartError):
                raise
            cause = error.__cause__ or error.cause
            if is_death(cause):
                raise WorkerDied(error.position, cause) from None
            raise cause from None

    @property
    def is_running(self) -> bool:
        return self._group is not None

    def run(self, method: str, *args: object) -> list[Any]:
        return self._results(self._running.execute_async(call_runner, method, *args))

    def run_with_shards(self, method: str, *args: object, dataset: object) -> list[Any]:
        shares = Datasets({"train": dataset}, DataConfig()).shares(self._running.workers)
        return self._results(
            [
                self._running.execute_single_async(rank, call_runner, method, *args, share["train"])
                for rank, share in enumerate(shares)
            ]
        )

    def run_first(self, method: str, *args: object) -> Any:
        return self._results([self._running.execute_single_async(0, call_runner, method, *args)])[0]

    def kill(self) -> None:
        if self._group is not None:
            self._group.kill()
            self._group = None

    def stop(self, *, force: bool) -> None:
        try:
            if self._group is not None and not force:
                self._backend.on_shutdown(self._group, self._torch_config)
        except WorkerStartError:
            pass  # a dead worker has left its process group
        finally:
            self.kill()
            self._reservation.release()

    @property
    def _running(self) -> ActorWorkerGroup:
        assert self._group is not None, "start comes first"
        return self._group

    def _enter(self, group: ActorWorkerGroup, worker: Worker) -> ObjectRef[None]:
        gpus = visible_gpus(group.workers, worker.node_id) if worker.gpu_ids else ()
        return group.execute_single_async(
            worker.rank, enter_session, worker, len(group), self._scaling.use_gpu, gpus
        )

    def _results(self, refs: Sequence[AnyRef]) -> list[Any]:
        try:
            results, errors = settled(refs)
        except BaseException:  # an interrupt leaves the workers in the middle of a call
            self.kill()
            raise
        deaths = [(rank, error) for rank, error in errors.items() if is_death(error)]
        # Ranks without a result are dead, or wait forever for the one that failed.
        if deaths or len(results) + len(errors) < len(refs):
            self.kill()
        if deaths:
            raise WorkerDied(*deaths[0])
        if errors:
            raise next(iter(errors.values()))
        return [results[rank] for rank in range(len(refs))]


def settled(refs: Sequence[AnyRef]) -> tuple[dict[int, object], dict[int, BaseException]]:
    """Return results and errors by rank, in the order of their arrival.

    After an error, ranks without news for `DEATH_NOTICE_S` are in neither. When a rank dies, the
    collective operations of the others fail, and their errors may arrive before the news of its
    death.
    """
    ranks = {ref: rank for rank, ref in enumerate(refs)}
    results: dict[int, object] = {}
    errors: dict[int, BaseException] = {}
    waiting, deadline = list(refs), 0.0
    while waiting:
        ready, waiting = api.wait(
            waiting, timeout=max(0.0, deadline - time.monotonic()) if errors else None
        )
        if not ready:
            break
        try:
            results[ranks[ready[0]]] = api.get(ready[0])
        except Exception as error:
            if not errors:
                deadline = time.monotonic() + DEATH_NOTICE_S
            errors[ranks[ready[0]]] = error
            if is_death(error):
                break
    return results, errors


def is_death(error: BaseException) -> bool:
    """Return True if an error means that a worker died, rather than that user code raised."""
    return isinstance(error, RayError) and not isinstance(error, RayTaskError)


def _starting_points(
    snapshots: Sequence[Snapshot] | None, workers: int
) -> list[tuple[Snapshot | None, Any]]:
    """Return the arguments of `start_runner` after the plan; rank 0's state is sent once."""
    if snapshots is None:
        return [(None, None)] * workers
    first = api.put(snapshots[0].state)
    return [
        (each, first if rank == 0 or each.state is None else each.state)
        for rank, each in enumerate(snapshots)
    ]


def scaling_of(
    *,
    num_workers: int = 1,
    num_cpus_per_worker: float = 1,
    use_gpu: bool | str = "auto",
    **_other: object,
) -> ScalingConfig:
    """Return the resources of a trainer's workers. Raises ValueError for invalid arguments."""
    if isinstance(num_workers, bool) or not isinstance(num_workers, int) or num_workers < 1:
        raise ValueError(f"`num_workers={num_workers!r}` must be 1 or more.")
    if use_gpu not in (True, False, "auto"):
        raise ValueError(f"`use_gpu={use_gpu!r}` must be True, False or 'auto'.")
    uses_gpu = torch.cuda.is_available() if use_gpu == "auto" else bool(use_gpu)
    resources = {"CPU": num_cpus_per_worker, **({"GPU": 1} if uses_gpu else {})}
    return ScalingConfig(num_workers=num_workers, use_gpu=uses_gpu, resources_per_worker=resources)
