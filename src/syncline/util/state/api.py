"""Functions of the state API, with Ray's signatures.

`address` starts syncline on a cluster if it does not run yet; a running engine answers itself.
`timeout` and `_explain` are accepted and have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from syncline.core import engine as engines
from syncline.core.engine import Engine
from syncline.core.lifecycle import ensure_engine, init
from syncline.core.refs import AnyRef, ObjectRef
from syncline.core.state_rows import Filter, StateRow
from syncline.suggestions import did_you_mean
from syncline.util.state import summaries
from syncline.util.state.common import (
    DEFAULT_LIMIT,
    DEFAULT_RPC_TIMEOUT,
    MAX_LIMIT,
    SCHEMAS,
    ActorState,
    Filters,
    GetApiOptions,
    JobState,
    ListApiOptions,
    NodeState,
    ObjectState,
    PlacementGroupState,
    RuntimeEnvState,
    StateResource,
    StateSchema,
    SummaryApiOptions,
    SummaryResource,
    TaskState,
    WorkerState,
)
from syncline.util.state.exception import InvalidFilterError, RayStateApiException
from syncline.util.state.logs import get_log, list_logs

__all__ = [
    "StateApiClient",
    "get_actor",
    "get_job",
    "get_log",
    "get_node",
    "get_objects",
    "get_placement_group",
    "get_task",
    "get_worker",
    "list_actors",
    "list_cluster_events",
    "list_jobs",
    "list_logs",
    "list_nodes",
    "list_objects",
    "list_placement_groups",
    "list_runtime_envs",
    "list_tasks",
    "list_workers",
    "summarize_actors",
    "summarize_objects",
    "summarize_tasks",
]

Row = TypeVar("Row", bound=StateSchema)

_ID_COLUMNS = {
    StateResource.ACTORS: "actor_id",
    StateResource.JOBS: "submission_id",
    StateResource.NODES: "node_id",
    StateResource.OBJECTS: "object_id",
    StateResource.PLACEMENT_GROUPS: "placement_group_id",
    StateResource.TASKS: "task_id",
    StateResource.WORKERS: "worker_id",
}
_COUNTED = {
    SummaryResource.ACTORS: summaries.of_actors,
    SummaryResource.OBJECTS: summaries.of_objects,
    SummaryResource.TASKS: summaries.of_tasks,
}


class StateApiClient:
    """Asks the engine for rows. The functions of this module use one each."""

    def __init__(
        self, address: str | None = None, cookies: object = None, headers: object = None
    ) -> None:
        self._engine = _engine_at(address)

    def list(
        self,
        resource: StateResource,
        options: ListApiOptions | None = None,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> Sequence[StateSchema]:
        """Return the rows that meet the filters.

        Raises:
            InvalidFilterError: An unknown column or predicate; also a ValueError.
            RayStateApiException: The engine keeps no such list, and `raise_on_missing_output`.
        """
        options = options or ListApiOptions()
        schema = SCHEMAS.get(resource)
        if schema is None:  # events: this engine reports them in the log
            return []
        rows = self._rows(schema, options.filters, options.limit, raise_on_missing_output)
        return [schema.of(row, detail=options.detail) for row in rows]

    def get(
        self,
        resource: StateResource,
        id: str,
        options: GetApiOptions | None = None,
        _explain: bool = False,
    ) -> Any:
        """Return the row with this id, or None; of objects and retried tasks, a list of rows."""
        schema = SCHEMAS[resource]
        column = _ID_COLUMNS[resource]
        found = [
            schema.of(row, detail=True)
            for row in self._rows(schema, [(column, "=", id)], MAX_LIMIT, True)
        ]
        if resource is StateResource.OBJECTS:
            return found
        if resource is StateResource.TASKS and len(found) > 1:
            return found
        return found[0] if found else None

    def summary(
        self,
        resource: SummaryResource,
        *,
        options: SummaryApiOptions | None = None,
        raise_on_missing_output: bool = True,
        _explain: bool = False,
    ) -> summaries.Summary:
        """Return counts under the key "cluster"."""
        options = options or SummaryApiOptions()
        schema = SCHEMAS[StateResource(resource.value)]
        rows = self._rows(schema, options.filters, MAX_LIMIT, raise_on_missing_output)
        return {"cluster": _COUNTED[resource](rows)}

    def _rows(
        self,
        schema: type[StateSchema],
        filters: Filters | None,
        limit: int,
        raise_on_missing_output: bool,
    ) -> Sequence[StateRow]:
        if not 0 <= limit <= MAX_LIMIT:
            raise ValueError(
                f"`limit={limit}` is out of range: give 0 to {MAX_LIMIT}, and narrow the list with "
                "`filters`"
            )
        listing = self._engine.state(schema.resource, _checked(schema, filters or ()), limit)
        if listing.unknown is not None and raise_on_missing_output:
            raise RayStateApiException(
                f"The {schema.resource} cannot be listed: {listing.unknown}."
            )
        return listing.rows


def _engine_at(address: str | None) -> Engine:
    if address is not None and engines.current is None:
        init(address)
    return ensure_engine()


def _checked(schema: type[StateSchema], filters: Filters) -> list[Filter]:
    columns = sorted(schema.filterable_columns())
    checked: list[Filter] = []
    for each in filters:
        if not isinstance(each, (tuple, list)) or len(each) != 3:
            raise ValueError(
                f"the filter {each!r} is not a tuple (column, '=' or '!=', value), such as "
                "('state', '=', 'ALIVE')"
            )
        column, predicate, value = each
        name = str(column).lower()
        if name not in columns:
            raise InvalidFilterError(
                f"the filter {each!r} has the unknown column {column!r}."
                f"{did_you_mean(name, columns)} Columns of {schema.resource}: "
                f"{', '.join(columns)}."
            )
        if predicate not in ("=", "!="):
            raise InvalidFilterError(
                f"the filter {each!r} has the unknown predicate {predicate!r}: use '=' or '!='"
            )
        checked.append((name, predicate, value))
    return checked


def _list(
    schema: type[Row],
    address: str | None,
    filters: Filters | None,
    limit: int,
    detail: bool,
    raise_on_missing_output: bool,
) -> list[Row]:
    options = ListApiOptions(limit=limit, detail=detail, filters=filters)
    found = StateApiClient(address).list(
        StateResource(schema.resource), options, raise_on_missing_output
    )
    return cast("list[Row]", found)


# -- lists


def list_actors(
    address: str | None = None,
    filters: Filters | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[ActorState]:
    """List actors, the ended ones too."""
    return _list(ActorState, address, filters, limit, detail, raise_on_missing_output)


def list_placement_groups(
    address: str | None = None,
    filters: Filters | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[PlacementGroupState]:
    """List placement groups, the removed ones too."""
    return _list(PlacementGroupState, address, filters, limit, detail, raise_on_missing_output)


def list_nodes(
    address: str | None = None,
    filters: Filters | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[NodeState]:
    """List nodes, the dead ones too."""
    return _list(NodeState, address, filters, limit, detail, raise_on_missing_output)


def list_jobs(
    address: str | None = None,
    filters: Filters | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[JobState]:
    """List the programs that use the engine."""
    return _list(JobState, address, filters, limit, detail, raise_on_missing_output)


def list_workers(
    address: str | None = None,
    filters: Filters | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[WorkerState]:
    """List the processes of the engine."""
    return _list(WorkerState, address, filters, limit, detail, raise_on_missing_output)


def list_tasks(
    address: str | None = None,
    filters: Filters | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[TaskState]:
    """List tasks and calls of actors, the ended ones too."""
    return _list(TaskState, address, filters, limit, detail, raise_on_missing_output)


def list_objects(
    address: str | None = None,
    filters: Filters | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[ObjectState]:
    """List objects: one row for each process that holds a reference."""
    return _list(ObjectState, address, filters, limit, detail, raise_on_missing_output)


def list_runtime_envs(
    address: str | None = None,
    filters: Filters | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[RuntimeEnvState]:
    """List the runtime environments of the worker processes."""
    return _list(RuntimeEnvState, address, filters, limit, detail, raise_on_missing_output)


def list_cluster_events(
    address: str | None = None,
    filters: Filters | None = None,
    limit: int = DEFAULT_LIMIT,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    detail: bool = False,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> list[StateRow]:
    """Return an empty list: events are in the output of the program and in the log files."""
    _engine_at(address)
    return []


# -- single rows


def get_actor(
    id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> ActorState | None:
    """Return the actor with this id."""
    return cast("ActorState | None", StateApiClient(address).get(StateResource.ACTORS, id))


def get_job(
    id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> JobState | None:
    """Return the job with this submission id."""
    return cast("JobState | None", StateApiClient(address).get(StateResource.JOBS, id))


def get_placement_group(
    id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> PlacementGroupState | None:
    """Return the placement group with this id."""
    found = StateApiClient(address).get(StateResource.PLACEMENT_GROUPS, id)
    return cast("PlacementGroupState | None", found)


def get_node(
    id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> NodeState | None:
    """Return the node with this id."""
    return cast("NodeState | None", StateApiClient(address).get(StateResource.NODES, id))


def get_worker(
    id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> WorkerState | None:
    """Return the process with this worker id."""
    return cast("WorkerState | None", StateApiClient(address).get(StateResource.WORKERS, id))


def get_task(
    id: str | AnyRef,
    address: str | None = None,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    _explain: bool = False,
) -> TaskState | list[TaskState] | None:
    """Return the task with this id, or the task that makes the value of a reference.

    A cluster returns a list with one row for each execution of a retried task.
    """
    text = id.task_id().hex() if isinstance(id, ObjectRef) else id
    found = StateApiClient(address).get(StateResource.TASKS, text)
    return cast("TaskState | list[TaskState] | None", found)


def get_objects(
    id: str, address: str | None = None, timeout: int = DEFAULT_RPC_TIMEOUT, _explain: bool = False
) -> list[ObjectState]:
    """Return one row for each process that holds a reference to the object with this id."""
    return cast("list[ObjectState]", StateApiClient(address).get(StateResource.OBJECTS, id))


# -- summaries


def summarize_actors(
    address: str | None = None,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> summaries.Summary:
    """Count actors by class and state."""
    return StateApiClient(address).summary(
        SummaryResource.ACTORS, raise_on_missing_output=raise_on_missing_output
    )


def summarize_tasks(
    address: str | None = None,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> summaries.Summary:
    """Count tasks by function and state."""
    return StateApiClient(address).summary(
        SummaryResource.TASKS, raise_on_missing_output=raise_on_missing_output
    )


def summarize_objects(
    address: str | None = None,
    timeout: int = DEFAULT_RPC_TIMEOUT,
    raise_on_missing_output: bool = True,
    _explain: bool = False,
) -> summaries.Summary:
    """Count objects and their bytes."""
    return StateApiClient(address).summary(
        SummaryResource.OBJECTS, raise_on_missing_output=raise_on_missing_output
    )
