"""What the hub knows of each process, function and task. Plain records; the hub's lock guards
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syncline.core.embedded.channel import Channel
from syncline.core.embedded.messages import TaskSpec, Value
from syncline.core.embedded.objects import Arrival
from syncline.core.embedded.store import Segment


class Process:
    """A process that takes part: the driver, a worker, or a child that one of them made."""

    __slots__ = (
        "actor_id",
        "blocked",
        "channel",
        "environment",
        "expected_end",
        "gone",
        "held",
        "known",
        "label",
        "number",
        "pid",
        "ready",
        "segments",
        "since",
        "tasks",
        "waits",
    )

    def __init__(
        self, number: int, channel: Channel | None, *, environment: str | None = None
    ) -> None:
        """`environment`: a worker's, as JSON; None for the driver and for child processes, which
        take no work.
        """
        self.number = number
        self.channel = channel  # None: the driver, which is called directly
        self.environment = environment
        self.pid = 0
        self.held: dict[int, int] = {}  # references by id
        self.known: set[int] = set()  # functions and plans that were sent to it
        self.tasks: dict[int, Task] = {}  # handed to it and not finished, in order
        self.waits: dict[
            int, Arrival
        ] = {}  # what it waits for: id, or -id where it does not want the value
        self.segments: dict[str, Segment] = {}  # given to it to write, and not yet part of a value
        self.since = 0.0  # when the first of `tasks` began, in seconds since the epoch; means nothing where several run at once
        self.ready = False
        self.label = ""
        self.actor_id = 0
        self.blocked = False
        self.gone = False
        self.expected_end: str | None = None  # why the hub ends it, if it does


class Plan:
    """A function with its options and where it may run."""

    __slots__ = ("shape", "spec", "uses_gpu")

    def __init__(self, spec: TaskSpec, shape: int) -> None:
        self.spec = spec
        self.shape = shape
        self.uses_gpu = any(name == "GPU" for name, _ in spec.resources)


class Task:
    """One task or one actor call, from submission until its results are known."""

    __slots__ = (
        "actor_id",
        "args",
        "cancelled",
        "count",
        "group",
        "held",
        "id",
        "ids",
        "method",
        "missing",
        "mode",
        "owner",
        "parent",
        "plan",
        "plan_id",
        "retries",
        "retry_on",
        "returns",
        "top",
        "worker",
    )

    def __init__(
        self,
        id: int,
        args: Value,
        top: tuple[int, ...],
        held: tuple[int, ...],
        returns: tuple[int, ...],
        owner: int,
        parent: int,
    ) -> None:
        self.id = id
        self.args = args
        self.top = top  # references that are replaced by their values
        self.held = held  # everything that must live until the end
        self.returns = returns  # ids of the results
        self.owner = owner  # the number of the process that asked
        self.parent = parent  # the task that asked, or 0
        self.plan: Plan | None = None
        self.plan_id = 0
        self.actor_id = 0
        self.method = ""
        self.group: str | None = None
        self.mode = 0
        self.count = 1  # how many values were announced
        self.retry_on: bytes | None = None
        self.retries = 0
        self.missing = 0  # top-level references without a value yet
        self.worker = 0  # the number of the process that has it
        self.cancelled = False


Answer = Callable[[int | None], None]


class Stream:
    """The items of a generator task, in order."""

    __slots__ = ("ended", "given", "items", "wanted")

    def __init__(self) -> None:
        self.items: list[int] = []  # ids
        self.given: set[int] = set()  # indices handed out: whoever asked holds them now
        self.ended = False
        self.wanted: dict[int, list[tuple[Process, Answer]]] = {}  # by index


@dataclass(frozen=True, kw_only=True)
class HubStatistics:
    """Counters of the hub, now."""

    processes: int
    tasks: int
    plans: int
    functions: int
    streams: int
    messages_handled: int
    actors: int
