"""`Engine`: the interface of whatever runs tasks, actors and objects; and this process's engine.

`core.api`, and through it everything above, talks to this class only. It mirrors Ray Core, so that
the engine on a cluster only translates. Every engine passes the conformance suite of
`syncline.testing`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from syncline.core import refs
from syncline.core.definitions import ActorDefinition, CallDefinition, TaskDefinition
from syncline.core.key_values import FileKeyValues, KeyValues
from syncline.core.labels import Selector
from syncline.core.options import MethodOptions
from syncline.core.refs import AnyGenerator, AnyRef, Hold, Waitable
from syncline.core.runtime_env import Env
from syncline.core.state_rows import Filter, StateListing, StateResource
from syncline.records import dataclass

Submitted = AnyRef | list[AnyRef] | AnyGenerator | None
"""Result of a call: for `num_returns` 1, above 1, "streaming", 0."""
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Row = dict[str, Any]
"""Fields under Ray's names, as Ray's API returns them."""


@dataclass(frozen=True, kw_only=True)
class ActorRecord:
    """Data from which any process can build a handle of an actor; serializable."""

    actor_id: int
    """The actor's id; `Hold(actor_id)` keeps an unnamed actor alive."""
    class_name: str
    """Name of the class in the program."""
    methods: Mapping[str, MethodOptions]
    """Options of every public method by name."""
    groups: tuple[str, ...] = ()
    """Concurrency groups that calls may name."""
    signatures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Parameter lists of the methods by name, where they are known."""

    @classmethod
    def of(cls, definition: ActorDefinition, actor_id: int) -> ActorRecord:
        """Return the record of an actor of this class."""
        return cls(
            actor_id=actor_id,
            class_name=definition.name,
            methods=definition.methods,
            groups=definition.groups,
            signatures=definition.signatures,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)  # compiled now, and not in each worker anew
class RuntimeInfo:
    """Identity of the calling code; fields that do not apply are None."""

    job_id: str
    node_id: str
    worker_id: str
    namespace: str
    task_id: str | None = None
    task_name: str | None = None
    actor_id: str | None = None
    actor_name: str | None = None
    actor: ActorRecord | None = None
    was_restarted: bool = False
    placement_group_id: int | None = None
    captures_child_tasks: bool = True
    """False in a placement group whose tasks submit others outside of it."""
    assigned_resources: Mapping[str, float] | None = None
    gpu_ids: tuple[str, ...] = ()
    runtime_env: Env | None = None


ActorStateName = Literal["PENDING", "STARTING", "ALIVE", "RESTARTING"]
"""Waits for resources or a process; runs its constructor; serves calls; lost its process and waits
for another.
"""
TaskStateName = Literal["WAITING", "QUEUED", "RUNNING"]
"""Waits for arguments; waits for resources or for earlier calls; runs."""

LISTED = 1000
"""Default limit of each list in a listing."""


@dataclass(frozen=True, kw_only=True)
class ActorInfo:
    """One pending or living actor in a listing. Its values are plain, so JSON can hold them."""

    actor_id: str
    """The id that the actor's runtime context returns."""
    class_name: str
    name: str | None
    state: ActorStateName
    pid: int | None
    """None if it has no process now."""
    node_id: str | None
    """None if it has no process now."""
    resources: Mapping[str, float]
    """Resources that it holds while it lives."""
    restarts: int
    pending_calls: int | None
    """Calls without a result; None if the engine does not know."""


@dataclass(frozen=True, kw_only=True)
class TaskInfo:
    """One running task or call in a listing. Its values are plain, so JSON can hold them."""

    task_id: str
    name: str
    """The function's name, or `Class.method`."""
    state: TaskStateName
    pid: int | None
    node_id: str | None
    started: float | None
    """Seconds since the epoch; None if unknown, as for concurrent calls of an actor."""


@dataclass(frozen=True, kw_only=True)
class TaskCount:
    """Number of tasks and calls with one name in one state."""

    name: str
    state: TaskStateName
    count: int


@dataclass(frozen=True, kw_only=True)
class ActorListing:
    """The pending and living actors of an engine at one time."""

    actors: tuple[ActorInfo, ...] = ()
    total: int = 0
    """Number of actors, also those beyond the limit."""
    unknown: str | None = None
    """Reason why the engine has no list; None if it has one."""


