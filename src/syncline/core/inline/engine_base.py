"""State and introspection of the inline engine: resources, placement groups, context, timeline."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncline import settings
from syncline.core import error_messages
from syncline.core.config import EngineConfig
from syncline.core.embedded.engine import CURRENT, SessionInfo, describe_current
from syncline.core.embedded.group_table import GroupTable
from syncline.core.embedded.instructions import GroupReady, Instruction, Instructions
from syncline.core.embedded.resource_pools import Holding, machine_resources
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.engine import LISTED, Engine, Row, RuntimeInfo, Statistics
from syncline.core.inline.generator_streams import Stream
from syncline.core.inline.inline_actor import InlineActor
from syncline.core.inline.inline_call import InlineContext
from syncline.core.inline.inline_objects import InlineObjects
from syncline.core.inline.inline_state import actor_rows, job_rows, process_rows, task_rows
from syncline.core.labels import Selector, check_machine
from syncline.core.node_rows import node_row
from syncline.core.refs import AnyRef, ObjectRef
from syncline.core.state_rows import (
    Filter,
    StateListing,
    StateResource,
    StateRow,
    group_state,
    node_state,
    select,
)

logger = logging.getLogger("syncline")

TIMELINE_EVENTS = 100_000
"""Number of events that `timeline` keeps."""


@dataclass(frozen=True, kw_only=True)
class ActorStatistics:
    """Counts of actors."""

    alive: int
    named: int


@dataclass(frozen=True, kw_only=True)
class CallStatistics:
    """Calls since the start, and generators now."""

    submitted: int
    streams: int


class InlineScheduler(Scheduler):
    """Accounts for resources, which no call waits for.

    Infeasible calls are refused, GPUs get numbers, and placement groups are reserved when they fit.
    """

    def hold(self, amounts: Mapping[str, float], group: tuple[int, int] | None) -> Holding:
        """Take `amounts` from the machine or a bundle, even if they are in use."""
        shape = self._shapes[self.shape(amounts, group=group)]
        found = self._find(shape)
        if found is not None:
            pool, positions = found
            return Holding(pool, shape.demand, positions)
        pool = shape.pools[0]
        freest = sorted(range(len(pool.gpus)), key=lambda position: -pool.gpus[position])
        positions = tuple(sorted(freest[: shape.demand.gpu_count]))
        return Holding(pool, shape.demand, positions)

    def gpu_ids(self, holding: Holding) -> tuple[str, ...]:
        """Return the ids of the GPUs of a holder."""
        return tuple(self._gpu_ids[position] for position in holding.positions)

    def release(self, holding: Holding) -> Instructions:
        """Return the amounts; groups may become ready."""
        holding.release()
        out: list[Instruction] = []
        self._dispatch(out)
        return out


class InlineEngineBase(Engine):
    """State of the inline engine, and its description of this process as a cluster."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        directory = tempfile.mkdtemp(
            prefix="syncline-inline-", dir=config.temp_dir or settings.temporary_directory()
        )
        job_id, node_id, self._worker_id = (secrets.token_hex(16) for _ in range(3))
        self._session = SessionInfo(
            session_id=job_id, directory=directory, namespace=config.namespace, node_id=node_id
        )
        self._lock = threading.RLock()  # guards the scheduler and the tables of actors
        self._objects = InlineObjects()
        self._scheduler = InlineScheduler(*machine_resources(config))
        self._groups = GroupTable(self._scheduler, self._objects, self._apply, lambda removal: None)
        self._actors: dict[int, InlineActor] = {}
        self._constructors: dict[int, Callable[[], None]] = {}  # of living actors
        self._names: dict[tuple[str, str], int] = {}
        self._streams: dict[int, Stream] = {}
        self._events: deque[Row] = deque(maxlen=TIMELINE_EVENTS)
        self._calls = 0
        self._owner = os.getpid()

    @property
    def session_directory(self) -> Path:
        return Path(self._session.directory)

    @property
    def is_local_mode(self) -> bool:
        return True

    @abstractmethod
    def _end_actor(self, actor: InlineActor, cause: str) -> None:
        """End an actor and free its resources."""

    def _apply(self, instructions: Instructions) -> None:
        for step in instructions:
            assert isinstance(step, GroupReady), step
            self._groups.on_ready(step.group_id)

    def _release(self, holding: Holding) -> None:
        with self._lock:
            instructions = self._scheduler.release(holding)
        self._apply(instructions)

    def free(self, refs: Sequence[AnyRef]) -> None:
        self._objects.empty([ref.id for ref in refs])

    # -- placement groups

    def create_placement_group(
        self,
        bundles: Sequence[Mapping[str, float]],
        *,
        strategy: str,
        name: str,
        detached: bool,
        label_selectors: Sequence[Selector] = (),
        may_wait: bool = False,
    ) -> int:
        for number, selector in enumerate(label_selectors):
            check_machine(self.nodes(), [selector], f"bundle {number} of the placement group")
        self._objects.apply_refcounts()
        id = self._objects.new_id()
        with self._lock:
            problem = self._groups.create(id, bundles, strategy, name, may_wait)
        if problem is not None:
            logger.warning("%s", error_messages.group_waits(bundles, problem))
        return id

    def placement_group_ready(self, group_id: int) -> AnyRef:
        return ObjectRef(int(group_id))

    def remove_placement_group(self, group_id: int) -> None:
        self._objects.apply_refcounts()
        for actor in list(self._actors.values()):
            if actor.context.group_id == group_id and actor.death is None:
                self._end_actor(actor, "was ended because its placement group was removed")
        with self._lock:
            self._groups.remove(int(group_id))

    def placement_groups(self) -> list[Row]:
        with self._lock:
            return self._groups.all(self._session.node_id)

    # -- the machine

    def nodes(self) -> list[Row]:
        return [
            node_row(
                node_id=self._session.node_id,
                hostname=os.uname().nodename,
                labels=self._config.labels,
                resources=self.cluster_resources(),
            )
        ]

    def cluster_resources(self) -> dict[str, float]:
        return self._scheduler.total()

    def available_resources(self) -> dict[str, float]:
        self._objects.apply_refcounts()
        with self._lock:
            return {name: amount for name, amount in self._scheduler.available().items() if amount}

    def runtime_info(self) -> RuntimeInfo:
        current = CURRENT.get()
        context = current.context
        environment = (
            context.runtime_env if isinstance(context, InlineContext) else self._config.runtime_env
        )
        return describe_current(
            self._session, current, worker_id=self._worker_id, environment=environment
        )

    def state(
        self, resource: StateResource, filters: Sequence[Filter] = (), limit: int = LISTED
    ) -> StateListing:
        here, node = self.runtime_info(), self.nodes()[0]
        with self._lock:
            rows: Mapping[str, Iterable[StateRow]] = {
                "actors": actor_rows(list(self._actors.values()), here),
                "jobs": job_rows(here, node),
                "nodes": [node_state(node)],
                "placement_groups": [
                    group_state(row, here.job_id) for row in self.placement_groups()
                ],
                "runtime_envs": [],
                "tasks": task_rows(list(self._events), self._objects, here),
                "workers": process_rows(here, node),
            }
            if resource not in rows:
                return super().state(resource, filters, limit)
            return select(rows[resource], filters, limit)

    def timeline(self) -> list[Row]:
        return list(self._events)

    def statistics(self) -> Mapping[str, Statistics]:
        self._objects.apply_refcounts()
        return {
            "objects": self._objects.statistics,
            "actors": ActorStatistics(alive=len(self._constructors), named=len(self._names)),
            "calls": CallStatistics(submitted=self._calls, streams=len(self._streams)),
        }
