"""The worker group: starts the workers of one attempt, follows what they say, ends them.

`TrainingGroup` is what the controller's driver needs of a group; `ActorWorkerGroup` here has an
actor per rank, `inline` has one worker in this process.
"""

from __future__ import annotations

import logging
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from syncline.core import api
from syncline.core import refs as references
from syncline.core.placement import PlacementGroup, PlacementGroupSchedulingStrategy
from syncline.core.refs import ObjectRef, ObjectRefGenerator
from syncline.core.remote import remote
from syncline.exceptions import NodeDiedError, RayTaskError
from syncline.train.backend import Worker, WorkerGroup
from syncline.train.config import ScalingConfig
from syncline.train.workers.messages import ControllerMessage, Sent
from syncline.train.workers.ranks import WorkerFacts, assign_ranks, rank_order
from syncline.train.workers.spec import WorkerSpec
from syncline.train.workers.stacks import of_dump
from syncline.train.workers.worker import CONCURRENCY, TrainWorker

P = ParamSpec("P")
R = TypeVar("R")

logger = logging.getLogger("syncline")

START_TIMEOUT_S = 300.0
"""How long workers may take to start once their resources are held: a container image may have to
be fetched.
"""
LOOK_S = 1.0
"""How often a start looks whether a node has died."""
STACKS_TIMEOUT_S = 5.0
"""How long a worker may take to say where it is."""

OnBatch = Callable[[int, Sequence[Sent]], None]
"""Called with (rank, batch), in order for each rank."""
OnEnd = Callable[[int, BaseException | None], None]
"""Called once per rank, after its last batch, with (rank, what ended the worker early if anything
did).
"""
ContextFactory = Callable[[], AbstractContextManager[Any]]


class WorkerStartError(Exception):
    """A worker did not start, or failed in its set-up: its position among those started, the cause
    and its traceback.
    """

    def __init__(self, position: int, error: BaseException) -> None:
        super().__init__(position, error)
        self.position = position
        self.cause = _original(error) or error
        self.traceback = error.traceback_str if isinstance(error, RayTaskError) else None


class TrainingGroup(WorkerGroup):
    """A worker group as the controller's driver uses it. Made for one attempt; not safe for use
    from several threads.
    """

    @abstractmethod
    def start(self) -> None:
        """Start every worker at once and give out ranks. WorkerStartError if one cannot start."""

    @abstractmethod
    def prepare(self, specs: Sequence[WorkerSpec]) -> None:
        """Tell every worker its place; `specs` by rank."""

    @abstractmethod
    def launch(
        self, function: Any, config: Any, context: ContextFactory, on_batch: OnBatch, on_end: OnEnd
    ) -> None:
        """Start the training functions; what the workers say is called back, on any thread.
        `function` and `config` are what `TrainWorker.start` takes, or references to it.
        """

    @abstractmethod
    def send(self, rank: int, message: ControllerMessage) -> None:
        """Say something to a worker, without waiting; one that is dead does not hear it."""

    @abstractmethod
    def hush(self, ranks: Sequence[int]) -> None:
        """Have workers end their streams after what they have said, without waiting."""

    @abstractmethod
    def stacks(self, ranks: Sequence[int]) -> Mapping[int, str]:
        """Where the training functions of these ranks are; ranks that do not answer in time are
        left out.
        """

    @abstractmethod
    def kill(self) -> None:
        """End every worker at once; may be called twice."""


