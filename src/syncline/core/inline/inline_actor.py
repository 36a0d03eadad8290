"""Actors: an instance, its calls in progress, and an event loop thread for coroutine methods."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine

from syncline.core import definitions, error_messages, tracebacks
from syncline.core.definitions import AnyFunction
from syncline.core.embedded.resource_pools import Holding
from syncline.core.engine import ActorRecord
from syncline.core.event_loops import cancel_all
from syncline.core.inline.inline_call import InlineContext, NotRun, Results
from syncline.core.options import ASYNC_CONCURRENCY, ActorOptions
from syncline.exceptions import ActorDiedError


class LoopThread:
    """An event loop in its own thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def spawn(
        self, coroutine: Coroutine[object, None, object]
    ) -> concurrent.futures.Future[object]:
        """Run a coroutine; coroutines start in order. Once the loop has stopped, none runs."""
        if self._loop.is_closed():
            coroutine.close()
            future: concurrent.futures.Future[object] = concurrent.futures.Future()
            future.cancel()
            return future
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[[], object]) -> object:
        """Call a function in the thread and return its result."""

        async def run() -> object:
            return function()

        return self.spawn(run()).result()

    def stop(self) -> None:
        """Cancel all coroutines and end the thread; wait for it unless it is the calling one."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(cancel_all())
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
        context: InlineContext,
        is_async: bool,
    ) -> None:
        self.record = record
        self.options = options
        self.namespace = namespace
        self.holding = holding
        self.context = context
        self.instance: object = None
        self.restarts = 0
        self.is_leaving = False
        """True after `exit_actor`: the actor ends with the current call."""
        self.lock = threading.RLock()
        """Held by the running call; re-entrant, because an actor may call itself."""
        self.previous: threading.Event | None = None
        """Set when the last call that waits for arguments is done; later calls wait for it."""
        self.death: BaseException | None = None
        self.loop = LoopThread(f"event loop of {record.class_name}") if is_async else None
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._calls: set[Results] = set()
        self._calls_lock = threading.Lock()
        self._when_idle: Callable[[], None] | None = None

    @property
    def is_counted(self) -> bool:
        """True if the actor ends with its last handle."""
        return self.options.name is None and self.options.lifetime != "detached"

    @property
    def may_restart(self) -> bool:
        """True if `max_restarts` allows another start."""
        return self.options.max_restarts < 0 or self.restarts < self.options.max_restarts

    def construct(self, make: Callable[[], object]) -> None:
        """Run the constructor; its failure is the actor's death."""
        try:
            self.instance = make() if self.loop is None else self.loop.call(make)
        except (Exception, SystemExit) as error:
            self.end("failed in its constructor", traceback=tracebacks.user_traceback(error))

    def method(self, name: str) -> AnyFunction:
        """Return a bound method; NotRun if the actor is dead."""
        if self.death is not None:
            raise NotRun(self.death)
        return definitions.bound_method(self.instance, name)

    def limit(self, group: str | None) -> asyncio.Semaphore:
        """Return the semaphore of a concurrency group. For the event loop's thread only."""
        name = group or ""
        if name not in self._limits:
            size = (
                self.options.concurrency_groups[name]
                if name
                else self.options.max_concurrency or ASYNC_CONCURRENCY
            )
            self._limits[name] = asyncio.Semaphore(size)
        return self._limits[name]

    def begin(self, results: Results) -> None:
        """Register a call; fail it if the actor is dead."""
        with self._calls_lock:
            death = self.death
            if death is None:
                self._calls.add(results)
                results.on_done = lambda: self._finish(results)
        if death is not None:
            results.fail(death)

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call `action` once all registered calls have an outcome."""
        with self._calls_lock:
            self._when_idle = action if self._calls else None
        if self._when_idle is None:
            action()

    def interrupt(self, cause: str) -> None:
        """Fail the calls in progress and drop the instance, like the death of a process."""
        error = self._died(cause, "")
        with self._calls_lock:
            calls = list(self._calls)
        for results in calls:
            results.fail(error)
        self.instance = None

    def end(self, cause: str, *, traceback: str = "") -> None:
        """End the actor; it does not restart."""
        with self._calls_lock:
            if self.death is not None:
                return
            self.death = self._died(cause, traceback)
        self.interrupt(cause)
        if self.loop is not None:
            self.loop.stop()

    def _finish(self, results: Results) -> None:
        with self._calls_lock:
            self._calls.discard(results)
            action = None if self._calls else self._when_idle
            if action is not None:
                self._when_idle = None
        if action is not None:
            action()

    def _died(self, cause: str, traceback: str) -> ActorDiedError:
        name, class_name = self.options.name, self.record.class_name
        message = error_messages.actor_died(
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
