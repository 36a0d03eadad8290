"""Rows and options of the state API.

A field is a column. `detail` columns are None unless `detail=True`; columns that are not
`filterable` cannot be in a filter. Columns that an engine does not know are None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, ClassVar, TypeVar

from syncline.core.state_rows import StateResource as ResourceName
from syncline.core.state_rows import StateRow

Row = TypeVar("Row", bound="StateSchema")

DEFAULT_LIMIT = 100
"""Default number of rows."""
MAX_LIMIT = 10_000
RAY_MAX_LIMIT_FROM_API_SERVER = MAX_LIMIT
DEFAULT_RPC_TIMEOUT = 30
PredicateType = str
SupportedFilterType = str | bool | int | float
Filters = Sequence[tuple[str, PredicateType, SupportedFilterType]]
"""Conditions that rows must meet: (column, "=" or "!=", value)."""


class StateResource(Enum):
    """A kind of rows."""

    ACTORS = "actors"
    JOBS = "jobs"
    PLACEMENT_GROUPS = "placement_groups"
    NODES = "nodes"
    WORKERS = "workers"
    TASKS = "tasks"
    OBJECTS = "objects"
    RUNTIME_ENVS = "runtime_envs"
    CLUSTER_EVENTS = "cluster_events"


class SummaryResource(Enum):
    """A kind of rows that can be counted."""

    ACTORS = "actors"
    TASKS = "tasks"
    OBJECTS = "objects"


@dataclass
class ListApiOptions:
    """Options of a list."""

    limit: int = DEFAULT_LIMIT
    """Number of rows."""
    timeout: int = DEFAULT_RPC_TIMEOUT
    """Accepted without an effect: the engine answers immediately."""
    detail: bool = False
    """True: fill all columns."""
    filters: Filters | None = field(default_factory=list)
    """Conditions that rows must meet."""

    def __post_init__(self) -> None:
        self.filters = [] if self.filters is None else self.filters


@dataclass
class GetApiOptions:
    """Options of the look-up of one row."""

    timeout: int = DEFAULT_RPC_TIMEOUT
    """Accepted without an effect: the engine answers immediately."""


@dataclass
class SummaryApiOptions:
    """Options of a summary."""

    timeout: int = DEFAULT_RPC_TIMEOUT
    """Accepted without an effect: the engine answers immediately."""
    filters: Filters | None = field(default_factory=list)
    """Conditions that counted rows must meet."""
    summary_by: str | None = None
    """Accepted; tasks are counted by function, actors by class, objects by call site."""


def _column(*, filterable: bool = True, detail: bool = False) -> Any:
    return field(default=None, metadata={"filterable": filterable, "detail": detail})


def _detail(*, filterable: bool = False) -> Any:
    return _column(filterable=filterable, detail=True)


@dataclass(kw_only=True)
class StateSchema:
    """A row; its fields are attributes and keys."""

    resource: ClassVar[ResourceName]

    @classmethod
    def of(cls: type[Row], row: Mapping[str, object], *, detail: bool) -> Row:
        """Return the row of an engine, without the detail columns if `detail` is False."""
        return cls(**{name: row.get(name) for name in cls.list_columns(detail=detail)})

    @classmethod
    def list_columns(cls, detail: bool = True) -> list[str]:
        """Return the names of the columns."""
        return [each.name for each in fields(cls) if detail or not each.metadata["detail"]]

    @classmethod
    def columns(cls) -> set[str]:
        """Return the names of all columns."""
        return set(cls.list_columns())

    @classmethod
    def base_columns(cls) -> set[str]:
        """Return the names of the columns that are filled without `detail`."""
        return set(cls.list_columns(detail=False))

    @classmethod
    def detail_columns(cls) -> set[str]:
        """Return the names of all columns."""
        return cls.columns()

    @classmethod
    def filterable_columns(cls) -> set[str]:
        """Return the names of the columns that a filter may have."""
        return {each.name for each in fields(cls) if each.metadata["filterable"]}

    def asdict(self) -> StateRow:
        """Return the row as a dict."""
        return asdict(self)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def __setitem__(self, key: str, value: object) -> None:
        setattr(self, key, value)

    def get(self, key: str, default: object = None) -> Any:
        """Return a column by name."""
        return getattr(self, key, default)


@dataclass(kw_only=True)
class ActorState(StateSchema):
    """An actor."""

    resource = "actors"

    actor_id: str = _column()
    class_name: str = _column()
    state: str = _column()
    """PENDING_CREATION, ALIVE, RESTARTING or DEAD; on a cluster also DEPENDENCIES_UNREADY."""
    job_id: str = _column()
    name: str | None = _column()
    node_id: str | None = _column()
    pid: int | None = _column()
    """0 before it has a process."""
    ray_namespace: str | None = _column()
    serialized_runtime_env: str | None = _detail()
    required_resources: dict[str, float] | None = _detail()
    death_cause: StateRow | None = _detail()
    is_detached: bool | None = _detail()
    placement_group_id: str | None = _detail(filterable=True)
    repr_name: str | None = _detail(filterable=True)
    num_restarts: int | None = _detail()
    num_restarts_due_to_lineage_reconstruction: int | None = _detail()
    num_restarts_due_to_node_preemption: int | None = _detail()
    call_site: str | None = _detail()


@dataclass(kw_only=True)
class PlacementGroupState(StateSchema):
    """A placement group."""

    resource = "placement_groups"

    placement_group_id: str = _column()
    name: str = _column()
    creator_job_id: str = _column()
    state: str = _column()
    """PENDING, CREATED or REMOVED."""
    bundles: list[StateRow] | None = _detail()
    is_detached: bool | None = _detail(filterable=True)
    stats: StateRow | None = _detail()


@dataclass(kw_only=True)
class NodeState(StateSchema):
    """A node."""

    resource = "nodes"

    node_id: str = _column()
    node_ip: str = _column()
    is_head_node: bool = _column()
    state: str = _column()
    """ALIVE or DEAD."""
    state_message: str | None = _column(filterable=False)
    node_name: str = _column()
    resources_total: dict[str, float] = _column(filterable=False)
    labels: dict[str, str] = _column(filterable=False)
    start_time_ms: int | None = _detail()
    end_time_ms: int | None = _detail()


@dataclass(kw_only=True)
class JobState(StateSchema):
    """A program that uses the engine."""

    resource = "jobs"

    type: str = _column()
    job_id: str | None = _column()
    submission_id: str | None = _column()
    driver_info: StateRow | None = _column(filterable=False)
    status: str = _column()
    entrypoint: str = _column()
    message: str | None = _column(filterable=False)
    error_type: str | None = _column()
    start_time: int | None = _column(filterable=False)
    end_time: int | None = _column(filterable=False)
    metadata: StateRow | None = _column(filterable=False)
    runtime_env: StateRow | None = _column(filterable=False)
    driver_agent_http_address: str | None = _column(filterable=False)
    driver_node_id: str | None = _column()
    driver_exit_code: int | None = _column()


@dataclass(kw_only=True)
class WorkerState(StateSchema):
    """A process; on one machine only living ones are listed."""

    resource = "workers"

    worker_id: str = _column()
    is_alive: bool = _column()
    worker_type: str = _column()
    """DRIVER or WORKER."""
    exit_type: str | None = _column()
    node_id: str = _column()
    ip: str = _column()
    pid: int = _column()
    exit_detail: str | None = _detail()
    worker_launch_time_ms: int | None = _detail()
    worker_launched_time_ms: int | None = _detail()
    start_time_ms: int | None = _detail()
    end_time_ms: int | None = _detail()
    debugger_port: int | None = _detail(filterable=True)
    num_paused_threads: int | None = _detail(filterable=True)


@dataclass(kw_only=True)
class TaskState(StateSchema):
    """A task, a call of an actor, or the constructor of an actor."""

    resource = "tasks"

    task_id: str = _column()
    attempt_number: int = _column()
    name: str = _column()
    state: str = _column()
    """PENDING_ARGS_AVAIL, PENDING_NODE_ASSIGNMENT, SUBMITTED_TO_WORKER, RUNNING, FINISHED, FAILED;
    on a cluster also others of Ray's.
    """
    job_id: str = _column()
    actor_id: str | None = _column()
    type: str = _column()
    """NORMAL_TASK, ACTOR_TASK or ACTOR_CREATION_TASK."""
    func_or_class_name: str = _column()
    parent_task_id: str = _column()
    node_id: str | None = _column()
    worker_id: str | None = _column()
    worker_pid: int | None = _column()
    error_type: str | None = _column()
    language: str | None = _detail(filterable=True)
    required_resources: dict[str, float] | None = _detail()
    runtime_env_info: StateRow | None = _detail()
    placement_group_id: str | None = _detail(filterable=True)
    events: list[StateRow] | None = _detail()
    profiling_data: StateRow | None = _detail()
    creation_time_ms: int | None = _detail()
    start_time_ms: int | None = _detail()
    end_time_ms: int | None = _detail()
    task_log_info: StateRow | None = _detail()
    error_message: str | None = _detail()
    is_debugger_paused: bool | None = _detail(filterable=True)
    call_site: str | None = _detail()


@dataclass(kw_only=True)
class ObjectState(StateSchema):
    """A reference to an object by one process."""

    resource = "objects"

    object_id: str = _column()
    object_size: int = _column()
    """Bytes."""
    task_status: str = _column()
    attempt_number: int = _column()
    reference_type: str = _column()
    call_site: str = _column()
    type: str = _column()
    """DRIVER or WORKER: the process that holds the reference."""
    pid: int = _column()
    ip: str = _column()


@dataclass(kw_only=True)
class RuntimeEnvState(StateSchema):
    """A runtime environment in use."""

    resource = "runtime_envs"

    runtime_env: StateRow = _column()
    success: bool = _column()
    creation_time_ms: float | None = _detail()
    node_id: str = _column()
    ref_cnt: int | None = _detail()
    error: str | None = _detail(filterable=True)


SCHEMAS: dict[StateResource, type[StateSchema]] = {
    StateResource(schema.resource): schema
    for schema in (
        ActorState,
        JobState,
        NodeState,
        ObjectState,
        PlacementGroupState,
        RuntimeEnvState,
        TaskState,
        WorkerState,
    )
}
"""The class of rows by resource; events have none."""