class ActorWorkerGroup(TrainingGroup):
    """One actor per rank, in the bundles of a placement group."""

    def __init__(
        self,
        *,
        placement: PlacementGroup,
        scaling: ScalingConfig,
        runtime_env: Mapping[str, Any] | None,
        modules: Sequence[str] = (),
        has_lost_a_node: Callable[[], bool],
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """`modules`: what every worker imports as it starts; `has_lost_a_node`: whether a node has
        died since the group got its place, and workers may have none any more.
        """
        self._placement = placement
        self._scaling = scaling
        self._runtime_env = runtime_env
        self._modules = modules
        self._has_lost_a_node = has_lost_a_node
        self._start_timeout_s = start_timeout_s
        self._actors: list[Any] = []
        self._workers: list[Worker] = []
        self._streams: list[ObjectRefGenerator[tuple[Sent, ...]]] = []

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
        started = self._gather(
            [actor.facts.remote() for actor in self._actors],
            self._start_timeout_s,
            given_up=self._has_lost_a_node,
        )
        facts = _with_addresses(started)
        order = rank_order(facts)
        self._actors = [self._actors[position] for position in order]
        self._workers = assign_ranks([facts[position] for position in order])

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
        self, function: Any, config: Any, context: ContextFactory, on_batch: OnBatch, on_end: OnEnd
    ) -> None:
        self._streams = [
            actor.messages.options(num_returns="streaming").remote() for actor in self._actors
        ]
        for rank, stream in enumerate(self._streams):
            _follow(stream, rank, on_batch, on_end)
        # A worker that dies here is noticed by the end of its stream; a function that cannot be
        # loaded is noticed by `started`.
        started = [actor.start.remote(function, config, context) for actor in self._actors]
        for rank, ref in enumerate(started):
            references.current_engine().on_value(ref, _if_failed(rank, on_end))

    def send(self, rank: int, message: ControllerMessage) -> None:
        self._actors[rank].deliver.remote(message)

    def hush(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._actors[rank].hush.remote()

    def stacks(self, ranks: Sequence[int]) -> Mapping[int, str]:
        asked = {self._actors[rank].stacks.remote(): rank for rank in ranks}
        ready, late = api.wait(list(asked), num_returns=len(asked), timeout=STACKS_TIMEOUT_S)
        stacks: dict[int, str] = {}
        for ref in ready:
            try:
                stacks[asked[ref]] = api.get(ref)
            except Exception as error:  # it died in between, which its stream tells, too
                stacks[asked[ref]] = f"(it does not answer: {error})"
        for (
            ref
        ) in late:  # its Python is stopped: by a call that holds the interpreter, or by a signal
            seen = references.current_engine().stack_of(self._actors[asked[ref]]._actor_id)
            if seen is not None:
                stacks[asked[ref]] = of_dump(seen)
        return stacks

    def kill(self) -> None:
        for actor in self._actors:
            api.kill(actor)
        self._actors, self._streams = [], []

    def _gather(
        self,
        pending: Sequence[ObjectRef[R]],
        timeout_s: float | None,
        given_up: Callable[[], bool] = lambda: False,
    ) -> list[R]:
        """The results in order; WorkerStartError with the first that fails, which is not the first
        in order.

        `given_up`, asked now and then: whether what is missing may never come, as its node has
        died.
        """
        positions = {ref: position for position, ref in enumerate(pending)}
        results: dict[int, R] = {}
        waiting = list(pending)
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while waiting:
            left = max(0.0, deadline - time.monotonic())
            ready, waiting = api.wait(waiting, num_returns=1, timeout=min(left, LOOK_S))
            if not ready and given_up():
                raise WorkerStartError(
                    positions[waiting[0]], NodeDiedError("a node died while workers were to start")
                )
            if not ready and left < LOOK_S:
                position = positions[waiting[0]]
                raise WorkerStartError(
                    position,
                    TimeoutError(_did_not_start(len(waiting), len(pending), timeout_s or 0.0)),
                )
            for ref in ready:
                try:
                    results[positions[ref]] = api.get(ref)
                except Exception as error:
                    raise WorkerStartError(positions[ref], error) from error
        return [results[position] for position in range(len(pending))]


def actor_options(scaling: ScalingConfig, runtime_env: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options of one worker's actor: the whole of its bundle."""
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


def _with_addresses(facts: Sequence[WorkerFacts]) -> list[WorkerFacts]:
    addresses = {node["NodeID"]: str(node["NodeManagerAddress"]) for node in api.nodes()}
    return [replace(worker, node_ip=addresses.get(worker.node_id, "127.0.0.1")) for worker in facts]


def _follow(
    stream: ObjectRefGenerator[tuple[Sent, ...]], rank: int, on_batch: OnBatch, on_end: OnEnd
) -> None:
    """Call back with every item of `stream` in order: the next is asked for when one has been
    handed over.
    """
    engine = references.current_engine()

    def ask(index: int) -> None:
        engine.on_item(stream, index, lambda ref: take(index, ref))

    def take(index: int, ref: ObjectRef[tuple[Sent, ...]] | None) -> None:
        if ref is None:
            on_end(rank, None)
        else:
            engine.on_value(ref, lambda value, error: hand_over(index, value, error))

    def hand_over(index: int, value: Sequence[Sent], error: BaseException | None) -> None:
        if error is not None:
            on_end(rank, _original(error))
            return
        on_batch(rank, value)
        ask(index + 1)

    ask(0)


def _if_failed(rank: int, on_end: OnEnd) -> Callable[[Any, BaseException | None], None]:
    def settle(value: Any, error: BaseException | None) -> None:
        if error is not None:
            on_end(rank, _original(error))

    return settle


def _original(error: BaseException | None) -> BaseException | None:
    """What a worker raised, without the wrapping that it got on its way; errors of the engine as
    they are.
    """
    return (
        error.cause
        if isinstance(error, RayTaskError) and isinstance(error.cause, BaseException)
        else error
    )


def _did_not_start(waiting: int, total: int, timeout_s: float) -> str:
    return (
        f"{waiting} of {total} workers did not start within {timeout_s:g} s though their resources are held: "
        "see whether the machine is overloaded, and whether what the training function imports at its top takes long."
    )
