"""`get_runtime_context()`: ids and resources of the calling task or actor, with Ray's methods."""

from __future__ import annotations

import json

from syncline.core.engine import RuntimeInfo
from syncline.core.ids import ActorID, JobID, NodeID, PlacementGroupID, TaskID
from syncline.core.lifecycle import ensure_engine
from syncline.core.remote import ActorHandle
from syncline.core.runtime_env import RuntimeEnv


class RuntimeContext:
    """Facts about the calling thread's task or actor; ids are hexadecimal text.

    Each call reads the current state.
    """

    @property
    def _info(self) -> RuntimeInfo:
        return ensure_engine().runtime_info()

    def get(self) -> dict[str, str]:
        """Return the ids of job, node, task and actor, and the namespace."""
        info = self._info
        found = {"job_id": info.job_id, "node_id": info.node_id, "namespace": info.namespace}
        if info.task_id is not None:
            found["task_id"] = info.task_id
        if info.actor_id is not None:
            found["actor_id"] = info.actor_id
        return found

    def get_job_id(self) -> str:
        """Return the id of the program's run."""
        return self._info.job_id

    def get_node_id(self) -> str:
        """Return the id of the node."""
        return self._info.node_id

    def get_worker_id(self) -> str:
        """Return the id of the process."""
        return self._info.worker_id

    def get_task_id(self) -> str | None:
        """Return the id of the task or call; None in the driver."""
        return self._info.task_id

    def get_task_name(self) -> str | None:
        """Return the task's `name` option, or its function's name; None in the driver."""
        return self._info.task_name

    def get_task_function_name(self) -> str | None:
        """Return the same as `get_task_name`."""
        return self._info.task_name

    def get_actor_id(self) -> str | None:
        """Return the id of the actor; None outside an actor."""
        return self._info.actor_id

    def get_actor_name(self) -> str | None:
        """Return the actor's name, empty if it has none; None outside an actor."""
        info = self._info
        return None if info.actor_id is None else info.actor_name or ""

    @property
    def job_id(self) -> JobID:
        """`get_job_id()` as an object."""
        return JobID.from_hex(self._info.job_id)

    @property
    def node_id(self) -> NodeID:
        """`get_node_id()` as an object."""
        return NodeID.from_hex(self._info.node_id)

    @property
    def task_id(self) -> TaskID | None:
        """`get_task_id()` as an object."""
        found = self._info.task_id
        return None if found is None else TaskID.from_hex(found)

    @property
    def actor_id(self) -> ActorID | None:
        """`get_actor_id()` as an object."""
        found = self._info.actor_id
        return None if found is None else ActorID.from_hex(found)

    @property
    def current_placement_group_id(self) -> PlacementGroupID:
        """`get_placement_group_id()` as an object; the null id outside a group."""
        found = self.get_placement_group_id()
        return PlacementGroupID.nil() if found is None else PlacementGroupID.from_hex(found)

    def get_session_name(self) -> str:
        """Return the name of the engine's session."""
        return ensure_engine().session_directory.name

    def get_temp_dir(self) -> str:
        """Return the directory that contains the directories of sessions."""
        return str(ensure_engine().session_directory.parent)

    def get_node_labels(self) -> dict[str, str]:
        """Return the labels of the node."""
        engine = ensure_engine()
        here = engine.runtime_info().node_id
        return next(dict(row["Labels"]) for row in engine.nodes() if row["NodeID"] == here)

    @property
    def namespace(self) -> str:
        """The default namespace of actor names."""
        return self._info.namespace

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """True if this actor restarted after its process died; RuntimeError outside an actor."""
        info = self._info
        if info.actor_id is None:
            raise RuntimeError(
                "`was_current_actor_reconstructed` is about an actor, but this code runs outside "
                "one: read it in an actor's method"
            )
        return info.was_restarted

    @property
    def current_actor(self) -> ActorHandle:
        """A handle of the calling actor; RuntimeError outside an actor."""
        record = self._info.actor
        if record is None:
            raise RuntimeError(
                "`current_actor` is the actor that runs this code, but this code runs outside "
                "one: read it in an actor's method"
            )
        return ActorHandle(record, ensure_engine().hold_actor(record.actor_id))

    def get_placement_group_id(self) -> str | None:
        """Return the id of the current placement group; None outside one."""
        group = self._info.placement_group_id
        return None if group is None else f"{group:032x}"

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        """True if submitted tasks run in the current placement group, and outside of groups."""
        return self._info.captures_child_tasks

    def get_assigned_resources(self) -> dict[str, float]:
        """Return the resources of the task or actor; RuntimeError in the driver."""
        info = self._info
        if info.assigned_resources is None:
            raise RuntimeError(
                "`get_assigned_resources` is about tasks and actors, but this code runs in the "
                "driver: call it in a remote function or a method"
            )
        return dict(info.assigned_resources)

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """Return the ids of the assigned accelerators by kind."""
        return {"GPU": list(self._info.gpu_ids)}

    def get_resource_ids(self) -> dict[str, list[str]]:
        """Return the same as `get_accelerator_ids`."""
        return self.get_accelerator_ids()

    def is_canceled(self) -> bool:
        """Return True if this call was cancelled: a method that runs in a thread should then end.

        Tasks and methods in the main thread get KeyboardInterrupt instead, async methods
        CancelledError. Raises RuntimeError in the program and in async methods.
        """
        info = self._info
        if info.task_id is None:
            raise RuntimeError(
                "`is_canceled` is about tasks and actors, but this code runs in the driver: call "
                "it in a remote function or a method"
            )
        import asyncio  # takes long: load it on first use

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return ensure_engine().is_cancelled()
        raise RuntimeError(
            "`is_canceled` is not for async methods, in which a cancelled call gets "
            "`asyncio.CancelledError`: catch that"
        )

    @property
    def runtime_env(self) -> RuntimeEnv:
        """The environment of this worker."""
        return RuntimeEnv(**(self._info.runtime_env or {}))

    def get_runtime_env_string(self) -> str:
        """Return `runtime_env` as JSON."""
        return json.dumps(self.runtime_env)

    @property
    def gcs_address(self) -> str:
        """The cluster's address; empty on one machine."""
        address = ensure_engine().address
        return "" if address == "local" else address


_context = RuntimeContext()


def get_runtime_context() -> RuntimeContext:
    """Return facts about the calling code."""
    return _context
