"""What processes say to each other, defined once: the first field of every message is its kind, the
rest is listed beside it.

Messages are plain tuples. Sixty thousand a second pass through one Python process; a dataclass
costs ten times as much to make and to pickle as the tuple, and at that rate half of a core.

A *value* travels as `(form, data, buffers, refs)`:
    INLINE   data: the pickle stream, buffers: its out-of-band buffers as bytes
    SHARED   data: a `store.Layout`, buffers: the id of the object that owns the segment, held for as long as it is mapped
    ERROR    data: the pickle stream of an exception, buffers: ()
and `refs` are the ids of the references pickled inside. A value inside a message is never copied
into another form on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from syncline.core.embedded.store import Layout

INLINE: Final = 0
SHARED: Final = 1
ERROR: Final = 2

Value = tuple[int, Any, Any, tuple[int, ...]]
Message = tuple[Any, ...]

NONE_VALUE_DATA: Final = b"\x80\x05N."  # pickle of None, protocol 5

# -- how many results a task or call has
ONE: Final = 0  # one value
MANY: Final = 1  # a fixed number other than one
STREAM: Final = 2  # a generator, item by item
DYNAMIC: Final = 3  # one value: a generator over references to the items

# -- from any process to the hub
REFS: Final = 1  # [+id, -id, ...]: references made and died in this process
FUNCTION: Final = 2  # function_id, pickled bytes
SUBMIT: Final = 4  # task_id, plan_id, args value, top-level ref ids, held ids, further result ids, parent task id
CALL: Final = 6  # call_id, actor_id, method, mode, args value, top-level ref ids, held ids, further result ids, number of results,
#                  parent task id, max_task_retries or None, concurrency group or None, pickled
# types worth another try or None
PUT: Final = 7  # id, value
WANT: Final = 8  # [ids]: send each value when it is there
WATCH: Final = 9  # [ids]: say of each when it is there
UNWANT: Final = 10  # [ids]: neither any more
ITEM_WANTED: Final = 11  # stream id, index, token
REQUEST: Final = 12  # token, operation, arguments
BLOCKED: Final = 14  # [unstarted task ids]: this worker waits; what it had not begun goes back
UNBLOCKED: Final = 15
RETURNED: Final = 16  # [unstarted task ids]: a long task runs; what waits behind it goes back

# -- from a worker about its work
READY: Final = 17  # the worker can take work
DONE: Final = 18  # task_id, [values], error or None, retry asked for, started, ended
ITEM: Final = 19  # task_id, index, item id, value
CONSTRUCTED: Final = 20  # actor_id, error or None
RETIRE: Final = 21  # reason: this worker wants to end (max_calls reached, exit_actor)

# -- from the hub
WELCOME: Final = 30  # process number, session facts
RUN: Final = 31  # task_id, plan_id, args value, {id: value of a top-level ref}, gpu_ids
ACTOR: Final = 32  # actor_id, ActorSpec, args value, {id: value}, gpu_ids, restarted
INVOKE: Final = 33  # call_id, method, mode, args value, {id: value}, number of results, group
VALUE: Final = 34  # id, value
ARRIVED: Final = 35  # id
REPLY: Final = 36  # token, ok, answer or error
STOP_TASK: Final = 37  # task_id
LEAVE: Final = 38  # end when nothing is left to run
NEXT_ITEM: Final = 39  # token, item id or None
DEFINE: Final = 40  # function_id, pickled bytes
DESCRIBE: Final = 41  # plan_id, TaskSpec


class TaskSpec(NamedTuple):
    """A function with its options, told to the hub once and to each worker once."""

    function_id: int
    name: str
    mode: int
    num_returns: int
    resources: tuple[tuple[str, float], ...]
    group: tuple[int, int] | None  # placement group id, bundle index or -1
    environment: str  # runtime environment as JSON, "" for the job's own
    max_retries: int
    retry_on: bytes | None  # which errors are worth another try: None, or a pickled tuple of types
    max_calls: int
    captures: bool  # what the task submits runs in its placement group too


class ActorSpec(NamedTuple):
    """An actor, told to the hub when it is made and to each worker that becomes it."""

    class_id: int
    class_name: str
    placement: tuple[tuple[str, float], ...]  # needed to start
    resources: tuple[tuple[str, float], ...]  # held while it lives
    group: tuple[int, int] | None
    captures: bool
    environment: str
    name: str
    namespace: str
    detached: bool
    get_if_exists: bool
    max_restarts: int
    max_task_retries: int
    max_concurrency: int
    max_pending_calls: int
    concurrency_groups: tuple[tuple[str, int], ...]
    is_async: bool
    record: bytes  # the pickled ActorRecord
    methods: tuple[tuple[str, str], ...]  # (method, concurrency group) of methods that name one


def inline(data: bytes, buffers: Sequence[Any] = (), refs: tuple[int, ...] = ()) -> Value:
    """A small value."""
    return (INLINE, data, tuple(bytes(b) for b in buffers) if buffers else (), refs)


def shared(layout: Layout, owner_id: int, refs: tuple[int, ...] = ()) -> Value:
    """A large value, in a shared-memory segment of the object `owner_id`."""
    return (SHARED, layout, owner_id, refs)


def failure(data: bytes) -> Value:
    """An error in place of a value."""
    return (ERROR, data, (), ())


NONE_VALUE: Final[Value] = inline(NONE_VALUE_DATA)
