"""Tasks in this process: on threads of the execution, or, in local mode, one turn after the other
in the program's own thread.

Python cannot interrupt a thread: a task that is cancelled in the middle of a turn is dropped when
the turn ends, and time limits of functions have no effect here (functions with one run in worker
processes, except in local mode).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeAlias

import pyarrow as pa

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.data.columnar import block as blocks
from syncline.data.execute.jobs import Job, Listener, Post
from syncline.data.execute.randomness import Aside
from syncline.data.execute.turns import Running, Turn, Work, cut, draws_of, failure

Submit: TypeAlias = Callable[[Callable[[], None]], None]
"""Has a call made some time soon, by some thread or by this one."""


class DaemonThreads:
    """Threads that make calls; as many as calls wait at once. They never hold up the program's
    exit.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._free = 0
        """Threads that wait, less the calls that wait for one."""
        self._closed = False

    def submit(self, call: Callable[[], None]) -> None:
        """Have `call`, which must not raise, made by one of the threads."""
        with self._lock:
            if self._closed:
                return
            self._free -= 1
            grows = self._free < 0
            if grows:
                self._free += 1
                self._threads += 1
                number = self._threads
        self._calls.put(call)
        if grows:
            threading.Thread(target=self._run, name=f"{self._name}-{number}", daemon=True).start()

    def close(self) -> None:
        """The threads end when their calls have; calls that wait are not made."""
        with self._lock:
            self._closed = True
            count, self._threads = self._threads, 0
        for _ in range(count):
            self._calls.put(None)

    def _run(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            if not self._closed:
                call()
            del call  # what it refers to is not kept while the thread waits
            with self._lock:
                self._free += 1


class ThreadLane:
    """Runs tasks in this process."""

    def __init__(
        self, submit: Submit, post: Post, listener: Listener, *, beside_program: bool
    ) -> None:
        """`beside_program`: in the program's own thread, which is where user functions run then."""
        self._beside_program = beside_program
        self._submit = submit
        self._post = post
        self._listener = listener
        self._opened: dict[int, Work] = {}
        self._opening = threading.Lock()

    def start(self, job: Job, work: Work, inputs: Sequence[ObjectRef[Any] | pa.Table]) -> None:
        """Begin a task: its first turn."""
        self._submit(partial(self._begin, job, work, inputs))

    def resume(self, job: Job) -> None:
        """The next turn."""
        self._submit(partial(self._turn, job, job.place))

    def cancel(self, job: Job) -> None:
        """Let go of a task; one in the middle of a turn is dropped at its end."""
        running, job.place = job.place, None
        if running is not None and not job.in_turn:
            self._submit(running.close)

    def tick(self, now: float) -> None:
        """Nothing to do from time to time."""

    def close(self) -> None:
        """No more tasks."""
        with self._opening:
            works, self._opened = list(self._opened.values()), {}
        for work in works:
            work.close()

    def _begin(self, job: Job, work: Work, inputs: Sequence[ObjectRef[Any] | pa.Table]) -> None:
        try:
            tables = [api.get(value) if isinstance(value, ObjectRef) else value for value in inputs]
        except Exception as error:
            self._post(partial(self._listener.lost, job, error))
            return
        raised = self._open(work)
        if raised is not None:
            self._post(partial(self._listener.turned, job, Turn(error=raised), None))
            return
        running = Running(
            work, job.request, cut(tables, job.layout), draws=self._draws(work, job.request.number)
        )
        job.place = running
        self._turn(job, running)

    def _open(self, work: Work) -> BaseException | None:
        """Prepare for the tasks of a work, once. What the user's class raised, if it did."""
        with self._opening:
            if id(work) not in self._opened:
                try:
                    with self._draws(work):
                        work.open()
                except (Exception, SystemExit) as error:
                    return failure(work.name, error)
                self._opened[id(work)] = work
        return None

    def _draws(self, work: Work, task: int | None = None) -> AbstractContextManager[None]:
        numbers = draws_of(work, task)
        return Aside(*numbers) if self._beside_program and numbers else nullcontext()

    def _turn(self, job: Job, running: Running) -> None:
        turn, table = running.turn()
        value: pa.Table | ObjectRef[Any] | None = table
        if table is not None and job.stores:
            try:
                value = api.put(blocks.compact(table))
            except Exception as error:  # no room, or the engine has ended
                self._post(partial(self._listener.lost, job, error))
                return
        self._post(partial(self._listener.turned, job, turn, value))
