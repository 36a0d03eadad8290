"""The calls of an actor in its worker: in the main thread, in thread pools, or on an event loop.

An ordinary actor runs its calls in the main thread. With `max_concurrency` above one, or with
concurrency groups, calls run in threads, one pool a group. The calls of an actor with async methods
are coroutines: the event loop of the default group runs in the main thread, that of every other
group in its own thread, so that a call that blocks its loop delays only its group. As in Ray,
calls of different groups must therefore share state as threads do: asyncio's locks are not enough.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from dataclasses import replace
from typing import Any

from syncline import faults
from syncline.core import definitions
from syncline.core.embedded import messages as m
from syncline.core.embedded.engine import CURRENT, ActorExit, CurrentTask, TaskContext
from syncline.core.embedded.hub_connection import RemoteHubConnection
from syncline.core.embedded.invocation import (
    Outcome,
    ResultPacker,
    cancelled,
    exit_process,
    load_arguments,
)
from syncline.core.embedded.messages import ActorSpec, Message
from syncline.core.event_loops import cancel_all

logger = logging.getLogger("syncline")


class ActorExecutor:
    """Runs the calls of one actor."""

    def __init__(
        self,
        connection: RemoteHubConnection,
        results: ResultPacker,
        spec: ActorSpec,
        context: TaskContext,
        cancelled_calls: set[int],
    ) -> None:
        self._connection = connection
        self._cancelled_calls = cancelled_calls
        self._packer = results
        self._spec = spec
        self._context = context
        self._instance: Any = None
        self._contexts: dict[str, TaskContext] = {}
        self._groups = dict(spec.methods)
        threaded = not spec.is_async and (spec.max_concurrency > 1 or bool(spec.concurrency_groups))
        self._pools = {name: _pool(name, size) for name, size in self._sizes()} if threaded else {}
        self._loop: asyncio.AbstractEventLoop | None = None  # of the main thread
        self._loops: dict[str, asyncio.AbstractEventLoop] = {}  # by group, while they run
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._coroutines: dict[int, asyncio.Task[None]] = {}

    @property
    def accepts_directly(self) -> bool:
        """True if calls need not pass through the main thread."""
        return bool(self._loops)

    def construct(self, cls: type, positional: tuple[object, ...], keyword: dict[str, Any]) -> None:
        """Create the instance; raises the errors of the constructor.

        That of an async actor runs on the event loop of its calls, so that it may start coroutines.
        """
        if not self._spec.is_async:
            self._instance = cls(*positional, **keyword)
            return

        async def make() -> object:
            return cls(*positional, **keyword)

        self._loop = _GroupLoop() if self._spec.concurrency_groups else asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._instance = self._loop.run_until_complete(make())

    def run(self, message: Message) -> None:
        """Run a call in the main thread, or hand it to its thread pool."""
        if self._pools:
            self._pools[self._group(message)].submit(self._call, message)
        else:
            self._call(message)

    def submit_to_loop(self, message: Message) -> None:
        """Hand a call to the event loop, on any thread, under the connection's guard."""
        loop = self._loops[self._group(message)]
        loop.call_soon_threadsafe(self._begin, loop, message)

    def stop(self, call_id: int) -> bool:
        """Cancel a call on the event loop; return False if this actor has neither loop nor pool.

        A call in a thread cannot be stopped, but it can ask whether it is cancelled.
        """
        if not self._loops:
            self._cancelled_calls.add(call_id)
            return bool(self._pools)
        for loop in self._loops.values():  # one of them has the call, or will have it by then
            loop.call_soon_threadsafe(self._cancel, loop, call_id)
        return True

    def serve(self, inbox: deque[Message]) -> None:
        """Run the event loop until the hub stops this worker."""
        loop = self._loop
        assert loop is not None
        try:
            loop.run_until_complete(self._serve(inbox))
        finally:
            loop.run_until_complete(cancel_all())

    def close(self) -> None:
        """Shut the thread pools down, and let the instance clean up."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        instance, self._instance = self._instance, None
        try:
            clean_up = getattr(instance, "__ray_shutdown__", None)
            if callable(clean_up):
                clean_up()
            del clean_up, instance  # calls `__del__`
        except Exception:
            logger.exception("the end of an actor of class %s failed", self._spec.class_name)

    # -- in a thread

    def _call(self, message: Message) -> None:
        _, call_id, name, mode, args, arg_values, count, extra, _, retry_on, more = message
        faults.reach("worker.before_call")
        context = self._context_of(name, more)
        ahead = 0 if more is None else more[1]
        token = CURRENT.set(CurrentTask(call_id, context))
        outcome = Outcome(call_id)
        leaving = False
        try:
            positional, keyword = load_arguments(args, arg_values)
            method = definitions.bound_method(self._instance, name)
            result = method(*positional, **keyword)
            self._packer.pack(outcome, result, context.name, mode, count, (call_id, *extra), ahead)
        except ActorExit:
            leaving = True
        except SystemExit as exiting:
            if exiting.code != 0:
                exit_process(self._connection, exiting)
            leaving = True  # on purpose: no restart
        except KeyboardInterrupt:
            outcome.error = cancelled()
        except BaseException as error:
            self._packer.fail(outcome, error, context.name, retry_on)
        # Drop references before the hub hears that the call ended.
        result, positional, keyword = None, (), {}
        CURRENT.reset(token)
        self._cancelled_calls.discard(call_id)
        faults.reach("worker.before_result")
        self._send(outcome, leaving)

    def _send(self, outcome: Outcome, leaving: bool) -> None:
        if leaving:
            self._connection.send((m.RETIRE, "exit_actor"))
        else:
            self._packer.send(outcome)

    # -- on the event loop

    async def _serve(self, inbox: deque[Message]) -> None:
        self._limits = {name: asyncio.Semaphore(size) for name, size in self._sizes()}
        loops: dict[str, asyncio.AbstractEventLoop] = {
            name: _GroupLoop() for name, _ in self._spec.concurrency_groups
        }
        for name, loop in loops.items():
            threading.Thread(target=loop.run_forever, name=f"calls-{name}", daemon=True).start()
        loops[""] = asyncio.get_running_loop()
        with self._connection.guard:  # later calls arrive directly; the earlier ones go first
            waiting = list(inbox)
            inbox.clear()
            self._loops = loops
            for message in waiting:
                if message[0] == m.EXIT:
                    return
                self.submit_to_loop(message)
        while not inbox:  # only EXIT arrives there
            await asyncio.sleep(0.2)

    def _begin(self, loop: asyncio.AbstractEventLoop, message: Message) -> None:
        task = loop.create_task(self._call_async(message))
        self._coroutines[message[1]] = task
        task.add_done_callback(lambda _: self._coroutines.pop(message[1], None))

    def _cancel(self, loop: asyncio.AbstractEventLoop, call_id: int) -> None:
        task = self._coroutines.get(call_id)
        if task is not None and task.get_loop() is loop:
            task.cancel()

    async def _call_async(self, message: Message) -> None:
        _, call_id, name, mode, args, arg_values, count, extra, _, retry_on, more = message
        context = self._context_of(name, more)
        ahead = 0 if more is None else more[1]
        CURRENT.set(CurrentTask(call_id, context))
        outcome = Outcome(call_id)
        leaving = False
        try:
            async with self._limits[self._group(message)]:
                outcome.started = time.time()
                positional, keyword = load_arguments(args, arg_values)
                result = definitions.bound_method(self._instance, name)(*positional, **keyword)
                ids = (call_id, *extra)
                if inspect.isasyncgen(result):
                    await self._packer.pack_async(
                        outcome, result, context.name, mode, count, ids, ahead
                    )
                else:
                    if inspect.isawaitable(result):
                        result = await result
                    self._packer.pack(outcome, result, context.name, mode, count, ids, ahead)
        except ActorExit:
            leaving = True
        except SystemExit as exiting:
            if exiting.code != 0:
                exit_process(self._connection, exiting)
            leaving = True  # on purpose: no restart
        except asyncio.CancelledError:
            outcome.error = cancelled()
        except BaseException as error:
            self._packer.fail(outcome, error, context.name, retry_on)
        result, positional, keyword = None, (), {}
        faults.reach("worker.before_result")
        self._send(outcome, leaving)

    # -- shared

    def _sizes(self) -> list[tuple[str, int]]:
        return [("", self._spec.max_concurrency), *self._spec.concurrency_groups]

    def _group(self, message: Message) -> str:
        group: str = message[8] or self._groups.get(message[2], "")
        return group

    def _context_of(self, method: str, more: tuple[str | None, int] | None) -> TaskContext:
        if more is not None and more[0] is not None:
            return replace(self._context, name=more[0])
        context = self._contexts.get(method)
        if context is None:
            context = self._contexts[method] = replace(
                self._context, name=f"{self._spec.class_name}.{method}"
            )
        return context


class _GroupLoop(asyncio.SelectorEventLoop):
    """Event loop whose futures, events and queues the calls of another group may complete."""

    def call_soon(  # type: ignore[override]  # its own type is generic in the arguments
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if asyncio._get_running_loop() is not self:
            return self.call_soon_threadsafe(callback, *args, context=context)
        return super().call_soon(callback, *args, context=context)


def _pool(name: str, size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        max_workers=size, thread_name_prefix=f"call-{name}" if name else "call"
    )
