"""Records of the hub: processes, definitions, tasks and streams. The hub's lock guards them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syncline.core.embedded.channel import Channel
from syncline.core.embedded.messages import TaskSpec, Value, ValueCallback
from syncline.core.embedded.segments import Segment


class Process:
    """A process of the session: the driver, a worker, or a child process of one of them."""

    __slots__ = (
        "actor_id",
        "blocked",
        "busy_since",
        "channel",
        "environment",
        "gone",
        "label",
        "number",
        "pid",
        "ready",
        "refcounts",
        "segments",
        "sent_definitions",
        "stop_reason",
        "subscriptions",
        "tasks",
    )

    def __init__(
        self, number: int, channel: Channel | None, *, environment: str | None = None
    ) -> None:
        """`channel` is None for the driver, which is called directly.

        `environment` is a worker's runtime environment as JSON; None for the driver and for child
        processes, which run no tasks.
        """
        self.number = number
        self.channel = channel
        self.environment = environment
        self.pid = 0
        self.refcounts: dict[int, int] = {}  # references by object id
        self.sent_definitions: set[int] = set()  # functions and definitions
        self.tasks: dict[int, Task] = {}  # assigned and not finished, in order
        # by object id; by -id for a subscriber that needs no value, only the event
        self.subscriptions: dict[int, ValueCallback] = {}
        self.segments: dict[str, Segment] = {}  # allocated for writing, not yet part of a value
        # start of the first of `tasks`, seconds since the epoch; undefined for concurrent calls
        self.busy_since = 0.0
        self.ready = False
        self.label = ""
        self.actor_id = 0
        self.blocked = False
        self.gone = False
        self.stop_reason: str | None = None  # set when the hub ends the process


class Definition:
    """A function with its options and its scheduling shape."""

    __slots__ = ("shape", "spec", "uses_gpu")

    def __init__(self, spec: TaskSpec, shape: int) -> None:
        self.spec = spec
        self.shape = shape
        self.uses_gpu = any(name == "GPU" for name, _ in spec.resources)


class Task:
    """One task or actor call, from submission until its results are known."""

    __slots__ = (
        "actor_id",
        "arg_refs",
        "args",
        "cancelled",
        "count",
        "group",
        "held_refs",
        "id",
        "method",
        "mode",
        "owner",
        "parent",
        "pending_args",
        "definition",
        "definition_id",
        "result_ids",
        "retries",
        "retry_on",
        "worker",
    )

    def __init__(
        self,
        id: int,
        args: Value,
        arg_refs: tuple[int, ...],
        held_refs: tuple[int, ...],
        result_ids: tuple[int, ...],
        owner: int,
        parent: int,
    ) -> None:
        self.id = id
        self.args = args
        self.arg_refs = arg_refs  # arguments that are references, replaced by their values
        self.held_refs = held_refs  # everything that must live until the task ends
        self.result_ids = result_ids
        self.owner = owner  # number of the submitting process
        self.parent = parent  # id of the submitting task, or 0
        self.definition: Definition | None = None
        self.definition_id = 0
        self.actor_id = 0
        self.method = ""
        self.group: str | None = None
        self.mode = 0
        self.count = 1  # number of results
        self.retry_on: bytes | None = None
        self.retries = 0
        self.pending_args = 0  # entries of `arg_refs` without a value
        self.worker = 0  # number of the process that has the task
        self.cancelled = False


ItemCallback = Callable[[int | None], None]
"""Receives the id of a stream's item, or None past the end."""


class Stream:
    """The items of a generator task, in order."""

    __slots__ = ("ended", "handed_out", "items", "waiting")

    def __init__(self) -> None:
        self.items: list[int] = []  # object ids
        self.handed_out: set[int] = set()  # indices whose item the receiver holds
        self.ended = False
        self.waiting: dict[int, list[tuple[Process, ItemCallback]]] = {}  # by index


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
