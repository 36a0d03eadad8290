"""Chunks of calls, the function that they call, and the actor `PoolWorker` that runs them."""

from __future__ import annotations

import math
import time
import traceback
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from multiprocessing import pool as standard_pool
from typing import Any, Literal, NamedTuple, Protocol

from syncline.core import api
from syncline.core.serialization import pack_error, unpack, unpack_error
from syncline.util.multiprocessing import packed_functions

CHUNKS_PER_WORKER = 4
"""Chunks of `map` for each worker: more balance the load better, fewer cost less."""
SHARED_BYTES = 65_536
"""Functions of this size and more are stored once instead of being sent with each chunk."""
REMEMBERED_FUNCTIONS = 32
LONGEST_GROUP_S = 0.02
"""Seconds after which a worker returns the rest of a group of chunks."""

Spread = Literal["one", "star", "apply"]
"""An item is the argument, or the arguments; or a chunk is the arguments and keyword arguments."""


class Sink(Protocol):
    """Receives the outcomes of the chunks of one call of the pool."""

    @property
    def has_callback(self) -> bool:
        """True if `deliver` runs functions of the user."""

    def deliver(self, index: int, outcome: Outcome) -> None:
        """Take the outcome of chunk `index`. Called once per chunk, by one thread at a time."""


class Outcome(NamedTuple):
    """Result of a chunk. If `failure` is set, no item has a value."""

    values: Sequence[object] = ()
    errors: dict[int, BaseException] | None = None
    """Exceptions by position; the values there are None."""
    failure: BaseException | None = None

    @property
    def first_error(self) -> BaseException | None:
        """The exception of the first item that raised; None if all have values."""
        if self.failure is not None:
            return self.failure
        return self.errors[min(self.errors)] if self.errors else None


class Timing:
    """Duration of the chunks of a function."""

    chunk_s = math.inf
    """Seconds that the last chunks took; infinite before the first."""

    def add(self, chunk_s: float) -> None:
        """Record the time of a chunk. A single slow chunk has little weight."""
        self.chunk_s = min(chunk_s, 2 * self.chunk_s)


_timings: weakref.WeakKeyDictionary[Callable[..., object], Timing] = weakref.WeakKeyDictionary()


def _timing_of(function: Callable[..., object]) -> Timing:
    """Return the timing that all calls with this function share."""
    try:
        return _timings.setdefault(function, Timing())
    except TypeError:  # not hashable, or without weak references
        return Timing()


class Function:
    """A function as it travels to the workers; pickled once for all chunks of a call."""

    def __init__(self, function: Callable[..., object], *, repeated: bool) -> None:
        """`repeated`: several chunks will call it. Raises TypeError if it cannot be pickled."""
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self.timing = _timing_of(function)
        self.sent: Any = function
        """The function, a reference to it, or its code: plain bytes, the cheapest to send."""
        if isinstance(function, types.FunctionType):
            code = packed_functions.code_of(function)
            if code is not None and len(code) < SHARED_BYTES:
                self.sent = code
                return
        if repeated:
            self.sent = api.put(function)


class PackedError(NamedTuple):
    """An exception as a worker sends it."""

    data: bytes
    traceback_text: str


PackedOutcome = tuple[list[object], dict[int, PackedError] | None]
"""Values of the items of a chunk, and exceptions by position."""


class Chunk(NamedTuple):
    """Items that travel together."""

    sink: Sink
    number: int
    """Position among the chunks of its call."""
    function: Function
    spread: Spread
    items: Sequence[object]

    def may_join(self, other: Chunk) -> bool:
        """Return True if both chunks may travel together: they call the same function."""
        mine, others = self.function, other.function
        is_same = mine is others or (type(mine.sent) is bytes and mine.sent == others.sent)
        return is_same and self.spread == other.spread


def split(items: Iterable[object], size: int) -> Iterator[list[object]]:
    """Yield lists of `size` items; the last may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def default_chunk_size(items: int, workers: int) -> int:
    """Return the size with which each worker gets `CHUNKS_PER_WORKER` chunks."""
    return max(1, math.ceil(items / (workers * CHUNKS_PER_WORKER)))


class PoolWorker:
    """One process of a pool."""

    def __init__(
        self, initializer: Callable[..., object] | None, arguments: Sequence[object] = ()
    ) -> None:
        self._functions: dict[bytes, Callable[..., object]] = {}
        if initializer is not None:
            initializer(*arguments)

    def ready(self) -> None:
        """Return once the constructor has run."""

    def run(
        self, function: Any, spread: Spread, sizes: Sequence[int], items: Sequence[object]
    ) -> tuple[list[PackedOutcome], float]:
        """Call the function for each item of several chunks.

        `sizes` has the number of items of each chunk, and `items` those of all, because shallow
        arguments are pickled faster. Returns outcomes and the mean seconds of a chunk; outcomes of
        the first chunks only, if they took longer than expected: other workers may be idle.
        """
        started = time.monotonic()
        known = self._known(function) if isinstance(function, bytes) else function
        call = _spread(known, spread)
        outcomes: list[PackedOutcome] = []
        for end, size in zip(accumulate(sizes), sizes, strict=True):
            chunk = items[end - size : end]
            outcomes.append(_run_chunk(call, (chunk,) if spread == "apply" else chunk))
            if time.monotonic() - started > LONGEST_GROUP_S:
                break
        return outcomes, (time.monotonic() - started) / len(outcomes)

    def _known(self, code: bytes) -> Callable[..., object]:
        found = self._functions.get(code)
        if found is None:
            if len(self._functions) >= REMEMBERED_FUNCTIONS:
                del self._functions[next(iter(self._functions))]
            found = self._functions[code] = unpack(code)
        return found


def _spread(call: Callable[..., object], spread: Spread) -> Callable[[Any], object]:
    """Return the function of an item."""
    if spread == "star":
        return lambda item: call(*item)
    if spread == "apply":
        return lambda item: call(*item[0], **item[1])
    return call


def _run_chunk(call: Callable[[Any], object], items: Sequence[object]) -> PackedOutcome:
    values: list[object] = []
    errors: dict[int, PackedError] | None = None
    remaining = iter(items)
    while len(values) < len(items):
        try:
            # Much faster than a loop. Values before an exception stay in the list.
            values.extend(map(call, remaining))
            if len(values) < len(items):
                raise RuntimeError("the function raised StopIteration")
        except Exception as error:
            errors = errors or {}
            errors[len(values)] = _packed(error)
            values.append(None)
    return values, errors


def _packed(error: Exception) -> PackedError:
    own = error.__traceback__  # of `_run_chunk`, which users do not care about
    frames = own.tb_next if own is not None else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    return PackedError(pack_error(error, traceback_text=text), text)


def outcome_of(packed: PackedOutcome) -> Outcome:
    """Return the outcome that a worker reported."""
    values, errors = packed
    rebuilt = {index: _rebuilt(error) for index, error in errors.items()} if errors else None
    return Outcome(values, rebuilt)


def _rebuilt(packed: PackedError) -> BaseException:
    error = unpack_error(packed.data)
    if error.__cause__ is None:
        error.__cause__ = standard_pool.RemoteTraceback(  # type: ignore[attr-defined]
            f"\n{packed.traceback_text}"
        )
    return error
