"""Worker group: starts the workers of one attempt, reads their messages, ends them.

`TrainingGroup` is the contract that the controller's driver uses. `ActorWorkerGroup` has one actor
per rank. `InlineWorkerGroup` has one worker in this process, for the inline engine: breakpoints in
the training function reach the terminal.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from syncline.core import api
from syncline.core.engine import current_engine
from syncline.core.error_messages import death_of
from syncline.core.placement import PlacementGroup, PlacementGroupSchedulingStrategy
from syncline.core.refs import ObjectRef, ObjectRefGenerator
from syncline.core.remote import ActorHandle, remote
from syncline.exceptions import NodeDiedError, RayTaskError
from syncline.train.backend import Worker, WorkerGroup
from syncline.train.config import ScalingConfig
from syncline.train.session import current_session, set_session
from syncline.train.workers.hang_watch import dumped_stack
from syncline.train.workers.messages import ControllerMessage, StreamItem
from syncline.train.workers.ranks import WorkerInfo, assign_ranks, rank_order
from syncline.train.workers.spec import WorkerSpec
from syncline.train.workers.worker import CONCURRENCY, TrainWorker

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("syncline")

START_TIMEOUT_S = 300.0
"""Seconds that workers may take to start once their resources are reserved; a container image may
have to be downloaded.
"""
POLL_S = 1.0
"""Interval at which a start checks for dead nodes."""
STACKS_TIMEOUT_S = 5.0
"""Seconds that a worker may take to return its stack."""

OnBatch = Callable[[int, Sequence[StreamItem]], None]
"""Called with (rank, batch), in order for each rank."""
OnEnd = Callable[[int, BaseException | None], None]
"""Called once per rank after its last batch, with (rank, error that ended the worker or None)."""
ContextFactory = Callable[[], AbstractContextManager[object]]


class WorkerStartError(Exception):
    """A worker did not start or failed during its set-up.

    Args:
        position: Position of the worker among those started.
        error: Its error.
    """

    def __init__(self, position: int, error: BaseException) -> None:
        super().__init__(position, error)
        self.position = position
        self.cause = death_of("A training worker", _original(error) or error)
        self.traceback = error.traceback_str if isinstance(error, RayTaskError) else None


class TrainingGroup(WorkerGroup):
    """Worker group of one attempt. Not thread-safe."""

    @abstractmethod
    def start(self) -> None:
        """Start all workers and assign ranks.

        Raises:
            WorkerStartError: A worker cannot start.
        """

    @abstractmethod
    def prepare(self, specs: Sequence[WorkerSpec]) -> None:
        """Send every worker its specification; `specs` is in rank order."""

    @abstractmethod
    def launch(
        self,
        function: object,
        config: object,
        context: ContextFactory,
        on_batch: OnBatch,
        on_end: OnEnd,
    ) -> None:
        """Start the training functions. Callbacks with messages are called on any thread.

        `function` and `config` are arguments of `TrainWorker.start`, or references to them.
        """

    @abstractmethod
    def send(self, rank: int, message: ControllerMessage) -> None:
        """Send a message to a worker without waiting; no effect on a dead worker."""

    @abstractmethod
    def drain(self, ranks: Sequence[int]) -> None:
        """Make workers end their streams after the buffered messages, without waiting."""

    @abstractmethod
    def stacks(self, ranks: Sequence[int]) -> Mapping[int, str]:
        """Return the stacks of the training functions of the ranks that answer in time."""

    @abstractmethod
    def kill(self) -> None:
        """Kill every worker. May be called twice."""


class ActorWorkerGroup(TrainingGroup):
    """One actor per rank, in the bundles of a placement group.

    Args:
        placement: The placement group.
        scaling: Resources of each worker.
        runtime_env: Environment of the workers.
        modules: Modules that every worker imports as it starts.
        has_lost_a_node: Returns True if a node has died since the placement group was created.
        start_timeout_s: Seconds that workers may take to start.
    """

    def __init__(
        self,
        *,
        placement: PlacementGroup,
        scaling: ScalingConfig,
        runtime_env: Mapping[str, object] | None,
        modules: Sequence[str] = (),
        has_lost_a_node: Callable[[], bool],
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._placement = placement
        self._scaling = scaling
        self._runtime_env = runtime_env
        self._modules = modules
        self._has_lost_a_node = has_lost_a_node
        self._start_timeout_s = start_timeout_s
        self._actors: list[ActorHandle] = []
        self._workers: list[Worker] = []
        self._streams: list[ObjectRefGenerator[tuple[StreamItem, ...]]] = []

    @property
    def workers(self) -> Sequence[Worker]:
        return self._workers

    def start(self) -> None:
        options = actor_options(self._scaling, self._runtime_env)
        remote_worker = remote(TrainWorker)
        for index in range(self._placement.bundle_count):
            strategy = PlacementGroupSchedulingStrategy(
                placement_group=self._placement,
                placement_group_bundle_index=index,
                placement_group_capture_child_tasks=False,
            )
            self._actors.append(
                remote_worker.options(**options, scheduling_strategy=strategy).remote(self._modules)
            )
        started: list[WorkerInfo] = self._gather(
            [actor.info.remote() for actor in self._actors],
            self._start_timeout_s,
            is_hopeless=self._has_lost_a_node,
        )
        addresses = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in api.nodes()}
        infos = [
            replace(info, node_ip=addresses.get(info.node_id, "127.0.0.1")) for info in started
        ]
        order = rank_order(infos)
        self._actors = [self._actors[position] for position in order]
        self._workers = assign_ranks([infos[position] for position in order])

    def prepare(self, specs: Sequence[WorkerSpec]) -> None:
        self._gather(
            [actor.prepare.remote(spec) for actor, spec in zip(self._actors, specs, strict=True)],
            self._start_timeout_s,
        )

    def execute_single_async(
        self, rank: int, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> ObjectRef[R]:
        ref: ObjectRef[R] = self._actors[rank].execute.remote(fn, *args, **kwargs)
        return ref

    def gather(self, refs: Sequence[ObjectRef[R]]) -> list[R]:
        return self._gather(refs, None)

    def launch(
        self,
        function: object,
        config: object,
        context: ContextFactory,
        on_batch: OnBatch,
        on_end: OnEnd,
    ) -> None:
        self._streams = [
            actor.messages.options(num_returns="streaming").remote() for actor in self._actors
        ]
        for rank, stream in enumerate(self._streams):
            _follow(stream, rank, on_batch, on_end)
        # The end of its stream reports a worker that dies; `started` reports a function that
        # cannot be unpickled.
        started = [actor.start.remote(function, config, context) for actor in self._actors]
        for rank, ref in enumerate(started):
            current_engine().on_value(ref, functools.partial(_end_if_failed, rank, on_end))

    def send(self, rank: int, message: ControllerMessage) -> None:
        self._actors[rank].deliver.remote(message)

    def drain(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._actors[rank].drain.remote()

    def stacks(self, ranks: Sequence[int]) -> Mapping[int, str]:
        pending = {self._actors[rank].stacks.remote(): rank for rank in ranks}
        ready, late = api.wait(list(pending), num_returns=len(pending), timeout=STACKS_TIMEOUT_S)
        stacks: dict[int, str] = {}
        for ref in ready:
            try:
                stacks[pending[ref]] = api.get(ref)
            except Exception as error:  # it died meanwhile; its stream ends too
                stacks[pending[ref]] = f"(no answer: {error})"
        for ref in late:  # its Python is stopped, by a call that holds the interpreter or a signal
            dump = current_engine().stack_of(self._actors[pending[ref]]._actor_id)
            if dump is not None:
                stacks[pending[ref]] = dumped_stack(dump)
        return stacks

    def kill(self) -> None:
        for actor in self._actors:
            api.kill(actor)
        self._actors, self._streams = [], []

    def _gather(
        self,
        pending: Sequence[ObjectRef[R]],
        timeout_s: float | None,
        is_hopeless: Callable[[], bool] = lambda: False,
    ) -> list[R]:
        """Return the results in order.

        Args:
            pending: References to the results.
            timeout_s: Seconds to wait; None for no limit.
            is_hopeless: Called at intervals; returns True if missing results may never arrive,
                because a node has died.

        Raises:
            WorkerStartError: For the result that fails first.
        """
        positions = {ref: position for position, ref in enumerate(pending)}
        results: dict[int, R] = {}
        waiting = list(pending)
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while waiting:
            left = max(0.0, deadline - time.monotonic())
            ready, waiting = api.wait(waiting, num_returns=1, timeout=min(left, POLL_S))
            if not ready and is_hopeless():
                raise WorkerStartError(
                    positions[waiting[0]], NodeDiedError("A node died while its workers started.")
                )
            if not ready and left < POLL_S:
                error = TimeoutError(_did_not_start(len(waiting), len(pending), timeout_s or 0.0))
                raise WorkerStartError(positions[waiting[0]], error)
            for ref in ready:
                try:
                    results[positions[ref]] = api.get(ref)
                except Exception as error:
                    raise WorkerStartError(positions[ref], error) from error
        return [results[position] for position in range(len(pending))]


class InlineWorkerGroup(TrainingGroup):
    """One worker, an object of this process.

    It cannot be killed: after `kill` its training function continues, and its messages are dropped.
    """

    def __init__(self, *, num_workers: int) -> None:
        if num_workers != 1:
            raise ValueError(
                f"`num_workers={num_workers}` needs {num_workers} processes, but "
                "`syncline.init(local_mode=True)` has only this one. Set `num_workers=1`, or leave "
                "`local_mode` out."
            )
        self._worker = TrainWorker()
        self._outer = current_session()  # of a trial that contains the trainer
        self._workers: list[Worker] = []

    @property
    def workers(self) -> Sequence[Worker]:
        return self._workers

    def start(self) -> None:
        self._workers = assign_ranks([self._worker.info()])

    def prepare(self, specs: Sequence[WorkerSpec]) -> None:
        self._worker.prepare(specs[0])

    def execute_single_async(
        self, rank: int, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> ObjectRef[R]:
        return api.put(fn(*args, **kwargs))

    def gather(self, refs: Sequence[ObjectRef[R]]) -> list[R]:
        return [api.get(ref) for ref in refs]

    def launch(
        self, function: Any, config: Any, context: ContextFactory, on_batch: OnBatch, on_end: OnEnd
    ) -> None:
        def listen() -> None:
            for batch in self._worker.messages():
                on_batch(0, batch)
            on_end(0, None)

        threading.Thread(target=listen, name="syncline-listen", daemon=True).start()
        self._worker.start(function, config, context)

    def send(self, rank: int, message: ControllerMessage) -> None:
        self._worker.deliver(message)

    def drain(self, ranks: Sequence[int]) -> None:
        self._worker.drain()

    def stacks(self, ranks: Sequence[int]) -> Mapping[int, str]:
        return {rank: self._worker.stacks() for rank in ranks}

    def kill(self) -> None:
        self._worker.drain()
        set_session(self._outer)


def actor_options(
    scaling: ScalingConfig, runtime_env: Mapping[str, object] | None
) -> dict[str, Any]:
    """Return the options of one worker's actor, which takes its whole bundle."""
    bundle = scaling.bundle()
    options: dict[str, Any] = {
        "num_cpus": bundle.pop("CPU", 0),
        "num_gpus": bundle.pop("GPU", 0),
        "max_restarts": 0,
        "max_concurrency": CONCURRENCY,
    }
    if "memory" in bundle:
        options["memory"] = int(bundle.pop("memory"))
    if scaling.accelerator_type is not None:
        options["accelerator_type"] = scaling.accelerator_type
        bundle.pop(f"accelerator_type:{scaling.accelerator_type}", None)
    if bundle:
        options["resources"] = bundle
    if runtime_env:
        options["runtime_env"] = dict(runtime_env)
    return options


