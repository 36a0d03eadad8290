"""Rows of the state API from the hub's tables, with Ray's columns and names of states.

Called under the hub's lock. Ended tasks and actors are listed as far as the tables remember them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from syncline.core import serialization
from syncline.core.embedded import messages as m
from syncline.core.embedded.actor_state_machine import ActorState
from syncline.core.embedded.actor_table import Actor, ActorTable
from syncline.core.embedded.group_table import GroupTable
from syncline.core.embedded.hub_core import HubCore
from syncline.core.embedded.hub_records import Process, Task
from syncline.core.embedded.messages import ActorSpec, Value
from syncline.core.embedded.task_table import Failure, TaskTable
from syncline.core.node_rows import with_both_spellings
from syncline.core.state_rows import (
    Filter,
    StateListing,
    StateResource,
    StateRow,
    group_state,
    node_state,
    plain_name,
    select,
)
from syncline.exceptions import (
    ActorDiedError,
    OutOfMemoryError,
    RayTaskError,
    TaskCancelledError,
    WorkerCrashedError,
)

_ACTOR_STATES = {
    ActorState.PENDING: "PENDING_CREATION",
    ActorState.STARTING: "PENDING_CREATION",
    ActorState.ALIVE: "ALIVE",
    ActorState.RESTARTING: "RESTARTING",
    ActorState.DEAD: "DEAD",
}
_ERROR_TYPES: tuple[tuple[type[BaseException], str], ...] = (
    (RayTaskError, "TASK_EXECUTION_EXCEPTION"),
    (TaskCancelledError, "TASK_CANCELLED"),
    (OutOfMemoryError, "OUT_OF_MEMORY"),
    (WorkerCrashedError, "WORKER_DIED"),
    (ActorDiedError, "ACTOR_DIED"),
)
"""Ray's `error_type` by class of the error."""
_NO_TASK = {
    "attempt_number": 0,
    "parent_task_id": "",
    "node_id": None,
    "worker_id": None,
    "worker_pid": None,
    "error_type": None,
    "error_message": None,
    "language": "PYTHON",
    "required_resources": {},
    "runtime_env_info": None,
    "placement_group_id": None,
    "events": [],
    "creation_time_ms": None,
    "start_time_ms": None,
    "end_time_ms": None,
    "call_site": None,
}
"""Columns of a task about which nothing is known."""


