"""`Dispatcher`: assigns the chunks of a pool to its workers and delivers their outcomes.

A worker gets a second chunk before it has finished the first only if chunks of that function take
a few milliseconds: this hides the latency of messages, and a long call never delays another that an
idle worker could run. A worker whose process dies is replaced; the chunks that it had fail.

Any thread may submit; one thread of the dispatcher receives results, which engine threads put into
its inbox.
"""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from syncline.core import api, lifecycle
from syncline.exceptions import RayActorError
from syncline.util.multiprocessing.chunks import Chunk, Outcome, outcome_of

logger = logging.getLogger("syncline")

AHEAD_S = 0.005
"""Work that a worker may have waiting, in seconds."""
MOST_AHEAD = 64
"""Largest number of chunks that one worker has."""


@dataclass(eq=False, kw_only=True)
class _Worker:
    """An actor and the chunks that it has."""

    actor: Any
    taken: int = 0
    """Chunks that it got so far."""
    running: dict[int, tuple[Chunk, Any]] = field(default_factory=dict)
    """Chunk and reference by number of the call."""
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
        self, create: Callable[[], Any], workers: int, chunks_per_worker: int | None
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
            failed += [chunk for worker in workers for chunk, _ in worker.running.values()]
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
                running=sum(len(each.running) for each in (*self._workers, *self._retiring)),
            )

    def actors(self) -> list[Any]:
        """Return the actors of the current workers."""
        with self._lock:
            return [worker.actor for worker in self._workers]

    # -- with the lock

    def _dispatch(self) -> None:
        while self._queue:
            chunk = self._queue[0]
            ahead = max(1, min(MOST_AHEAD, int(AHEAD_S / max(chunk.function.timing.chunk_s, 1e-6))))
            worker = min(self._workers, key=lambda each: len(each.running), default=None)
            if worker is None or len(worker.running) >= ahead:
                return
            self._queue.popleft()
            self._send(worker, chunk)

    def _send(self, worker: _Worker, chunk: Chunk) -> None:
        number = next(self._numbers)
        try:
            ref = worker.actor.run.remote(chunk.function.sent, chunk.spread, chunk.items)
        except Exception as error:  # an argument cannot be pickled
            self._inbox.put((worker, -1, chunk, error))
            return
        worker.running[number] = (chunk, ref)
        worker.taken += 1
        if worker.taken == self._limit:
            self._replace(worker)
        inbox = self._inbox
        api.ensure_engine().on_value(
            ref, lambda value, error: inbox.put((worker, number, value, error))
        )

    def _replace(self, worker: _Worker) -> None:
        """Start another worker in the place of one that takes no more chunks."""
        self._workers.remove(worker)
        worker.is_retiring = True
        self._retiring.add(worker)
        self._workers.append(_Worker(actor=self._create()))
        self._replaced += 1

    # -- the dispatcher's thread

    def _receive(self) -> None:
        while True:
            messages = [self._inbox.get()]
            while not self._inbox.empty():  # together, because calls are cheaper in groups
                messages.append(self._inbox.get())
            with self._lock:
                outcomes = [self._received(message) for message in messages if message is not _End]
                self._dispatch()
            for outcome in outcomes:
                if outcome is not None:
                    self._deliver(*outcome)
            if messages[-1] is _End:
                return
            del messages, outcomes  # values of the user

    def _received(self, message: _Message) -> tuple[Chunk, Outcome] | None:
        worker, number, value, error = message
        if number == -1:
            return value, Outcome(failure=error)
        chunk, _ = worker.running.pop(number, (None, None))
        if chunk is None or self._ended:  # `end` delivers its failure
            return None
        if error is None:
            values, errors, chunk.function.timing.chunk_s = value
            outcome = outcome_of(values, errors)
        else:
            outcome = Outcome(failure=error)
            self._after_failure(worker, error)
        if worker.is_retiring and not worker.running:
            self._retiring.discard(worker)
            worker.actor = None  # the last handle
        return chunk, outcome

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
