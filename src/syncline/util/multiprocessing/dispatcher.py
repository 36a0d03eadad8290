"""`Dispatcher`: assigns the chunks of a pool to its workers and delivers their outcomes.

Chunks that take less than a few milliseconds travel in groups, and a worker gets its next group
before it has finished the one before: this hides the cost of messages. A worker returns the rest of
a group that takes longer than expected. A worker gets longer chunks
one by one, so that no chunk waits behind another one while a worker is idle. A worker whose process
dies is replaced; the chunks that it had fail.

Any thread may submit. Engine threads deliver outcomes if nothing else is to be done; otherwise they
put them into the inbox of the dispatcher's thread, which also sends further chunks and runs the
callbacks of users.
"""

from __future__ import annotations

import itertools
import logging
import math
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from syncline.core import api, lifecycle
from syncline.core.refs import AnyRef
from syncline.core.remote import ActorHandle
from syncline.exceptions import RayActorError
from syncline.util.multiprocessing.chunks import Chunk, Function, Outcome, Sink, outcome_of

logger = logging.getLogger("syncline")

GROUP_S = 0.005
"""Work of one group, in seconds."""
LARGEST_GROUP = 64
"""Most chunks of a group."""
GROUPS_PER_WORKER = 2
"""Groups of several chunks that one worker has at a time."""


@dataclass(eq=False, kw_only=True)
class _Worker:
    """An actor and the chunks that it has."""

    actor: Any
    taken: int = 0
    """Chunks that it got so far."""
    running: dict[int, tuple[list[Chunk], Any]] = field(default_factory=dict)
    """Chunks and reference by number of the call."""
    is_retiring: bool = False
    """True if it gets no more chunks."""


@dataclass(frozen=True, kw_only=True)
class PoolStatistics:
    """Counters of a pool."""

    workers: int
    """Workers that take chunks."""
    replaced: int
    """Workers that were replaced so far."""
    queued: int
    """Chunks that wait for a worker."""
    running: int
    """Chunks that workers have."""


def group_size(function: Function) -> int:
    """Return how many chunks of a function may travel together: 1 if they are long, or unknown."""
    return max(1, min(LARGEST_GROUP, int(GROUP_S / max(function.timing.chunk_s, 1e-6))))


_Message = tuple[_Worker, int, Any, BaseException | None]
_End = None


