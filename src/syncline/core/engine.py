"""`Engine`: the one interface to whatever runs tasks, actors and objects.

`core.api`, and through it everything above, talks to this class only. It is shaped after Ray Core,
one to one, so that an engine on a cluster is a translation and nothing more. Every engine passes
the conformance suite of `syncline.testing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from syncline.core.plans import ActorPlan, CallPlan, TaskPlan
from syncline.core.refs import Hold, ObjectRef, ObjectRefGenerator

Submitted = ObjectRef[Any] | list[ObjectRef[Any]] | ObjectRefGenerator[Any] | None
"""What a call gives back: for `num_returns` 1, a number above 1, "streaming", 0."""


@dataclass(frozen=True, kw_only=True)
class ActorRecord:
    """What a handle needs to know of its actor; serialisable, so that any process can make a handle
    of it.
    """

    actor_id: int
    """The actor's id; `Hold(actor_id)` keeps an unnamed actor alive."""
    class_name: str
    """The class as the program spells it."""
    methods: Mapping[str, Any]
    """`MethodOptions` of every public method by name."""
    groups: tuple[str, ...] = ()
    """The concurrency groups that calls may name."""


@dataclass(frozen=True, kw_only=True)
class RuntimeFacts:
    """Who and where the calling code is; fields are None where they mean nothing."""

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
    assigned_resources: Mapping[str, float] | None = None
    gpu_ids: tuple[str, ...] = ()
    runtime_env: Mapping[str, Any] | None = None


ActorStateName = Literal["PENDING", "STARTING", "ALIVE", "RESTARTING"]
"""Waits for resources or a process; its constructor runs; answers calls; lost its process and waits
for another.
"""
TaskStateName = Literal["WAITING", "QUEUED", "RUNNING"]
"""Waits for arguments; waits for a place, or for the calls before it; runs."""

LISTED = 1000
"""How many actors, running tasks and kinds of tasks a listing names unless it is told otherwise."""


@dataclass(frozen=True, kw_only=True)
class ActorFacts:
    """One actor that lives, or is to live, as people look at it. Serialisable; plain values only,
    so that JSON can hold it.
    """

    actor_id: str
    """As the runtime context of the actor gives it."""
    class_name: str
    name: str | None
    state: ActorStateName
    pid: int | None
    """None where it has no process now."""
    node_id: str | None
    """Where it runs; None where it does not."""
    resources: Mapping[str, float]
    """What it holds while it lives."""
    restarts: int
    pending_calls: int | None
    """Calls without an answer; None where the engine does not know."""


@dataclass(frozen=True, kw_only=True)
class TaskFacts:
    """One task or call that runs. Serialisable, as `ActorFacts`."""

    task_id: str
    name: str
    """The function's, or `Class.method`."""
    state: TaskStateName
    pid: int | None
    node_id: str | None
    started: float | None
    """In seconds since the epoch; None where the engine does not know, as for calls that an actor
    runs at the same time.
    """


@dataclass(frozen=True, kw_only=True)
class TaskCount:
    """How many tasks and calls of one name are in one state."""

    name: str
    state: TaskStateName
    count: int


@dataclass(frozen=True, kw_only=True)
class ActorListing:
    """The actors of an engine, now; those that ended for good are left out."""

    actors: tuple[ActorFacts, ...] = ()
    total: int = 0
    """How many there are; more than in `actors` where those are limited."""
    unknown: str | None = None
    """Why the engine cannot tell; None where it can."""


@dataclass(frozen=True, kw_only=True)
class TaskListing:
    """The tasks and calls of an engine that have not ended, now."""

    counts: tuple[TaskCount, ...] = ()
    """The most frequent first."""
    running: tuple[TaskFacts, ...] = ()
    total: int = 0
    """How many there are, running or not."""
    unknown: str | None = None
    """Why the engine cannot tell; None where it can."""