@dataclass(frozen=True, kw_only=True)
class TaskListing:
    """The unfinished tasks and calls of an engine at one time."""

    counts: tuple[TaskCount, ...] = ()
    """The most frequent first."""
    running: tuple[TaskInfo, ...] = ()
    total: int = 0
    """Number of tasks and calls, running or not."""
    unknown: str | None = None
    """Reason why the engine has no list; None if it has one."""

    @classmethod
    def of(
        cls, counts: Counter[tuple[str, TaskStateName]], running: Iterable[TaskInfo], limit: int
    ) -> TaskListing:
        """Return a listing of tasks that are counted by name and state."""
        return cls(
            counts=tuple(
                TaskCount(name=name, state=state, count=count)
                for (name, state), count in counts.most_common(limit)
            ),
            running=tuple(islice(running, limit)),
            total=sum(counts.values()),
        )


def trace_event(
    name: str, *, pid: int | str, tid: int, started: float, ended: float, **more: object
) -> Row:
    """Return a Chrome trace event; times are in seconds."""
    return {
        "name": name,
        "cat": "task",
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": started * 1e6,
        "dur": max(0.0, (ended - started) * 1e6),
        **more,
    }


class Statistics(Protocol):
    """A frozen dataclass of counters."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Engine(ABC):
    """Runs tasks and actors and stores objects.

    Thread safety: any thread of the driver and of workers may call every method. A method that
    waits returns when its condition holds or `timeout_s` passes, and raises when the condition can
    no longer hold, for example because a process died. Only `get` raises errors of user code, as
    `exceptions` describes.
    """

    @property
    @abstractmethod
    def session_directory(self) -> Path:
        """Directory of this session's logs and temporary files; exists while the engine runs."""

    @property
    def shared_directory(self) -> Path | None:
        """Directory of this session in shared memory; None: the engine has none."""
        return None

    @property
    def key_values(self) -> KeyValues:
        """Small values that all processes of this engine share."""
        return FileKeyValues(self.session_directory / "key-values")

    @property
    def is_local_mode(self) -> bool:
        """True if everything runs in the calling process, in order."""
        return False

    @property
    def address(self) -> str:
        """The cluster's address, or "local" for this machine."""
        return "local"

    @property
    def dashboard_url(self) -> str | None:
        """host:port of the cluster's own dashboard; None without one."""
        return None

    @property
    def installs_packages(self) -> bool:
        """True if a `runtime_env` may install packages in workers, such as with `pip`."""
        return False

    @property
    def outlives_driver(self) -> bool:
        """True if detached actors live on after the program ends."""
        return False

    @property
    def may_grow(self) -> bool:
        """True if nodes are added on demand, so that infeasible demands may become feasible."""
        return False

    # -- tasks and actors

    @abstractmethod
    def submit_task(self, definition: TaskDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        """Run a function.

        Raises TypeError for arguments that cannot be pickled, ValueError for infeasible resources.
        """

    @abstractmethod
    def create_actor(
        self, definition: ActorDefinition, args: Args, kwargs: Kwargs
    ) -> tuple[ActorRecord, Hold]:
        """Start an actor; its first call reports an error of its constructor.

        Raises ValueError if the name is taken.
        """

    @abstractmethod
    def submit_call(self, definition: CallDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        """Call a method.

        Calls of one caller run in submission order, unless the actor is async or threaded.
        """

    @abstractmethod
    def cancel(self, ref: AnyRef | AnyGenerator, *, force: bool, recursive: bool) -> None:
        """Cancel the task of a reference.

        A task that has not started never runs; a running one gets KeyboardInterrupt (async:
        CancelledError).
        """

    @abstractmethod
    def kill(self, actor_id: int, *, no_restart: bool) -> None:
        """Kill an actor's process now."""

    @abstractmethod
    def exit_actor(self) -> None:
        """Exit the calling actor after this call, without a restart; else RuntimeError."""

    @abstractmethod
    def named_actor(self, name: str, namespace: str | None) -> tuple[ActorRecord, Hold]:
        """Look up an actor by name; ValueError that lists the existing names."""

    @abstractmethod
    def list_named_actors(self, *, all_namespaces: bool) -> list[tuple[str, str]]:
        """Return (namespace, name) of every living named actor, sorted."""

    def hold_actor(self, actor_id: int) -> Hold:
        """Return a hold on an actor that this process knows, such as the actor itself."""
        return Hold(actor_id)

    # -- objects

    @abstractmethod
    def put(self, value: object) -> AnyRef:
        """Store a copy of `value`."""

    @abstractmethod
    def get(self, refs: Sequence[AnyRef], timeout_s: float | None) -> list[Any]:
        """Return the values in the same order.

        Raises the first error, and GetTimeoutError after `timeout_s`.
        """

    @abstractmethod
    def wait(
        self,
        refs: Sequence[Waitable],
        *,
        num_returns: int,
        timeout_s: float | None,
        fetch_local: bool,
    ) -> tuple[list[Waitable], list[Waitable]]:
        """Return (ready, not ready) in the order of `refs`; at most `num_returns` are ready."""

    @abstractmethod
    def next_item(
        self, generator: AnyGenerator, index: int, timeout_s: float | None
    ) -> AnyRef | None:
        """Wait for item `index` and return its reference; None past the end.

        Raises GetTimeoutError after `timeout_s`.
        """

    @abstractmethod
    def on_value(self, ref: AnyRef, callback: Callable[[Any, BaseException | None], None]) -> None:
        """Call back once with (value, None) or (None, error).

        The callback runs on an engine thread, which it must not block.
        """

    @abstractmethod
    def on_item(
        self, generator: AnyGenerator, index: int, callback: Callable[[AnyRef | None], None]
    ) -> None:
        """Call back once with the reference to item `index`, or None past the end.

        The callback runs on an engine thread, which it must not block.
        """

    def task_of(self, id: int) -> int:
        """Return the id of the task or call that makes an object; `id` if that is unknown."""
        return id

    @abstractmethod
    def free(self, refs: Sequence[AnyRef]) -> None:
        """Replace the values that exist by ObjectFreedError, and drop them.

        A value in shared memory keeps its place until its last reference is gone, because
        processes may read it. A cluster only warns: Ray cannot do it.
        """

    def object_locations(self, refs: Sequence[AnyRef]) -> list[Row]:
        """Return, for each reference, `node_ids` that have its value, `object_size` in bytes and
        `did_spill`.
        """
        here = self.runtime_info().node_id
        found = [self.state("objects", [("object_id", "=", ref.hex())], 1).rows for ref in refs]
        return [
            {
                "node_ids": [here] if rows and rows[0]["task_status"] == "FINISHED" else [],
                "object_size": rows[0]["object_size"] if rows else None,
                "did_spill": False,
            }
            for rows in found
        ]

    # -- placement groups

    @abstractmethod
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
        """Start to reserve all `bundles` together and return the group's id.

        `label_selectors` has the labels that the node of each bundle must have; empty: any node.
        Infeasible bundles raise ValueError; with `may_wait` they wait for more resources, with a
        warning.
        """

    @abstractmethod
    def placement_group_ready(self, group_id: int) -> AnyRef:
        """Return a reference whose value is the group, once all bundles are reserved.

        The reference gets an error if the group is removed.
        """

    @abstractmethod
    def remove_placement_group(self, group_id: int) -> None:
        """Release the bundles and kill the group's tasks and actors; may be called twice."""

    @abstractmethod
    def placement_groups(self) -> list[Row]:
        """Return all groups: id, name, strategy, bundles, nodes (id by bundle, empty before it is
        reserved), state (PENDING, CREATED, REMOVED), stats.
        """

    # -- the machine

    @abstractmethod
    def nodes(self) -> list[Row]:
        """Return one row per node: NodeID, Alive, NodeManagerAddress, NodeManagerHostname,
        Resources, Labels.
        """

    def node_address(self) -> str:
        """Return the address of this process's node."""
        here = self.runtime_info().node_id
        return next(
            str(node["NodeManagerAddress"]) for node in self.nodes() if node["NodeID"] == here
        )

    def draining_nodes(self) -> Mapping[str, float | None]:
        """Return the nodes that will leave, by id, with their deadline.

        Deadlines are seconds since the epoch; None if unknown.
        """
        return {}

    @abstractmethod
    def cluster_resources(self) -> dict[str, float]:
        """Return the total amount of each resource."""

    @abstractmethod
    def available_resources(self) -> dict[str, float]:
        """Return the free amount of each resource."""

    def available_resources_per_node(self) -> dict[str, dict[str, float]]:
        """Return the free amount of each resource of each living node, by node id."""
        return {self.runtime_info().node_id: self.available_resources()}

    def request_resources(  # noqa: B027 (optional)
        self,
        *,
        num_cpus: int | None,
        bundles: Sequence[Mapping[str, float]],
        label_selectors: Sequence[Selector],
    ) -> None:
        """Ask the cluster to grow, if it can; replaces the last request."""

    @abstractmethod
    def runtime_info(self) -> RuntimeInfo:
        """Return facts about the calling thread; in a worker, about the task that it runs."""

    def is_cancelled(self) -> bool:
        """Return True if the calling code is part of a call that was cancelled and still runs."""
        return False

    def actors(self, limit: int = LISTED) -> ActorListing:
        """List the pending and living actors of all programs, at most `limit`.

        `unknown` is set if the engine keeps no list.
        """
        return ActorListing(unknown="this engine keeps no list of its actors")

    def tasks(self, limit: int = LISTED) -> TaskListing:
        """List the unfinished tasks and calls: counts by name and state, and the running ones.

        Each list has at most `limit` entries. `unknown` is set if the engine keeps no list.
        """
        return TaskListing(unknown="this engine keeps no list of its tasks")

    def state(
        self, resource: StateResource, filters: Sequence[Filter] = (), limit: int = LISTED
    ) -> StateListing:
        """List what exists and, as far as it is remembered, what existed, with Ray's columns.

        Of the rows that pass the filters, at most `limit`. `unknown` is set if the engine keeps no
        list.
        """
        return StateListing(unknown=f"this engine keeps no list of its {resource}")

    def stack_of(self, actor_id: int) -> str | None:
        """Return the Python stacks of all threads of an actor's process.

        The process is inspected from outside, so this works for a hung actor. None if the actor has
        no process or the engine cannot inspect it.
        """
        return None

    def label_output(self, label: str) -> None:  # noqa: B027 (optional)
        """Begin each line that the program shows of this worker with `[label]`."""

    def debugger_waits(self, path: str) -> None:  # noqa: B027 (optional)
        """Tell the program that this worker waits in the debugger (see `core.debugger`)."""

    def register_serializer(  # noqa: B027 (optional)
        self, cls: type, serializer: Callable[[Any], object], deserializer: Callable[[Any], object]
    ) -> None:
        """Use a serializer of the user, besides that of `pickling.serializers`."""

    def deregister_serializer(self, cls: type) -> None:  # noqa: B027 (optional)
        """Undo `register_serializer`."""

    def show_output(self) -> None:  # noqa: B027 (optional)
        """Show all output that the workers have written so far; takes a moment at most."""

    @abstractmethod
    def timeline(self) -> list[Row]:
        """Return what ran where and when, as Chrome trace events."""

    @abstractmethod
    def statistics(self) -> Mapping[str, Statistics]:
        """Return the counters of every queue, pool and store by name."""

    @abstractmethod
    def shutdown(self) -> None:
        """End every process and free all objects; may be called twice."""

    @abstractmethod
    def abandon_after_fork(self) -> None:
        """In a forked child: drop every connection without affecting the parent."""


current: Engine | None = None
"""The engine of this process; set by `set_engine`."""

result_hooks: list[Callable[[], None]] = []
"""Called in a worker before it sends the result of a task or call. They are quick, and never raise.
"""


def call_result_hooks() -> None:
    """Call the hooks of results."""
    for hook in result_hooks:
        hook()


def current_engine() -> Engine:
    """Return the engine of this process; RuntimeError if syncline is not running."""
    if current is None:
        raise RuntimeError(refs.NOT_RUNNING)
    return current


def set_engine(engine: Engine | None) -> None:
    """Set the engine of this process and of its references; None after `shutdown`."""
    global current
    current = engine
    refs.bind_engine(engine)