class HubState:
    """The rows of each resource."""

    def __init__(
        self,
        hub: HubCore,
        tasks: TaskTable,
        actors: ActorTable,
        groups: GroupTable,
        running: Callable[[Process], Iterator[Task]],
    ) -> None:
        """`running` returns the tasks that a process runs now."""
        self._hub = hub
        self._running = running
        self._tasks = tasks
        self._actors = actors
        self._groups = groups
        self._started_ms = round(time.time() * 1000)
        self._rows: dict[StateResource, Callable[[str], Iterator[StateRow]]] = {
            "actors": self._actor_rows,
            "jobs": self._job_rows,
            "nodes": self._node_rows,
            "objects": self._object_rows,
            "placement_groups": self._group_rows,
            "runtime_envs": self._environment_rows,
            "tasks": self._task_rows,
            "workers": self._worker_rows,
        }

    def listing(
        self, resource: StateResource, filters: Sequence[Filter], limit: int, job_id: str
    ) -> StateListing:
        """Return the rows that pass the filters; `job_id` is the id of the program."""
        return select(self._rows[resource](job_id), filters, limit)

    @property
    def _node_id(self) -> str:
        return str(self._hub.node["NodeID"])

    @property
    def _address(self) -> str:
        return str(self._hub.node["NodeManagerAddress"])

    # -- actors

    def _actor_rows(self, job_id: str) -> Iterator[StateRow]:
        for actor in self._actors.actors.values():
            if actor.lifecycle.state is not ActorState.DEAD:
                pid = self._actors.pid_of(actor.id)
                row = self._actor_row(actor.id, actor.spec, pid, job_id)
                row["state"] = _ACTOR_STATES[actor.lifecycle.state]
                row["num_restarts"] = actor.lifecycle.restarts
                yield row
        for ended in self._actors.ended:
            row = self._actor_row(ended.id, ended.spec, ended.pid, job_id)
            cause = {"error_message": ended.reason, "pid": ended.pid, "name": ended.spec.name}
            yield {
                **row,
                "state": "DEAD",
                "num_restarts": ended.restarts,
                "death_cause": {"actor_died_error_context": cause},
            }

    def _actor_row(self, id: int, spec: ActorSpec, pid: int | None, job_id: str) -> StateRow:
        return {
            "actor_id": f"{id:032x}",
            "class_name": spec.class_name,
            "state": "",
            "job_id": job_id,
            "name": spec.name,
            "node_id": self._node_id if pid else None,
            "pid": pid or 0,
            "ray_namespace": spec.namespace,
            "serialized_runtime_env": spec.environment or "{}",
            "required_resources": dict(spec.resources),
            "death_cause": None,
            "is_detached": spec.detached,
            "placement_group_id": _group_id(spec.group),
            "repr_name": "",
            "num_restarts": 0,
            "num_restarts_due_to_lineage_reconstruction": 0,
            "num_restarts_due_to_node_preemption": 0,
            "call_site": None,
        }

    # -- tasks

    def _task_rows(self, job_id: str) -> Iterator[StateRow]:
        running = {
            task.id: process
            for process in self._hub.processes.values()
            for task in self._running(process)
        }
        for task in self._tasks.tasks.values():
            yield self._unfinished_row(task, running.get(task.id), job_id)
        yield from self._ended_rows(job_id)
        for actor in self._actors.actors.values():
            if actor.lifecycle.state is not ActorState.DEAD:
                yield self._constructor_row(actor, job_id)

    def _unfinished_row(self, task: Task, process: Process | None, job_id: str) -> StateRow:
        name = self._name(task.actor_id, task.method)
        row = self._task_row(task.id, name, task.actor_id, job_id)
        row["state"] = _state(task, is_running=process is not None)
        row["parent_task_id"] = f"{task.parent:032x}" if task.parent else ""
        if task.definition is not None:
            spec = task.definition.spec
            row["name"] = row["func_or_class_name"] = plain_name(spec.name)
            row["required_resources"] = dict(spec.resources)
            row["placement_group_id"] = _group_id(spec.group)
        if process is not None:
            row.update(self._where(process.pid))
            row["worker_id"] = f"{process.number:032x}"
            row["start_time_ms"] = round(process.busy_since * 1000)
        return row

    def _ended_rows(self, job_id: str) -> Iterator[StateRow]:
        failures = {failure.task_id: failure for failure in self._tasks.failures}
        living = self._tasks.tasks
        attempts = Counter(attempt[4] for attempt in self._tasks.timeline)
        seen: set[int] = set()
        for name, pid, started, ended, task_id, actor_id, has_failed in reversed(
            self._tasks.timeline
        ):
            if task_id in seen or task_id in living:  # an earlier attempt
                continue
            seen.add(task_id)
            row = self._task_row(task_id, name, actor_id, job_id)
            row.update(self._where(pid))
            row["attempt_number"] = attempts[task_id] - 1
            row["start_time_ms"], row["end_time_ms"] = round(started * 1000), round(ended * 1000)
            failure = failures.get(task_id)
            if failure is not None:
                yield _failed(row, failure)
            elif has_failed:  # long ago: its error is forgotten
                yield {**row, "state": "FAILED", "error_type": "TASK_EXECUTION_EXCEPTION"}
            else:
                yield {**row, "state": "FINISHED"}
        for failure in failures.values():
            if failure.task_id not in seen:
                name = self._name(failure.actor_id, failure.name)
                row = self._task_row(failure.task_id, name, failure.actor_id, job_id)
                yield _failed(row, failure)

    def _constructor_row(self, actor: Actor, job_id: str) -> StateRow:
        name = f"{actor.spec.class_name}.__init__"
        row = self._task_row(actor.id, name, actor.id, job_id)
        lives = actor.lifecycle.state is ActorState.ALIVE
        starts = actor.lifecycle.state is ActorState.STARTING
        waits = "PENDING_NODE_ASSIGNMENT"
        row["type"] = "ACTOR_CREATION_TASK"
        row["state"] = "FINISHED" if lives else "RUNNING" if starts else waits
        row["required_resources"] = dict(actor.spec.placement)
        row.update(self._where(self._actors.pid_of(actor.id)))
        return row

    def _task_row(self, id: int, name: str, actor_id: int, job_id: str) -> StateRow:
        return {
            **_NO_TASK,
            "task_id": f"{id:032x}",
            "name": plain_name(name),
            "state": "",
            "job_id": job_id,
            "actor_id": f"{actor_id:032x}" if actor_id else None,
            "type": "ACTOR_TASK" if actor_id else "NORMAL_TASK",
            "func_or_class_name": plain_name(name),
        }

    def _where(self, pid: int | None) -> StateRow:
        return {"node_id": self._node_id if pid else None, "worker_pid": pid or None}

    def _name(self, actor_id: int, method: str) -> str:
        actor = self._actors.actors.get(actor_id)
        return method if actor is None else f"{actor.spec.class_name}.{method}"

    # -- objects

    def _object_rows(self, job_id: str) -> Iterator[StateRow]:
        used = {id for task in self._tasks.tasks.values() for id in task.held_refs}
        groups = {row["id"] for row in self._groups.all(self._node_id)}
        for id, entry in self._hub.objects.entries.items():
            if id in groups:
                continue
            status = "FINISHED"
            if entry.value is None and isinstance(entry.producer, Task):
                status = _state(entry.producer, is_running=entry.producer.worker != 0)
            row = {
                "object_id": f"{id:032x}",
                "object_size": _nbytes(entry.value),
                "task_status": status,
                "attempt_number": 1,
                "call_site": "disabled",
            }
            kind = "ACTOR_HANDLE" if id in self._actors.actors else "LOCAL_REFERENCE"
            holders = [each for each in self._hub.processes.values() if each.refcounts.get(id)]
            for process in holders:
                yield {**row, "reference_type": kind, **self._holder(process)}
            if not holders:
                kind = "USED_BY_PENDING_TASK" if id in used else "CAPTURED_IN_OBJECT"
                yield {**row, "reference_type": kind, **self._holder(self._hub.driver)}

    def _holder(self, process: Process) -> StateRow:
        return {"type": _kind(process), "pid": _pid(process), "ip": self._address}

    # -- processes and the rest

    def _worker_rows(self, job_id: str) -> Iterator[StateRow]:
        for process in self._hub.processes.values():
            yield {
                "worker_id": f"{process.number:032x}",
                "is_alive": not process.gone,
                "worker_type": _kind(process),
                "exit_type": None,
                "node_id": self._node_id,
                "ip": self._address,
                "pid": _pid(process),
                "exit_detail": process.stop_reason,
                "worker_launch_time_ms": None,
                "worker_launched_time_ms": None,
                "start_time_ms": self._started_ms if process is self._hub.driver else None,
                "end_time_ms": None,
                "debugger_port": None,
                "num_paused_threads": 0,
            }

    def _node_rows(self, job_id: str) -> Iterator[StateRow]:
        total = self._hub.scheduler.total()
        row = node_state(with_both_spellings({**self._hub.node, "Resources": total}))
        yield {**row, "start_time_ms": self._started_ms}

    def _group_rows(self, job_id: str) -> Iterator[StateRow]:
        for row in self._groups.all(self._node_id):
            yield group_state(row, job_id)

    def _job_rows(self, job_id: str) -> Iterator[StateRow]:
        pid = os.getpid()
        yield {
            "type": "DRIVER",
            "job_id": job_id,
            "submission_id": None,
            "driver_info": {
                "id": job_id,
                "node_ip_address": self._address,
                "node_id": self._node_id,
                "pid": str(pid),
            },
            "status": "RUNNING",
            "entrypoint": " ".join(sys.argv),
            "message": None,
            "error_type": None,
            "start_time": self._started_ms,
            "end_time": None,
            "metadata": {},
            "runtime_env": {},
            "driver_agent_http_address": None,
            "driver_node_id": self._node_id,
            "driver_exit_code": None,
        }

    def _environment_rows(self, job_id: str) -> Iterator[StateRow]:
        users = Counter(
            process.environment for process in self._hub.processes.values() if process.environment
        )
        for environment, count in users.items():
            yield {
                "runtime_env": json.loads(environment),
                "success": True,
                "creation_time_ms": None,
                "node_id": self._node_id,
                "ref_cnt": count,
                "error": None,
            }


