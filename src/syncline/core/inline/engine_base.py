"""What the inline engine keeps, and what it tells of it: placement groups, resources, facts about
the calling code, the timeline.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from syncline import settings
from syncline.core.config import EngineConfig
from syncline.core.engine import Engine, RuntimeInfo
from syncline.core.inline import surroundings
from syncline.core.inline.generator_streams import Stream
from syncline.core.inline.inline_actor import InlineActor
from syncline.core.inline.inline_objects import ObjectTable
from syncline.core.inline.resource_accounting import Ledger, describe_machine
from syncline.core.refs import ObjectRef
from syncline.exceptions import TaskPlacementGroupRemoved

TIMELINE_EVENTS = 100_000
"""How many events `timeline` remembers; older ones are forgotten."""


@dataclass(frozen=True, kw_only=True)
class ActorStatistics:
    """Actors now."""

    alive: int
    named: int


@dataclass(frozen=True, kw_only=True)
class CallStatistics:
    """Calls since the start, and generators now."""

    submitted: int
    streams: int


class InlineMachine(Engine):
    """What the inline engine knows, and what it tells about this process as if it were a
    cluster.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._directory = Path(
            tempfile.mkdtemp(
                prefix="syncline-inline-", dir=config.temp_dir or settings.temporary_directory()
            )
        )
        self._lock = threading.RLock()
        self._table = ObjectTable(self._released)
        self._ledger = Ledger(describe_machine(config))
        self._actors: dict[int, InlineActor] = {}
        self._makers: dict[int, Callable[[], Any]] = {}
        self._names: dict[tuple[str, str], int] = {}
        self._streams: dict[int, Stream] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=TIMELINE_EVENTS)
        self._calls = 0
        self._job_id, self._node_id, self._worker_id = (secrets.token_hex(16) for _ in range(3))
        self._owner = os.getpid()

    @property
    def session_directory(self) -> Path:
        return self._directory

    @property
    def is_local_mode(self) -> bool:
        return True

    @abstractmethod
    def _released(self, id: int) -> None:
        """Nobody holds `id` any more: a generator is closed, an actor ends."""

    @abstractmethod
    def _end_actor(self, actor: InlineActor, cause: str) -> None:
        """End an actor for good and free what it held."""

    # -- placement groups

    def create_placement_group(
        self, bundles: Sequence[Mapping[str, float]], *, strategy: str, name: str, detached: bool
    ) -> int:
        self._table.drain()
        id = self._table.new_id()
        with self._lock:
            self._ledger.create_group(id, bundles, strategy=strategy, name=name)
        return id

    def placement_group_ready(self, group_id: int) -> ObjectRef[Any]:
        self._table.drain()
        entry = self._table.create()

        def settle() -> None:
            group = self._ledger.groups.get(int(group_id))
            if group is None or group.removed:
                self._table.fail(
                    entry,
                    TaskPlacementGroupRemoved(
                        f"the placement group {int(group_id):032x} was removed."
                    ),
                )
            else:
                self._table.settle(entry, True)

        with self._lock:
            group = self._ledger.groups.get(int(group_id))
            if group is not None and group.state == "PENDING":
                group.when_settled.append(settle)
                return ObjectRef(entry.id)
        settle()
        return ObjectRef(entry.id)

    def remove_placement_group(self, group_id: int) -> None:
        self._table.drain()
        for actor in list(self._actors.values()):
            if actor.group_id == group_id and actor.death is None:
                self._end_actor(actor, "was ended because its placement group was removed")
        with self._lock:
            self._ledger.remove_group(int(group_id))

    def placement_groups(self) -> list[Mapping[str, Any]]:
        with self._lock:
            return [
                {
                    "id": id,
                    "name": group.name,
                    "strategy": group.strategy,
                    "bundles": [spec.amounts() for spec in group.specs],
                    "state": group.state,
                }
                for id, group in self._ledger.groups.items()
            ]

    # -- the machine

    def nodes(self) -> list[dict[str, Any]]:
        name = os.uname().nodename
        return [
            {
                "NodeID": self._node_id,
                "Alive": True,
                "NodeManagerAddress": "127.0.0.1",
                "NodeManagerHostname": name,
                "NodeName": name,
                "Resources": self.cluster_resources(),
                "Labels": dict(self._config.labels),
            }
        ]

    def cluster_resources(self) -> dict[str, float]:
        return self._ledger.machine.total.amounts()

    def available_resources(self) -> dict[str, float]:
        self._table.drain()
        with self._lock:
            return {name: amount for name, amount in self._ledger.available().items() if amount}

    def runtime_info(self) -> RuntimeInfo:
        current = surroundings.now()
        program = RuntimeInfo(
            job_id=self._job_id,
            node_id=self._node_id,
            worker_id=self._worker_id,
            namespace=self._config.namespace,
            runtime_env=self._config.runtime_env,
        )
        if current is None:
            return program
        actor = None if current.actor_id is None else self._actors.get(current.actor_id)
        return replace(
            program,
            task_id=f"{current.task_id:032x}",
            task_name=current.task_name,
            actor_id=None if current.actor_id is None else f"{current.actor_id:032x}",
            actor_name=current.actor_name,
            actor=None if actor is None else actor.record,
            was_restarted=current.was_restarted,
            placement_group_id=current.placement_group_id,
            assigned_resources=current.resources,
            gpu_ids=current.gpu_ids,
            runtime_env=current.runtime_env,
        )

    def timeline(self) -> list[dict[str, Any]]:
        return list(self._events)

    def statistics(self) -> Mapping[str, Any]:
        self._table.drain()
        return {
            "objects": self._table.statistics(),
            "actors": ActorStatistics(alive=len(self._makers), named=len(self._names)),
            "calls": CallStatistics(submitted=self._calls, streams=len(self._streams)),
        }