class Dispatcher:
    """See the module.

    Args:
        create: Starts the actor of a worker.
        workers: Number of workers.
        chunks_per_worker: Chunks after which a worker is replaced; None for never.
    """

    def __init__(
        self, create: Callable[[], ActorHandle], workers: int, chunks_per_worker: int | None
    ) -> None:
        self._create = create
        self._limit = chunks_per_worker
        self._lock = threading.RLock()
        self._delivery = threading.RLock()  # a callback may terminate the pool
        self._idle = threading.Condition(self._lock)
        self._queue: deque[Chunk] = deque()
        self._retiring: set[_Worker] = set()
        self._inbox: queue.SimpleQueue[_Message | None] = queue.SimpleQueue()
        self._numbers = itertools.count()
        self._replaced = 0
        self._undelivered = 0
        self._ended = False
        self._workers = [_Worker(actor=create()) for _ in range(workers)]
        self._thread = threading.Thread(target=self._receive, name="syncline-pool", daemon=True)
        try:
            api.get([worker.actor.ready.remote() for worker in self._workers])
        except BaseException:
            for worker in self._workers:
                api.kill(worker.actor)
            raise
        self._thread.start()
        _living.add(self)

    def submit(self, chunks: Iterable[Chunk]) -> None:
        """Run chunks in order, as workers become free."""
        with self._lock:
            before = len(self._queue)
            self._queue.extend(chunks)
            self._undelivered += len(self._queue) - before
            self._dispatch()

    def run_now(self, chunk: Chunk) -> bool:
        """Run a chunk on an idle worker, and wait in the calling thread; False if none is idle.

        This costs half of `submit`: no other thread takes part.
        """
        with self._lock:
            worker = self._free_worker(1)
            if worker is None or self._queue or self._limit is not None:
                return False
            number, ref = self._start(worker, [chunk])
            self._undelivered += 1
        value, error = None, None
        try:
            value = api.get(ref)
        except Exception as failure:  # the worker has died, or a value cannot be unpickled
            error = failure
        except BaseException:  # such as Ctrl-C, while the worker continues
            api.ensure_engine().on_value(ref, partial(self._on_value, worker, number))
            raise
        self._settle([(worker, number, value, error)])
        return True

    def wait_in_engine(self, sink: Sink, timeout_s: float | None) -> None:
        """Wait for the chunks of a call if workers have them all; otherwise return immediately.

        The calling thread then receives the results itself, which saves switches of threads.
        """
        with self._lock:
            refs = [
                ref
                for worker in (*self._workers, *self._retiring)
                for chunks, ref in worker.running.values()
                if not self._queue and any(chunk.sink is sink for chunk in chunks)
            ]
        if refs:
            api.wait(refs, num_returns=len(refs), timeout=timeout_s)

    def wait(self) -> None:
        """Wait until the outcomes of all chunks are delivered."""
        with self._lock:
            while self._undelivered:
                self._idle.wait()

    def end(self, *, cause: str) -> None:
        """Kill all workers. Chunks without an outcome fail with RayActorError that says `cause`."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            workers = [*self._workers, *self._retiring]
            failed = [*self._queue]
            failed += [
                chunk
                for worker in workers
                for chunks, _ in worker.running.values()
                for chunk in chunks
            ]
            self._queue.clear()
            self._workers.clear()
            self._retiring.clear()
        if lifecycle.is_initialized():
            for worker in workers:
                api.kill(worker.actor)
        for chunk in failed:
            self._deliver(chunk, Outcome(failure=RayActorError(cause)))
        self._inbox.put(_End)

    def statistics(self) -> PoolStatistics:
        """Return the current counters."""
        with self._lock:
            return PoolStatistics(
                workers=len(self._workers),
                replaced=self._replaced,
                queued=len(self._queue),
                running=sum(
                    len(chunks)
                    for worker in (*self._workers, *self._retiring)
                    for chunks, _ in worker.running.values()
                ),
            )

    def actors(self) -> list[ActorHandle]:
        """Return the actors of the current workers."""
        with self._lock:
            return [worker.actor for worker in self._workers]

    # -- with the lock

    def _dispatch(self) -> None:
        while self._queue:
            function = self._queue[0].function
            size = group_size(function) if self._limit is None else 1
            worker = self._free_worker(GROUPS_PER_WORKER if size > 1 else 1)
            if worker is None:
                return
            # Divide the remaining chunks among all workers.
            size = min(size, math.ceil(len(self._queue) / (2 * len(self._workers))))
            group = [self._queue.popleft()]
            while len(group) < size and self._queue[0].may_join(group[0]):
                group.append(self._queue.popleft())
            self._send(worker, group)

    def _free_worker(self, most: int) -> _Worker | None:
        """Return a worker with fewer groups than `most`, of which none may take long."""
        free = (
            worker
            for worker in self._workers
            if len(worker.running) < most
            and all(group_size(chunks[0].function) > 1 for chunks, _ in worker.running.values())
        )
        return min(free, key=lambda each: len(each.running), default=None)

    def _send(self, worker: _Worker, group: list[Chunk]) -> None:
        try:
            number, ref = self._start(worker, group)
        except Exception as error:  # an argument cannot be pickled
            if len(group) > 1:
                for chunk in group:
                    self._send(worker, [chunk])
            else:
                self._inbox.put((worker, -1, group, error))
            return
        if worker.taken == self._limit:
            self._replace(worker)
        api.ensure_engine().on_value(ref, partial(self._on_value, worker, number))

    def _start(self, worker: _Worker, group: list[Chunk]) -> tuple[int, AnyRef]:
        """Call a worker for a group; return the number and the reference of the call."""
        sizes = [len(chunk.items) for chunk in group]
        items = list(itertools.chain.from_iterable(chunk.items for chunk in group))
        ref = worker.actor.run.remote(group[0].function.sent, group[0].spread, sizes, items)
        number = next(self._numbers)
        worker.running[number] = (group, ref)
        worker.taken += len(group)
        return number, ref

    def _replace(self, worker: _Worker) -> None:
        """Start another worker in the place of one that takes no more chunks."""
        self._workers.remove(worker)
        worker.is_retiring = True
        self._retiring.add(worker)
        self._workers.append(_Worker(actor=self._create()))
        self._replaced += 1

    # -- an engine's thread, which must not wait

    def _on_value(
        self, worker: _Worker, number: int, value: Any, error: BaseException | None
    ) -> None:
        if error is not None or not self._deliver_now(worker, number, value):
            self._inbox.put((worker, number, value, error))

    def _deliver_now(self, worker: _Worker, number: int, value: Any) -> bool:
        """Deliver outcomes if that takes no time: this saves a switch of threads."""
        if self._queue or not self._inbox.empty() or not self._lock.acquire(blocking=False):
            return False
        try:
            group, _ = worker.running.get(number, ((), None))
            if self._queue or worker.is_retiring or any(c.sink.has_callback for c in group):
                return False
            if len(value[0]) < len(group):  # the rest is to be sent again
                return False
            if not self._delivery.acquire(blocking=False):
                return False
            try:
                for chunk, outcome in self._received((worker, number, value, None)):
                    self._deliver(chunk, outcome)
            finally:
                self._delivery.release()
            return True
        finally:
            self._lock.release()

    # -- the dispatcher's thread

    def _receive(self) -> None:
        while True:
            messages = [self._inbox.get()]
            while not self._inbox.empty():  # together, because calls are cheaper in groups
                messages.append(self._inbox.get())
            self._settle([message for message in messages if message is not _End])
            if messages[-1] is _End:
                return
            del messages  # values of the user

    # -- this thread, or that of `run_now`

    def _settle(self, messages: list[_Message]) -> None:
        """Deliver the outcomes of calls, and give free workers their next chunks."""
        with self._lock:
            outcomes = [each for message in messages for each in self._received(message)]
            self._dispatch()
        for chunk, outcome in outcomes:
            self._deliver(chunk, outcome)

    def _received(self, message: _Message) -> list[tuple[Chunk, Outcome]]:
        worker, number, value, error = message
        if number == -1:
            return [(chunk, Outcome(failure=error)) for chunk in value]
        nothing: tuple[list[Chunk], None] = ([], None)
        group, _ = worker.running.pop(number, nothing)
        if self._ended:  # `end` has delivered failures
            return []
        if error is None:
            packed, chunk_s = value
            group[0].function.timing.add(chunk_s)
            outcomes = [outcome_of(each) for each in packed]
            self._queue.extendleft(reversed(group[len(packed) :]))
        else:
            outcomes = [Outcome(failure=error)] * len(group)
            self._after_failure(worker, error)
        if worker.is_retiring and not worker.running:
            self._retiring.discard(worker)
            worker.actor = None  # the last handle
        return list(zip(group, outcomes, strict=False))

    def _after_failure(self, worker: _Worker, error: BaseException) -> None:
        if isinstance(error, RayActorError) and worker in self._workers and not self._ended:
            try:
                self._replace(worker)
            except Exception:
                logger.exception("A pool cannot replace a worker that has died.")

    def _deliver(self, chunk: Chunk, outcome: Outcome) -> None:
        try:
            with self._delivery:
                chunk.sink.deliver(chunk.number, outcome)
        finally:
            with self._lock:
                self._undelivered -= 1
                if not self._undelivered:
                    self._idle.notify_all()


_living: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


def _end_all() -> None:
    for dispatcher in list(_living):
        dispatcher.end(cause="The engine was shut down while a pool had work.")


lifecycle.shutdown_hooks.append(_end_all)