def _follow(
    stream: ObjectRefGenerator[tuple[StreamItem, ...]], rank: int, on_batch: OnBatch, on_end: OnEnd
) -> None:
    """Call back with every item of `stream`, one after the other."""
    engine = current_engine()

    def request(index: int) -> None:
        engine.on_item(stream, index, lambda ref: receive(index, ref))

    def receive(index: int, ref: ObjectRef[tuple[StreamItem, ...]] | None) -> None:
        if ref is None:
            on_end(rank, None)
        else:
            engine.on_value(ref, lambda value, error: deliver(index, value, error))

    def deliver(index: int, value: Sequence[StreamItem], error: BaseException | None) -> None:
        if error is not None:
            on_end(rank, _original(error))
            return
        on_batch(rank, value)
        request(index + 1)

    request(0)


def rank_death(worker: Worker, error: BaseException) -> BaseException:
    """Return the error that ended a worker; if its process died, with its rank, pid and host."""
    return death_of(
        f"Rank {worker.rank}",
        error,
        pid=worker.pid,
        host=worker.hostname,
        less_memory="Use smaller batches, fewer processes of data loaders or fewer workers on this "
        "machine, or give the machine or its container more memory.",
    )


def _end_if_failed(rank: int, on_end: OnEnd, value: object, error: BaseException | None) -> None:
    if error is not None:
        on_end(rank, _original(error))


def _original(error: BaseException | None) -> BaseException | None:
    """Return the exception that a worker raised, unwrapped; errors of the engine as they are."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, BaseException):
        return error.cause
    return error


def _did_not_start(waiting: int, total: int, timeout_s: float) -> str:
    return (
        f"{waiting} of {total} workers did not start within {timeout_s:g} s although their "
        "resources are reserved. Check whether the machine is overloaded, and whether the imports "
        "of the training function's module take long."
    )
