"""Actors: one instance, the calls under way, and for actors with coroutine methods an event loop in
a thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from syncline.core import errors, tracebacks
from syncline.core import definitions
from syncline.core.embedded.resource_pools import Holding
from syncline.core.engine import ActorRecord
from syncline.core.inline.inline_call import NotRun, Results
from syncline.core.inline.inline_objects import Entry
from syncline.core.options import ASYNC_CONCURRENCY, ActorOptions
from syncline.exceptions import ActorDiedError


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Run a coroutine; those that were spawned earlier start earlier. Once the loop has
        stopped, nothing runs any more.
        """
        if self._loop.is_closed():
            coroutine.close()
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            future.cancel()
            return future
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a function in the thread and return what it returns."""

        async def once() -> Any:
            return function()

        return self.spawn(once()).result()

    @property
    def is_current(self) -> bool:
        """Whether the calling code runs on this loop."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Cancel what runs and end the thread, which is waited for unless it is the calling one."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        if not self.is_current:
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class InlineActor:
    """One actor of the inline engine."""

    def __init__(
        self,
        *,
        record: ActorRecord,
        options: ActorOptions,
        namespace: str,
        holding: Holding,
        group_id: int | None,
        captures_child_tasks: bool,
        is_async: bool,
    ) -> None:
        self.record = record
        self.options = options
        self.namespace = namespace
        self.holding = holding
        self.group_id = group_id
        self.captures_child_tasks = captures_child_tasks
        self.instance: Any = None
        self.restarts = 0
        self.leaving = False
        """`exit_actor` was called: the actor ends with the current call."""
        self.lock = threading.RLock()
        """Held by the call that runs; reentrant, since an actor may call itself."""
        self.after: threading.Event | None = None
        """Set when the last of the calls that wait for their arguments is done: later calls keep
        behind it.
        """
        self.death: BaseException | None = None
        self.loop = LoopThread(f"event loop of {record.class_name}") if is_async else None
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._calls: set[Results] = set()
        self._calls_lock = threading.Lock()

    @property
    def is_counted(self) -> bool:
        """Whether it ends with its last handle."""
        return self.options.name is None and self.options.lifetime != "detached"

    @property
    def may_restart(self) -> bool:
        """Whether `max_restarts` leaves another start."""
        return self.options.max_restarts < 0 or self.restarts < self.options.max_restarts

    def construct(self, make: Callable[[], Any]) -> None:
        """Run the constructor; a failure of it is the actor's death."""
        try:
            self.instance = make() if self.loop is None else self.loop.call(make)
        except (Exception, SystemExit) as error:
            self.end("failed in its constructor", traceback=tracebacks.user_traceback(error))

    def method(self, name: str) -> Callable[..., Any]:
        """What a call of `name` runs; NotRun where the actor is dead."""
        if self.death is not None:
            raise NotRun(self.death)
        return definitions.bound_method(self.instance, name)

    def limit(self, group: str | None) -> asyncio.Semaphore:
        """What bounds the calls at once of a concurrency group. For the event loop's thread
        only.
        """
        name = group or ""
        if name not in self._limits:
            size = (
                self.options.concurrency_groups[name]
                if name
                else self.options.max_concurrency or ASYNC_CONCURRENCY
            )
            self._limits[name] = asyncio.Semaphore(size)
        return self._limits[name]

    def began(self, results: Results) -> None:
        """A call is under way; it fails where the actor is dead already."""
        with self._calls_lock:
            if self.death is None:
                self._calls.add(results)
                return
        results.fail(self.death)

    def ended(self, results: Results) -> None:
        """A call has its outcome."""
        with self._calls_lock:
            self._calls.discard(results)

    def pending_calls(self) -> list[Entry]:
        """One entry of every call that has no outcome yet."""
        with self._calls_lock:
            return [
                results.entries[0]
                for results in self._calls
                if results.entries and results.entries[0].is_pending
            ]

    def interrupt(self, cause: str) -> None:
        """Fail what is under way and drop the instance, as when a process dies."""
        error = self._died(cause, "")
        with self._calls_lock:
            calls, self._calls = self._calls, set()
        for results in calls:
            results.fail(error)
        self.instance = None

    def end(self, cause: str, *, traceback: str = "") -> None:
        """Dead for good."""
        with self._calls_lock:
            if self.death is not None:
                return
            self.death = self._died(cause, traceback)
        self.interrupt(cause)
        if self.loop is not None:
            self.loop.stop()

    def _died(self, cause: str, traceback: str) -> ActorDiedError:
        name, class_name = self.options.name, self.record.class_name
        message = errors.actor_died(
            class_name, name, os.getpid(), cause, max_restarts=self.options.max_restarts
        )
        return ActorDiedError(
            f"{message}\n{traceback}".rstrip(),
            actor_id=f"{self.record.actor_id:032x}",
            actor_name=name,
            class_name=class_name,
            pid=os.getpid(),
            exit_cause=cause,
        )
