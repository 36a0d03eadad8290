"""Backends: what a framework needs around a training function (a process group, environment
variables).

A `BackendConfig` is what the program states; its `Backend` acts on the worker group from the
controller's side. `WorkerGroup` is the contract of that group: `workers.group` implements it with
actors, `workers.inline` in this process.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

from syncline.core.refs import ObjectRef

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One worker and its place among the others."""

    rank: int
    """Its number, 0 <= rank < world_size."""
    node_id: str
    """The node it runs on, as the engine names it."""
    node_ip: str
    """That node's address."""
    hostname: str
    """That node's name."""
    pid: int
    """Its process."""
    local_rank: int
    """Its number among the workers of its node."""
    local_world_size: int
    """How many workers are on its node."""
    node_rank: int
    """The number of its node."""
    gpu_ids: list[str]
    """The GPUs assigned to it; empty without GPUs."""


class WorkerGroup(ABC):
    """Workers that have started and wait for their training function; ordered by rank.

    The `execute` family runs functions on the workers beside the training function; an error there
    is raised here as soon as the first worker has it.
    """

    @property
    @abstractmethod
    def workers(self) -> Sequence[Worker]:
        """The workers by rank."""

    def __len__(self) -> int:
        return len(self.workers)

    @abstractmethod
    def execute_single_async(
        self, rank: int, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> ObjectRef[R]:
        """Begin to run `fn` on one rank."""

    @abstractmethod
    def gather(self, refs: Sequence[ObjectRef[R]]) -> list[R]:
        """The results behind `refs` in order; raises the first error at once, though other workers
        still wait for the failed one.
        """

    def execute_single(self, rank: int, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `fn` on one rank and wait for its result."""
        return self.gather([self.execute_single_async(rank, fn, *args, **kwargs)])[0]

    def execute_async(
        self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> list[ObjectRef[R]]:
        """Begin to run `fn` on every rank at once; references by rank."""
        return [self.execute_single_async(rank, fn, *args, **kwargs) for rank in range(len(self))]

    def execute(self, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> list[R]:
        """Run `fn` on every rank at once and wait; results by rank."""
        return self.gather(self.execute_async(fn, *args, **kwargs))


ConfigT = TypeVar("ConfigT", bound="BackendConfig")


class Backend(Generic[ConfigT]):
    """Set-up and tear-down of a framework on a worker group; every method may be left as it is."""

    def on_start(self, worker_group: WorkerGroup, backend_config: ConfigT) -> None:
        """The workers run, with their ranks and GPUs known; make them one group. An error fails
        this attempt.
        """

    def on_training_start(self, worker_group: WorkerGroup, backend_config: ConfigT) -> None:
        """The training functions are about to start."""

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: ConfigT) -> None:
        """Every training function has returned; the workers end after this. Not called for a group
        that failed.
        """


class BackendConfig:
    """What a program states about its framework; subclass it together with `Backend`. Instances are
    pickled to the workers.
    """

    @property
    def backend_cls(self) -> type[Backend[Any]]:
        """The backend that acts on this configuration."""
        return Backend

    @property
    def worker_modules(self) -> Sequence[str]:
        """Names of modules that every worker needs, and imports as it starts, all workers at
        once.
        """
        return ()

    @property
    def collective_timeout_s(self) -> float:
        """Seconds after which the framework itself gives up a collective operation; ranks that wait
        for longer are told of before.
        """
        return math.inf

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[Any]]:
        """Makes the context that the training function runs in, in its thread on the worker."""
        return nullcontext

    @property
    def local_context(self) -> Callable[[], AbstractContextManager[Any]]:
        """The same with `num_workers=0`, where no backend acts: whatever the function needs in the
        program's own process.
        """
        return self.train_func_context
