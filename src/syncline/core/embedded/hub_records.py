"""Records of the hub: processes, definitions, tasks and streams. The hub's lock guards them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from syncline.core.embedded.channel import Channel
from syncline.core.embedded.messages import TaskSpec, Value, ValueCallback
from syncline.core.embedded.segments import Segment
from syncline.records import dataclass


@dataclass(slots=True, eq=False)
class Process:
    """A process of the session: the driver, a worker, or a child process of one of them."""

    number: int
    channel: Channel | None
    """None for the driver, which is called directly."""
    environment: str | None = None
    """A worker's runtime environment as JSON; None for processes that run no tasks."""
    pid: int = 0
    refcounts: dict[int, int] = field(default_factory=dict)
    """References by object id."""
    sent_definitions: set[int] = field(default_factory=set)
    """Functions and task definitions that the process has."""
    program: bytes = b""
    """State of the program that the process has."""
    tasks: dict[int, Task] = field(default_factory=dict)
    """Assigned and not finished, in order."""
    subscriptions: dict[int, ValueCallback] = field(default_factory=dict)
    """By object id; by -id for a subscriber that needs the event without the value."""
    segments: dict[str, Segment] = field(default_factory=dict)
    """Allocated for writing, not yet part of a value."""
    busy_since: float = 0.0
    """Start of the first task, in seconds since the epoch; undefined for concurrent calls."""
    ready: bool = False
    label: str = ""
    actor_id: int = 0
    blocked: bool = False
    gone: bool = False
    stop_reason: str | None = None
    """Set when the hub ends the process."""


class Definition:
    """A function with its options and its scheduling shape."""

    __slots__ = ("shape", "spec", "uses_gpu")

    def __init__(self, spec: TaskSpec, shape: int) -> None:
        self.spec = spec
        self.shape = shape
        self.uses_gpu = any(name == "GPU" for name, _ in spec.resources)


@dataclass(slots=True, eq=False)
class Task:
    """One task or actor call, from submission until its results are known."""

    id: int
    args: Value
    arg_refs: tuple[int, ...]
    """Arguments that are references, replaced by their values."""
    held_refs: tuple[int, ...]
    """References that must live until the task ends."""
    result_ids: tuple[int, ...]
    owner: int
    """Number of the submitting process."""
    parent: int
    """Id of the submitting task, or 0."""
    definition: Definition | None = None
    definition_id: int = 0
    actor_id: int = 0
    method: str = ""
    group: str | None = None
    mode: int = 0
    count: int = 1
    """Number of results."""
    retry_on: bytes | None = None
    more: tuple[str | None, int] | None = None
    """A call's (name, backpressure of its stream), if one of them is set."""
    retries: int = 0
    pending_args: int = 0
    """Entries of `arg_refs` without a value."""
    caller: int = 0
    """Calls of an actor with the same number are sent in order: negative numbers are processes,
    others are tasks.
    """
    worker: int = 0
    """Number of the process that has the task."""
    cancelled: bool = False


ItemCallback = Callable[[int | None], None]
"""Receives the id of a stream's item, or None past the end."""


@dataclass(slots=True, eq=False)
class Stream:
    """The items of a generator task, in order."""

    items: list[int] = field(default_factory=list)
    """Object ids."""
    handed_out: set[int] = field(default_factory=set)
    """Indices whose item the receiver holds."""
    ended: bool = False
    waiting: dict[int, list[tuple[Process, ItemCallback]]] = field(default_factory=dict)
    """Requests by index."""
    demand: int = 0
    """Number of items that were requested."""
    producers: list[tuple[int, ItemCallback]] = field(default_factory=list)
    """Callbacks of producers that wait until the demand has a number."""


@dataclass(frozen=True, kw_only=True)
class HubStatistics:
    """Counters of the hub."""

    processes: int
    tasks: int
    definitions: int
    functions: int
    streams: int
    messages_handled: int
    actors: int