class Engine(ABC):
    """Runs tasks and actors and keeps objects.

    Thread safety: every method may be called from any thread, of the driver and of workers. Waiting
    methods end when their condition holds, when `timeout_s` passes, or with an error when the
    condition can no longer hold; they never wait for a process that is dead. Errors of user code
    come back as described in `exceptions`: `get` raises, nothing else does.
    """

    @property
    @abstractmethod
    def session_directory(self) -> Path:
        """This session's directory for logs and temporary files, on this machine; it exists while
        the engine runs.
        """

    @property
    @abstractmethod
    def is_local_mode(self) -> bool:
        """True where everything runs in the calling process, in order."""

    @property
    def address(self) -> str:
        """Where this engine runs: "local" for this machine, else the cluster's address."""
        return "local"

    @property
    def dashboard_url(self) -> str | None:
        """Where the cluster's own dashboard listens, as host:port; None without one."""
        return None

    @property
    def installs_packages(self) -> bool:
        """Whether a `runtime_env` may have fields that install something in workers, such as
        `pip`.
        """
        return False

    @property
    def outlives_driver(self) -> bool:
        """Whether detached actors live on when the program has ended."""
        return False

    @property
    def may_grow(self) -> bool:
        """Whether nodes are added when they are needed, so that what has no room now may have some
        later.
        """
        return False

    # -- tasks and actors

    @abstractmethod
    def submit_task(
        self, plan: TaskPlan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted:
        """Run a function. TypeError for arguments that cannot be pickled; ValueError for resources
        that can never be met.
        """

    @abstractmethod
    def create_actor(
        self, plan: ActorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[ActorRecord, Hold]:
        """Start an actor; its constructor runs later, and its failure is told by the first call.
        ValueError: the name is taken.
        """

    @abstractmethod
    def submit_call(
        self, plan: CallPlan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted:
        """Call a method. Calls from one caller run in the order in which they were made, unless the
        actor is async or threaded.
        """

    @abstractmethod
    def cancel(
        self, ref: ObjectRef[Any] | ObjectRefGenerator[Any], *, force: bool, recursive: bool
    ) -> None:
        """Cancel the task behind a reference: unstarted, it never runs; running, it gets
        KeyboardInterrupt (async: CancelledError).
        """

    @abstractmethod
    def kill(self, actor_id: int, *, no_restart: bool) -> None:
        """End an actor's process at once."""

    @abstractmethod
    def exit_actor(self) -> None:
        """Inside an actor: end it after this call, without a restart. RuntimeError elsewhere."""

    @abstractmethod
    def named_actor(self, name: str, namespace: str | None) -> tuple[ActorRecord, Hold]:
        """Look up by name; ValueError with the names that exist."""

    @abstractmethod
    def list_named_actors(self, *, all_namespaces: bool) -> list[tuple[str, str]]:
        """(namespace, name) of every living named actor, sorted."""

    def hold_actor(self, actor_id: int) -> Hold:
        """What keeps an actor alive that this process knows, such as the one that it is."""
        return Hold(actor_id)

    # -- objects

    @abstractmethod
    def put(self, value: Any) -> ObjectRef[Any]:
        """Keep a copy of `value` as it is now."""

    @abstractmethod
    def get(self, refs: Sequence[ObjectRef[Any]], timeout_s: float | None) -> list[Any]:
        """The values in the same order; raises the first error, GetTimeoutError after
        `timeout_s`.
        """

    @abstractmethod
    def wait(
        self,
        refs: Sequence[ObjectRef[Any]],
        *,
        num_returns: int,
        timeout_s: float | None,
        fetch_local: bool,
    ) -> tuple[list[ObjectRef[Any]], list[ObjectRef[Any]]]:
        """(ready, not ready), each in the order of `refs`; at most `num_returns` are ready."""

    @abstractmethod
    def next_item(
        self, generator: ObjectRefGenerator[Any], index: int, timeout_s: float | None
    ) -> ObjectRef[Any] | None:
        """The reference to item `index`, waited for; None past the end. GetTimeoutError after
        `timeout_s`.
        """

    @abstractmethod
    def on_value(
        self, ref: ObjectRef[Any], callback: Callable[[Any, BaseException | None], None]
    ) -> None:
        """Call back once with (value, None) or (None, error), on some engine thread, which the
        callback must not block.
        """

    @abstractmethod
    def on_item(
        self,
        generator: ObjectRefGenerator[Any],
        index: int,
        callback: Callable[[ObjectRef[Any] | None], None],
    ) -> None:
        """Call back once with the reference to item `index`, or None past the end; as
        `on_value`.
        """

    # -- placement groups

    @abstractmethod
    def create_placement_group(
        self, bundles: Sequence[Mapping[str, float]], *, strategy: str, name: str, detached: bool
    ) -> int:
        """Begin to reserve all `bundles` together; the group's id. ValueError where they can never
        be met.
        """

    @abstractmethod
    def placement_group_ready(self, group_id: int) -> ObjectRef[Any]:
        """A reference that becomes ready, with value True, when everything is reserved; an error if
        the group is removed.
        """

    @abstractmethod
    def remove_placement_group(self, group_id: int) -> None:
        """Give the resources back; what runs inside is ended. Removing twice is allowed."""

    @abstractmethod
    def placement_groups(self) -> list[Mapping[str, Any]]:
        """Every group: id, name, strategy, bundles, state (PENDING, CREATED, REMOVED)."""

    # -- the machine

    @abstractmethod
    def nodes(self) -> list[dict[str, Any]]:
        """Ray's fields: NodeID, Alive, NodeManagerAddress, NodeManagerHostname, Resources,
        Labels.
        """

    def node_address(self) -> str:
        """The address of this process's machine among the nodes."""
        here = self.facts().node_id
        address: str = next(
            node["NodeManagerAddress"] for node in self.nodes() if node["NodeID"] == here
        )
        return address

    def draining_nodes(self) -> Mapping[str, float | None]:
        """Nodes that are about to be taken away, by id: until when they stay, in seconds since the
        epoch, or None where nobody knows.
        """
        return {}

    @abstractmethod
    def cluster_resources(self) -> dict[str, float]:
        """Everything there is."""

    @abstractmethod
    def available_resources(self) -> dict[str, float]:
        """What is free now."""

    @abstractmethod
    def facts(self) -> RuntimeFacts:
        """Of the calling thread: in a worker, the task that it runs."""

    def actors(self, limit: int = LISTED) -> ActorListing:
        """The actors that live or are to live, of every program on this engine; at most `limit` are
        named. None where no account is kept, as where everything runs in the calling process.
        """
        return ActorListing()

    def tasks(self, limit: int = LISTED) -> TaskListing:
        """The tasks and calls that have not ended, counted by name and state, and those that run;
        at most `limit` of each are named.
        """
        return TaskListing()

    def stack_of(self, actor_id: int) -> str | None:
        """The Python stacks of all threads of an actor's process, taken from outside, so that one
        that answers nothing shows where it is.

        None where the actor has no process, or the engine cannot look into it.
        """
        return None

    @abstractmethod
    def timeline(self) -> list[dict[str, Any]]:
        """What ran where and when, as Chrome trace events."""

    @abstractmethod
    def statistics(self) -> Mapping[str, Any]:
        """Counters of every queue, pool and store, by part; frozen dataclasses."""

    @abstractmethod
    def shutdown(self) -> None:
        """End every process and free everything; may be called twice."""

    @abstractmethod
    def abandon_after_fork(self) -> None:
        """In a child that the program forked: forget every connection without touching the parent's
        things.
        """
