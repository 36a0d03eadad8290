"""An actor in its worker: how its calls share the main thread, threads of their own, or an event
loop.

An ordinary actor runs its calls in the main thread. With `max_concurrency` above one, or
concurrency groups, calls run in threads, one pool a group. An actor with async methods runs an
event loop in the main thread, and its calls are coroutines on it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from syncline import faults
from syncline.core import actor_methods
from syncline.core.embedded import messages as m
from syncline.core.embedded.engine import CURRENT, Current, Work
from syncline.core.embedded.invocation import arguments, cancelled, worth_a_retry
from syncline.core.embedded.link import RemoteLink
from syncline.core.embedded.messages import ActorSpec, Message, Value
from syncline.core.embedded.results import Results


class ActorExit(BaseException):
    """Unwinds a method that called `exit_actor()`."""


class Calls:
    """The calls of one actor."""

    def __init__(self, link: RemoteLink, results: Results, spec: ActorSpec, work: Work) -> None:
        self._link = link
        self._results = results
        self._spec = spec
        self._work = work
        self._instance: Any = None
        self._works: dict[str, Work] = {}
        self._groups = dict(spec.methods)
        threaded = not spec.is_async and (spec.max_concurrency > 1 or bool(spec.concurrency_groups))
        self._pools = {name: _pool(name, size) for name, size in self._sizes()} if threaded else {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._limits: dict[str, asyncio.Semaphore] = {}
        self._coroutines: dict[int, asyncio.Task[None]] = {}

    @property
    def takes_main_thread(self) -> bool:
        """An event loop is to run in the main thread."""
        return self._spec.is_async

    @property
    def takes_directly(self) -> bool:
        """Calls need not pass through the main thread."""
        return self._loop is not None

    def construct(self, cls: type, positional: tuple[Any, ...], keyword: dict[str, Any]) -> None:
        """Make the instance; raises what the constructor raises."""
        self._instance = cls(*positional, **keyword)

    def run(self, message: Message) -> None:
        """In the main thread: run a call, or hand it to its thread pool."""
        if self._pools:
            self._pools[self._group(message)].submit(self._call, message)
        else:
            self._call(message)

    def take(self, message: Message) -> None:
        """On any thread, under the link's guard: hand a call to the event loop."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._begin, message)

    def stop(self, call_id: int) -> bool:
        """Cancel a call that runs on the event loop; False where that is not how calls run. A call
        in a thread cannot be stopped.
        """
        if self._loop is None:
            return bool(self._pools)
        self._loop.call_soon_threadsafe(self._cancel, call_id)
        return True

    def serve_loop(self, inbox: deque[Message]) -> None:
        """Run the event loop until the hub lets this worker go."""
        asyncio.run(self._serve(inbox))

    def close(self) -> None:
        """No further calls: threads that wait for some end."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    # -- in a thread

    def _call(self, message: Message) -> None:
        _, call_id, name, mode, args, top, count, extra, _, retry_on = message
        faults.reach("worker.before_call")
        work = self._work_of(name)
        token = CURRENT.set(Current(call_id, work))
        started = time.time()
        values: list[Value] = []
        failed: bytes | None = None
        retry = leaving = False
        try:
            positional, keyword = arguments(args, top)
            method = actor_methods.bound_method(self._instance, name)
            result = method(*positional, **keyword)
            values = self._results.pack(result, work.name, mode, count, (call_id, *extra))
        except ActorExit:
            leaving = True
        except KeyboardInterrupt:
            failed = cancelled()
        except BaseException as error:
            failed, retry = self._results.error(error, work.name), worth_a_retry(error, retry_on)
        result, positional, keyword = (
            None,
            (),
            {},
        )  # what they refer to is dropped before the hub hears of the end
        CURRENT.reset(token)
        faults.reach("worker.before_result")
        self._tell(call_id, values, failed, retry, started, leaving)

    def _tell(
        self,
        call_id: int,
        values: list[Value],
        failed: bytes | None,
        retry: bool,
        started: float,
        leaving: bool,
    ) -> None:
        if leaving:
            self._link.send((m.RETIRE, "exit_actor"))
        else:
            self._link.send((m.DONE, call_id, values, failed, retry, started, time.time()))
            self._results.sent(values)

    # -- on the event loop

    async def _serve(self, inbox: deque[Message]) -> None:
        loop = asyncio.get_running_loop()
        self._limits = {name: asyncio.Semaphore(size) for name, size in self._sizes()}
        with self._link.guard:  # from here on calls come directly; those that came before go first
            waiting = list(inbox)
            inbox.clear()
            self._loop = loop
        for message in waiting:
            if message[0] == m.LEAVE:
                return
            self._begin(message)
        while not inbox:  # whatever else the hub says arrives there, and it is only LEAVE
            await asyncio.sleep(0.2)

    def _begin(self, message: Message) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._call_async(message))
        self._coroutines[message[1]] = task
        task.add_done_callback(lambda _: self._coroutines.pop(message[1], None))

    def _cancel(self, call_id: int) -> None:
        task = self._coroutines.get(call_id)
        if task is not None:
            task.cancel()

    async def _call_async(self, message: Message) -> None:
        _, call_id, name, mode, args, top, count, extra, _, retry_on = message
        work = self._work_of(name)
        CURRENT.set(Current(call_id, work))
        started = time.time()
        values: list[Value] = []
        failed: bytes | None = None
        retry = leaving = False
        try:
            async with self._limits[self._group(message)]:
                started = time.time()
                positional, keyword = arguments(args, top)
                result = actor_methods.bound_method(self._instance, name)(*positional, **keyword)
                if inspect.isasyncgen(result):
                    values = await self._results.pack_stream(result, work.name, (call_id,))
                else:
                    if inspect.isawaitable(result):
                        result = await result
                    values = self._results.pack(result, work.name, mode, count, (call_id, *extra))
        except ActorExit:
            leaving = True
        except asyncio.CancelledError:
            failed = cancelled()
        except BaseException as error:
            failed, retry = self._results.error(error, work.name), worth_a_retry(error, retry_on)
        result, positional, keyword = None, (), {}
        faults.reach("worker.before_result")
        self._tell(call_id, values, failed, retry, started, leaving)

    # -- shared

    def _sizes(self) -> list[tuple[str, int]]:
        return [("", self._spec.max_concurrency), *self._spec.concurrency_groups]

    def _group(self, message: Message) -> str:
        group: str = message[8] or self._groups.get(message[2], "")
        return group

    def _work_of(self, method: str) -> Work:
        work = self._works.get(method)
        if work is None:
            work = self._works[method] = replace(
                self._work, name=f"{self._spec.class_name}.{method}"
            )
        return work


def _pool(name: str, size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(
        max_workers=size, thread_name_prefix=f"call-{name}" if name else "call"
    )
