"""Messages between processes and the hub, and the values that they carry.

A message is a plain tuple; its first field is its kind, the comment beside each kind lists the
rest. A process handles up to 60 000 messages a second; to make and pickle a dataclass costs ten
times as much as a tuple, at that rate half of a core.

A *value* is `(form, data, buffers, refs)`:
    INLINE   data: the pickle stream, buffers: its out-of-band buffers as bytes
    SHARED   data: a `Layout`, buffers: id of the object that owns the segment, held while mapped
    ERROR    data: the pickle stream of an exception, buffers: ()
`refs` are the ids of the references pickled inside. A value is never copied into another form on
its way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from syncline.core import serialization
from syncline.core.embedded.segments import Segment, layout_nbytes, read, write
from syncline.core.refs import journal
from syncline.core.serialization import Packed
from syncline.core.tracebacks import raisable

INLINE: Final = 0
SHARED: Final = 1
ERROR: Final = 2

Value = tuple[int, Any, Any, tuple[int, ...]]
Message = tuple[Any, ...]

Outcome = tuple[Any, BaseException | None]
"""(value, None) or (None, error)."""

Allocate = Callable[[int], Segment]
"""Returns a segment of at least the given number of bytes for this process to write."""
ValueCallback = Callable[[int, Value], None]
"""Receives (object id, value)."""

INLINE_LIMIT_BYTES = 100_000
"""Values with at least this many bytes go to shared memory; smaller ones are in the message."""

RESULT_SHIFT = 64
"""Ids that processes make are shorter; the ids of further results have a number above them."""


def result_id(task_id: int, number: int) -> int:
    """Return the id of a task's result; the first one, number 0, has the task's id."""
    return task_id + (number << RESULT_SHIFT)


def task_of(id: int) -> int:
    """Return the id of the task that makes a result; other objects are their own task."""
    return id & ((1 << RESULT_SHIFT) - 1)


NONE_VALUE_DATA: Final = b"\x80\x05N."  # pickle of None, protocol 5

# -- kinds of results
ONE: Final = 0  # one value
MANY: Final = 1  # a fixed number of values other than one
STREAM: Final = 2  # a generator, item by item
DYNAMIC: Final = 3  # one value: a generator of references to the items

# -- from any process to the hub
REFS: Final = 1  # [+id, -id, ...]: references made and dropped in this process
FUNCTION: Final = 2  # function id, pickled bytes
SUBMIT: Final = (
    4  # task id, definition id, args, arg refs, held refs, further result ids, parent task id
)
CALL: Final = 6
# call id, actor id, method, mode, args, arg refs, held refs, further result ids, number of results,
# parent task id, max_task_retries or None, concurrency group or None, pickled types to retry or
# None, (name, backpressure) or None
PUT: Final = 7  # id, value
SUBSCRIBE_VALUE: Final = 8  # [ids]: send each value when it exists
SUBSCRIBE_READY: Final = 9  # [ids]: send VALUE_READY for each when its value exists
UNSUBSCRIBE: Final = 10  # [ids]: cancels both
REQUEST_ITEM: Final = 11  # stream id, index, token
AWAIT_DEMAND: Final = (
    13  # stream id, number of items that must be requested before the answer, token
)
REQUEST: Final = 12  # token, operation, arguments
BLOCKED: Final = 14  # [unstarted task ids]: this worker waits and returns these tasks
UNBLOCKED: Final = 15
RETURNED: Final = 16  # [unstarted task ids]: returned because a long task runs before them

# -- from a worker
WORKER_READY: Final = 17
DONE: Final = 18  # task id, [values], error or None, retry requested, start and end times
ITEM: Final = 19  # stream id, index, item id, value
CONSTRUCTED: Final = 20  # actor id, error or None
RETIRE: Final = 21  # reason for this worker's exit: "max_calls" or "exit_actor"

# -- from the hub
WELCOME: Final = 30  # process number
RUN_TASK: Final = (
    31  # task id, definition id, args, {id: value of arg ref}, further result ids, GPU ids
)
CREATE_ACTOR: Final = 32  # actor id, ActorSpec, args, {id: value}, GPU ids, restarted
RUN_CALL: Final = 33
# call id, method, mode, args, {id: value}, number of results, further result ids, concurrency
# group or None, pickled types to retry or None, (name, backpressure) or None
VALUE: Final = 34  # id, value
VALUE_READY: Final = 35  # id
REPLY: Final = 36  # token, ok, answer or error
CANCEL_TASK: Final = 37  # task id, force
EXIT: Final = 38  # exit when no work is left
ITEM_REPLY: Final = 39  # token, item id or None
DEFINE_FUNCTION: Final = 40  # function id, pickled bytes
DEFINE_TASK: Final = 41  # definition id, TaskSpec
SET_PROGRAM: Final = 42  # pickled ProgramState, applied before the next task or actor


class TaskSpec(NamedTuple):
    """A remote function with its options; sent to the hub once and to each worker once."""

    function_id: int
    name: str
    mode: int
    num_returns: int
    resources: tuple[tuple[str, float], ...]
    group: tuple[int, int] | None  # placement group id, bundle index or -1
    environment: str  # runtime environment as JSON, "" for the job's environment
    max_retries: int
    retry_on: bytes | None  # pickled tuple of the error types to retry, or None
    max_calls: int
    captures: bool  # tasks that it submits run in its placement group too
    backpressure: int = 0  # maximum number of unconsumed items of a stream; 0: unlimited


class ActorSpec(NamedTuple):
    """An actor; sent to the hub when it is created and to each worker that becomes it."""

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
    methods: tuple[tuple[str, str], ...]  # (method, concurrency group) for methods with a group
    keeps_order: bool = True  # calls of a caller wait for the arguments of its earlier ones


def inline(
    data: bytes, buffers: Sequence[bytes | memoryview] = (), refs: tuple[int, ...] = ()
) -> Value:
    """Return a small value."""
    return (INLINE, data, tuple(bytes(b) for b in buffers) if buffers else (), refs)


def failure(data: bytes) -> Value:
    """Return an error, already pickled, in place of a value."""
    return (ERROR, data, (), ())


def error_value(error: BaseException) -> Value:
    """Return an error in place of a value."""
    return failure(serialization.pack_error(error))


def make_value(packed: Packed, owner_id: int, allocate: Allocate) -> Value:
    """Return a packed value as a message part.

    A large one is written to shared memory, which belongs to the object `owner_id`.
    """
    if packed.buffers or len(packed.data) >= INLINE_LIMIT_BYTES:
        nbytes = packed.nbytes
        if nbytes >= INLINE_LIMIT_BYTES:
            segment = allocate(layout_nbytes(packed))
            return (SHARED, write(segment, packed), owner_id, packed.refs)
    return inline(packed.data, packed.buffers, packed.refs)


def open_value(value: Value) -> Any:
    """Return the Python object of a value that is not an error.

    Its arrays may be read-only views of shared memory; they hold the object that owns it.
    """
    form, data, buffers, _ = value
    if form == SHARED:
        journal.append(buffers)
        mapped = read(data, partial(journal.append, -buffers))
        return serialization.unpack(mapped.data, mapped.buffers)
    return serialization.unpack(data, buffers)


def load_outcome(value: Value) -> Outcome:
    """Return the Python object of a value, or the error to raise."""
    if value[0] == ERROR:
        return None, raisable(serialization.unpack_error(value[1]))
    return open_value(value), None


NONE_VALUE: Final[Value] = inline(NONE_VALUE_DATA)