def _failed(row: StateRow, failure: Failure) -> StateRow:
    if not failure.error:
        return {**row, "state": "FAILED", "error_type": "TASK_EXECUTION_EXCEPTION"}
    error = serialization.unpack_error(failure.error)
    kind = next((name for cls, name in _ERROR_TYPES if isinstance(error, cls)), "TASK_FAILED")
    text: object = error.traceback_str if isinstance(error, RayTaskError) else str(error)
    return {**row, "state": "FAILED", "error_type": kind, "error_message": text}


def _state(task: Task, *, is_running: bool) -> str:
    if is_running:
        return "RUNNING"
    if task.pending_args:
        return "PENDING_ARGS_AVAIL"
    return "SUBMITTED_TO_WORKER" if task.worker else "PENDING_NODE_ASSIGNMENT"


def _kind(process: Process) -> str:
    return "WORKER" if process.environment is not None else "DRIVER"


def _pid(process: Process) -> int:
    return process.pid if process.channel is not None else os.getpid()


def _group_id(group: tuple[int, int] | None) -> str | None:
    return None if group is None else f"{group[0]:032x}"


def _nbytes(value: Value | None) -> int:
    if value is None:
        return 0
    form, data, buffers, _ = value
    if form == m.SHARED:
        return int(data.nbytes)
    return len(data) + sum(len(buffer) for buffer in buffers)
