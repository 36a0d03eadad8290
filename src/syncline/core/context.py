"""`get_runtime_context()`: who and where the calling code is, under the names of Ray's methods."""

from __future__ import annotations

import json
from typing import Any

from syncline.core.engine import RuntimeFacts
from syncline.core.lifecycle import ensure_engine
from syncline.core.remote import ActorHandle
from syncline.core.runtime_env import RuntimeEnv


class RuntimeContext:
    """Facts about the task or actor that the calling thread runs, read anew with every call; ids
    are hexadecimal text.
    """

    @property
    def _facts(self) -> RuntimeFacts:
        return ensure_engine().facts()

    def get(self) -> dict[str, Any]:
        """The most important facts as a dict."""
        facts = self._facts
        found = {"job_id": facts.job_id, "node_id": facts.node_id, "namespace": facts.namespace}
        if facts.task_id is not None:
            found["task_id"] = facts.task_id
        if facts.actor_id is not None:
            found["actor_id"] = facts.actor_id
        return found

    def get_job_id(self) -> str:
        """The run of the program."""
        return self._facts.job_id

    def get_node_id(self) -> str:
        """The machine."""
        return self._facts.node_id

    def get_worker_id(self) -> str:
        """The process."""
        return self._facts.worker_id

    def get_task_id(self) -> str | None:
        """The task or call; None in the program itself."""
        return self._facts.task_id

    def get_task_name(self) -> str | None:
        """The name of the task's options, else its function; None in the program itself."""
        return self._facts.task_name

    def get_task_function_name(self) -> str | None:
        """The same."""
        return self._facts.task_name

    def get_actor_id(self) -> str | None:
        """The actor; None outside of one."""
        return self._facts.actor_id

    def get_actor_name(self) -> str | None:
        """The name that `get_actor` finds this actor by, empty without one; None outside of an
        actor.
        """
        facts = self._facts
        return None if facts.actor_id is None else facts.actor_name or ""

    @property
    def namespace(self) -> str:
        """Where names of actors are looked up by default."""
        return self._facts.namespace

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Whether this actor was started again after its process died. RuntimeError outside of an
        actor.
        """
        facts = self._facts
        if facts.actor_id is None:
            raise RuntimeError(
                "`was_current_actor_reconstructed` is about an actor, but this code runs in none: ask in an actor's method"
            )
        return facts.was_restarted

    @property
    def current_actor(self) -> ActorHandle:
        """A handle of the actor that runs this. RuntimeError outside of an actor."""
        record = self._facts.actor
        if record is None:
            raise RuntimeError(
                "`current_actor` is the actor that runs this code, but none does: ask in an actor's method"
            )
        return ActorHandle(record, ensure_engine().hold_actor(record.actor_id))

    def get_placement_group_id(self) -> str | None:
        """The placement group that this runs in; None without one."""
        group = self._facts.placement_group_id
        return None if group is None else f"{group:032x}"

    def get_assigned_resources(self) -> dict[str, float]:
        """What the task or actor holds, by resource. RuntimeError in the program itself, which
        holds nothing.
        """
        facts = self._facts
        if facts.assigned_resources is None:
            raise RuntimeError(
                "`get_assigned_resources` is about tasks and actors, but this code runs in neither"
            )
        return dict(facts.assigned_resources)

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        """Ids of the accelerators that the task or actor holds, by kind."""
        return {"GPU": list(self._facts.gpu_ids)}

    @property
    def runtime_env(self) -> RuntimeEnv:
        """The environment of this process's worker."""
        return RuntimeEnv(**(self._facts.runtime_env or {}))

    def get_runtime_env_string(self) -> str:
        """The same as JSON."""
        return json.dumps(self.runtime_env)

    @property
    def gcs_address(self) -> str:
        """The cluster's address; empty on one machine, where nothing has an address."""
        address = ensure_engine().address
        return "" if address == "local" else address


_context = RuntimeContext()


def get_runtime_context() -> RuntimeContext:
    """Facts about the calling code."""
    return _context
