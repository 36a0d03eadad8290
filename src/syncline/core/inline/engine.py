"""`InlineEngine`: runs tasks, actors and generators in this process, when they are submitted."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import GeneratorType
from typing import Any, Literal

from syncline.core import error_messages, runtime_env, serialization
from syncline.core.definitions import (
    ActorDefinition,
    CallDefinition,
    TaskDefinition,
    as_async_iterator,
)
from syncline.core.embedded.engine import CURRENT, placement_of
from syncline.core.embedded.invocation import collected, repeat
from syncline.core.embedded.messages import inline, load_outcome
from syncline.core.engine import ActorRecord, Args, Kwargs, Submitted, trace_event
from syncline.core.inline.engine_base import InlineEngineBase
from syncline.core.inline.generator_streams import AsyncStream, Items, Stream, SyncStream
from syncline.core.inline.inline_actor import InlineActor
from syncline.core.inline.inline_call import (
    Call,
    InlineContext,
    NotRun,
    Results,
    attempt,
    attempt_async,
    environment_of,
    running_as,
)
from syncline.core.inline.inline_objects import pack_value, task_of
from syncline.core.options import MethodOptions, RetryExceptions
from syncline.core.refs import (
    AnyGenerator,
    AnyRef,
    DynamicObjectRefGenerator,
    Hold,
    ObjectRef,
    ObjectRefGenerator,
    Waitable,
)
from syncline.core.tracebacks import task_error
from syncline.exceptions import (
    ActorAlreadyExistsError,
    ActorUnavailableError,
    GetTimeoutError,
    TaskCancelledError,
)

Group = tuple[int, int] | None
"""(placement group id, bundle index or -1)."""
NumReturns = int | Literal["streaming", "dynamic"] | None
Run = Callable[[Callable[[], Any]], Any]
"""Calls user code in the context of a task or call."""


class InlineEngine(InlineEngineBase):
    """See the package for the differences from the contract of `Engine`."""

    # -- tasks

    def submit_task(self, definition: TaskDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        self._objects.apply_refcounts()
        function = self._load(definition, definition.function)
        options = definition.options
        group, captures = placement_of(options, CURRENT.get().context.captured_group_id)
        needed = options.resources_needed()
        with self._lock:
            self._scheduler.shape(needed, group=group)  # raises if it can never be held
        group_id = group[0] if group else 0
        context = InlineContext(
            name=options.name or definition.name,
            group_id=group_id,
            captured_group_id=group_id if captures else 0,
            resources=tuple(sorted(needed.items())),
            runtime_env=runtime_env.merge(self._config.runtime_env, options.runtime_env),
        )
        call = self._call(
            definition.name, args, kwargs, context, options.max_retries, options.retry_exceptions
        )
        run = partial(self._run_as_task, call, group)

        def body() -> Any:
            positional, keyword = call.load_arguments(self._objects)
            return run(partial(function, *positional, **keyword))

        if options.num_returns == "streaming":
            return self._open_stream(
                call, lambda items: SyncStream(items, body, run, call.failure, call.is_retryable)
            )
        results = self._results(call, options.num_returns)
        self._start(call, results, lambda: self._collect(body(), run, options.num_returns))
        return results.submitted()

    def _call(
        self,
        function_name: str,
        args: Args,
        kwargs: Kwargs,
        context: InlineContext,
        max_retries: int,
        retry_exceptions: RetryExceptions,
    ) -> Call:
        self._calls += 1
        packed = serialization.pack_call(args, kwargs, function_name=function_name)
        return Call(
            task_id=self._objects.new_id(),
            arguments=inline(packed.data, packed.buffers, packed.refs),
            arg_refs=tuple(arg for arg in (*args, *kwargs.values()) if isinstance(arg, ObjectRef)),
            holds=tuple(Hold(id) for id in packed.refs),
            context=context,
            max_retries=max_retries,
            retry_exceptions=retry_exceptions,
        )

    def _results(self, call: Call, num_returns: NumReturns) -> Results:
        number = num_returns if isinstance(num_returns, int) and num_returns != 1 else None
        return Results(self._objects, call.name, number, task_id=call.task_id)

    def task_of(self, id: int) -> int:
        return task_of(id)

    def _load(self, definition: TaskDefinition | ActorDefinition, code: Any) -> Any:
        """Return a copy of the function or class, with copies of the values it captured."""
        if definition.prepared_for is not self:
            captured: list[int] = []
            data = serialization.pack_callable(code, refs=captured)
            definition.prepared = (serialization.unpack(data), [Hold(id) for id in captured])
            definition.prepared_for = self
        return definition.prepared[0]

    def _start(
        self,
        call: Call,
        results: Results,
        body: Callable[[], object],
        *,
        actor: InlineActor | None = None,
    ) -> None:
        """Run a call now, or in a thread if it waits for a coroutine or an earlier call."""
        entries = [self._objects.find(ref.id) for ref in call.arg_refs]
        previous = actor.previous if actor is not None else None
        if all(entry.value is not None for entry in entries) and (
            previous is None or previous.is_set()
        ):
            self._finish(call, results, body, actor)
            return
        done = threading.Event()
        if actor is not None:
            actor.previous = done
        cancelled = threading.Event()

        def cancel() -> None:
            cancelled.set()
            results.fail(call.cancelled())

        results.set_cancel(cancel)

        def run_later() -> None:
            try:
                self._objects.wait_for(entries, len(entries), None)
                if previous is not None:
                    previous.wait()
                if not cancelled.is_set():
                    self._finish(call, results, body, actor)
            finally:
                done.set()

        threading.Thread(target=run_later, name=f"waits to run {call.name}", daemon=True).start()

    def _finish(
        self, call: Call, results: Results, body: Callable[[], object], actor: InlineActor | None
    ) -> None:
        attempt(call, results, body)
        if actor is not None and actor.is_leaving:
            self._end_actor(actor, "ended by `exit_actor()`")

    def _run_as_task(self, call: Call, group: Group, function: Callable[[], object]) -> Any:
        with ExitStack() as stack:
            with self._lock:
                holding = self._scheduler.hold(dict(call.context.resources), group)
                gpu_ids = self._scheduler.gpu_ids(holding)
            stack.callback(self._release, holding)
            stack.callback(self._note_event, call, time.time())
            stack.enter_context(running_as(call, gpu_ids))
            stack.enter_context(environment_of(call.context.runtime_env))
            return function()

    def _note_event(self, call: Call, started: float) -> None:
        event = trace_event(
            call.name,
            pid=os.getpid(),
            tid=threading.get_ident(),
            started=started,
            ended=time.time(),
            cat="actor" if call.context.actor_id else "task",
            args={"task_id": f"{call.task_id:032x}"},
        )
        self._events.append(event)

    # -- generators

    def _collect(self, value: Any, run: Run, num_returns: NumReturns) -> Any:
        """Run a result that is a generator, and return one that repeats it.

        If dynamic, the latter yields references to the items. Other results are returned unchanged.
        """
        if num_returns == 0 or not (num_returns == "dynamic" or isinstance(value, GeneratorType)):
            return value
        values: list[object] = []
        failure: Exception | None = None
        try:
            run(lambda: values.extend(item for item in value))
        except Exception as error:
            failure = error
        return self._repeat(values, failure, num_returns)

    def _repeat(
        self, values: list[object], failure: Exception | None, num_returns: NumReturns
    ) -> Iterator[object]:
        if num_returns != "dynamic":
            return repeat(values, failure)
        made = [self.put(item) for item in values]
        if failure is not None:
            id = self._objects.create()
            self._objects.fail(id, task_error(CURRENT.get().context.name, failure))
            made.append(ObjectRef(id))
        return repeat([DynamicObjectRefGenerator(made)], failure)

    def _open_stream(self, call: Call, make: Callable[[Items], Stream]) -> AnyGenerator:
        id = self._objects.create(call.task_id, on_free=self._drop_stream)
        self._streams[id] = make(Items(self._objects, id))
        return ObjectRefGenerator(id)

    def _drop_stream(self, id: int) -> None:
        stream = self._streams.pop(id, None)
        if stream is not None:
            stream.close(None)

    def _finish_streams(self, refs: Sequence[AnyRef]) -> None:
        """Run the generators to whose end `refs` refer."""
        for ref in refs:
            stream = self._streams.get(ref.id)
            while stream is not None and not stream.items.ended:
                stream.advance(len(stream.items))

    def next_item(
        self, generator: AnyGenerator, index: int, timeout_s: float | None
    ) -> AnyRef | None:
        self._objects.apply_refcounts()
        stream = self._find_stream(generator.id)
        stream.advance(index)
        return stream.items.hand_out(index)

    def on_item(
        self, generator: AnyGenerator, index: int, callback: Callable[[AnyRef | None], None]
    ) -> None:
        self._objects.apply_refcounts()
        stream = self._find_stream(generator.id)
        stream.advance_later(index, lambda: callback(stream.items.hand_out(index)))

    def _find_stream(self, id: int) -> Stream:
        self._objects.find(id)
        return self._streams[id]

    # -- actors

    def create_actor(
        self, definition: ActorDefinition, args: Args, kwargs: Kwargs
    ) -> tuple[ActorRecord, Hold]:
        self._objects.apply_refcounts()
        options = definition.options
        namespace = options.namespace or self._config.namespace
        known = self._names.get((namespace, options.name)) if options.name else None
        if known is not None:
            if options.get_if_exists:
                return self._actors[known].record, Hold(known)
            raise ActorAlreadyExistsError(error_messages.actor_exists(str(options.name), namespace))
        cls = self._load(definition, definition.cls)
        group, captures = placement_of(options, CURRENT.get().context.captured_group_id)
        needed = options.resources_needed()
        with self._lock:
            self._scheduler.shape(options.resources_to_place(), group=group)
            holding = self._scheduler.hold(needed, group)
        counted = options.name is None and options.lifetime != "detached"
        id = self._objects.create(count=0 if counted else 1, on_free=self._drop_actor)
        record = ActorRecord.of(definition, id)
        group_id = group[0] if group else 0
        actor = InlineActor(
            record=record,
            options=options,
            namespace=namespace,
            holding=holding,
            context=InlineContext(
                actor_id=id,
                actor_name=options.name or "",
                group_id=group_id,
                captured_group_id=group_id if captures else 0,
                resources=tuple(sorted(needed.items())),
                gpu_ids=self._scheduler.gpu_ids(holding),
                record=serialization.pack(record).data,
                runtime_env=runtime_env.merge(self._config.runtime_env, options.runtime_env),
            ),
            is_async=definition.is_async,
        )
        hold = Hold(id)
        name = f"{definition.name}.__init__"
        call = self._actor_call(actor, name, name, args, kwargs, MethodOptions())
        self._actors[id] = actor
        if options.name:
            self._names[namespace, options.name] = id
        self._constructors[id] = partial(self._construct, actor, cls, call)
        self._constructors[id]()
        return record, hold

    def _construct(self, actor: InlineActor, cls: type, call: Call) -> None:
        entries = [self._objects.find(ref.id) for ref in call.arg_refs]
        self._objects.wait_for(entries, len(entries), None)
        if actor.restarts:
            call = replace(call, context=replace(call.context, was_restarted=True))

        def make() -> object:
            positional, keyword = call.load_arguments(self._objects)
            with running_as(call), environment_of(call.context.runtime_env):
                return cls(*positional, **keyword)

        actor.construct(make)
        if actor.death is not None:
            self._forget(actor)

    def _actor_call(
        self,
        actor: InlineActor,
        name: str,
        function_name: str,
        args: Args,
        kwargs: Kwargs,
        options: MethodOptions,
    ) -> Call:
        retries = options.max_task_retries
        return self._call(
            function_name,
            args,
            kwargs,
            replace(actor.context, name=name, was_restarted=actor.restarts > 0),
            actor.options.max_task_retries if retries is None else retries,
            options.retry_exceptions,
        )

    def submit_call(self, definition: CallDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        self._objects.apply_refcounts()
        options = definition.options
        actor = self._actors[definition.actor_id]
        name = options.name or definition.name
        call = self._actor_call(actor, name, definition.method, args, kwargs, options)
        if options.num_returns == "streaming":
            return self._open_actor_stream(actor, definition, call)
        results = self._results(call, options.num_returns)
        actor.begin(results)
        if actor.death is None:
            if actor.loop is not None:
                self._spawn_call(actor, definition, call, results)
            else:
                body = partial(self._run_method, actor, definition, call)
                self._start(call, results, body, actor=actor)
        return results.submitted()

    def _run_method(self, actor: InlineActor, definition: CallDefinition, call: Call) -> Any:
        positional, keyword = call.load_arguments(self._objects)
        run = partial(self._run_as_actor, actor, call)
        try:
            value = run(lambda: actor.method(definition.method)(*positional, **keyword))
        except SystemExit as exit:
            raise NotRun(self._exit_process(actor, exit)) from None
        return self._collect(value, run, definition.options.num_returns)

    def _run_as_actor(self, actor: InlineActor, call: Call, function: Callable[[], object]) -> Any:
        with ExitStack() as stack:
            stack.enter_context(actor.lock)
            stack.callback(self._note_event, call, time.time())
            stack.enter_context(running_as(call))
            stack.enter_context(environment_of(call.context.runtime_env))
            return function()

    def _spawn_call(
        self, actor: InlineActor, definition: CallDefinition, call: Call, results: Results
    ) -> None:
        assert actor.loop is not None
        options = definition.options

        async def body() -> Any:
            positional, keyword = await self._load_on_loop(call)
            async with actor.limit(options.concurrency_group):
                started = time.time()
                value = actor.method(definition.method)(*positional, **keyword)
                if hasattr(value, "__await__"):
                    value = await value
                elif hasattr(value, "__anext__") or hasattr(value, "send"):
                    value = await collected(as_async_iterator(value))
                self._note_event(call, started)
            return self._collect(value, lambda function: function(), options.num_returns)

        async def body_or_exit() -> Any:
            try:
                return await body()
            except SystemExit as exit:  # a restart would wait for this event loop
                self._end_actor(actor, f"called sys.exit({exit.code!r})")
                assert actor.death is not None
                raise NotRun(actor.death) from None

        async def run() -> None:
            with running_as(call):
                await attempt_async(call, results, body_or_exit)
            if actor.is_leaving:
                self._end_actor(actor, "ended by `exit_actor()`")

        future = actor.loop.spawn(run())

        def cancel() -> None:
            results.fail(call.cancelled())
            future.cancel()

        results.set_cancel(cancel)

    async def _load_on_loop(self, call: Call) -> tuple[Args, Kwargs]:
        for ref in call.arg_refs:
            if self._objects.find(ref.id).value is None:
                await self._value_exists(ref.id)
        return call.load_arguments(self._objects)

    async def _value_exists(self, id: int) -> None:
        loop, exists = asyncio.get_running_loop(), asyncio.Event()
        self._objects.call_back(id, lambda _: loop.call_soon_threadsafe(exists.set))
        await exists.wait()

    def _open_actor_stream(
        self, actor: InlineActor, definition: CallDefinition, call: Call
    ) -> AnyGenerator:
        hold = Hold(definition.actor_id)  # the actor lives at least as long as the generator

        def start() -> Any:
            assert hold.id
            positional, keyword = call.load_arguments(self._objects)
            return actor.method(definition.method)(*positional, **keyword)

        if actor.loop is None:
            run = partial(self._run_as_actor, actor, call)
            return self._open_stream(
                call, lambda items: SyncStream(items, start, run, call.failure, call.is_retryable)
            )
        loop = actor.loop

        async def start_on_loop() -> AsyncIterator[object]:
            await self._load_on_loop(call)
            return as_async_iterator(start())

        def spawn(
            make: Callable[[], Coroutine[object, None, None]], then: Callable[[], None]
        ) -> None:
            async def run_in_context() -> None:
                with running_as(call):
                    await make()

            loop.spawn(run_in_context()).add_done_callback(lambda _: then())

        return self._open_stream(
            call,
            lambda items: AsyncStream(items, start_on_loop, spawn, call.failure, call.is_retryable),
        )

    def kill(self, actor_id: int, *, no_restart: bool) -> None:
        self._objects.apply_refcounts()
        actor = self._actors[actor_id]
        if no_restart:
            self._end_actor(actor, "was ended by `kill`")
        else:
            self._lose_process(actor, "was ended by `kill`")

    def _lose_process(self, actor: InlineActor, cause: str) -> None:
        """Act like after the death of the actor's process: restart it if possible, else end it."""
        if actor.death is None and actor.may_restart:
            actor.interrupt(cause)
            actor.restarts += 1
            self._constructors[actor.record.actor_id]()
        else:
            self._end_actor(actor, cause)

    def _exit_process(self, actor: InlineActor, exit: SystemExit) -> BaseException:
        """Act like after `sys.exit` in the actor's process; return the error of the call."""
        cause = f"called sys.exit({exit.code!r})"
        if exit.code != 0:
            self._lose_process(actor, cause)
        else:  # on purpose: no restart
            self._end_actor(actor, cause)
        return actor.death or ActorUnavailableError(
            error_messages.actor_unavailable(
                actor.record.class_name, actor.options.name, os.getpid(), cause
            )
        )

    def exit_actor(self) -> None:
        actor_id = CURRENT.get().context.actor_id
        if not actor_id:
            raise error_messages.NotInActorError
        actor = self._actors.get(actor_id)
        if actor is not None:
            actor.is_leaving = True

    def _end_actor(self, actor: InlineActor, cause: str) -> None:
        actor.end(cause)
        self._forget(actor)

    def _forget(self, actor: InlineActor) -> None:
        """Free a dead actor's name and resources; its record stays while it has handles."""
        actor_id = actor.record.actor_id
        with self._lock:
            if self._constructors.pop(actor_id, None) is None:
                return
            if actor.options.name:
                self._names.pop((actor.namespace, actor.options.name), None)
        self._release(actor.holding)
        if not actor.is_counted:
            self._objects.release((actor_id,))

    def _drop_actor(self, id: int) -> None:
        """End an actor without handles after its current calls."""
        actor = self._actors.pop(id, None)
        if actor is not None:
            actor.when_idle(lambda: self._end_actor(actor, "ended with its last handle"))

    def named_actor(self, name: str, namespace: str | None) -> tuple[ActorRecord, Hold]:
        self._objects.apply_refcounts()
        wanted = namespace or self._config.namespace
        id = self._names.get((wanted, name))
        if id is None:
            raise ValueError(error_messages.no_such_actor(name, wanted, self._names))
        return self._actors[id].record, Hold(id)

    def list_named_actors(self, *, all_namespaces: bool) -> list[tuple[str, str]]:
        return sorted(
            key for key in self._names if all_namespaces or key[0] == self._config.namespace
        )

    def cancel(self, ref: AnyRef | AnyGenerator, *, force: bool, recursive: bool) -> None:
        self._objects.apply_refcounts()
        stream = self._streams.get(ref.id)
        if stream is not None:
            stream.close(TaskCancelledError())
            return
        cancel = self._objects.find(ref.id).producer
        if callable(cancel):
            cancel()

    # -- objects

    def put(self, value: object) -> AnyRef:
        self._objects.apply_refcounts()
        packed = pack_value(value)
        id = self._objects.create()
        self._objects.settle(id, packed)
        return ObjectRef(id)

    def get(self, refs: Sequence[AnyRef], timeout_s: float | None) -> list[Any]:
        self._objects.apply_refcounts()
        entries = [self._objects.find(ref.id) for ref in refs]
        self._finish_streams(refs)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        values = []
        for entry in entries:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._objects.wait_for([entry], 1, left_s):
                pending = sum(entry.value is None for entry in entries)
                raise GetTimeoutError(
                    error_messages.get_timeout(timeout_s or 0.0, pending, len(entries))
                )
            assert entry.value is not None
            value, error = load_outcome(entry.value)
            if error is not None:
                raise error
            values.append(value)
        return values

    def wait(
        self,
        refs: Sequence[Waitable],
        *,
        num_returns: int,
        timeout_s: float | None,
        fetch_local: bool,
    ) -> tuple[list[Waitable], list[Waitable]]:
        self._objects.apply_refcounts()
        streams = [ref for ref in refs if isinstance(ref, ObjectRefGenerator)]
        values = [ref for ref in refs if not isinstance(ref, ObjectRefGenerator)]
        for stream in streams:
            self._find_stream(stream.id).advance(stream.position)
        entries = [self._objects.find(ref.id) for ref in values]
        self._finish_streams(values)
        self._objects.wait_for(entries, num_returns - len(streams), timeout_s)
        arrived = {
            *(
                ref.id
                for ref, entry in zip(values, entries, strict=True)
                if entry.value is not None
            ),
            *(stream.id for stream in streams),
        }
        ready = [ref for ref in refs if ref.id in arrived][:num_returns]
        chosen = {ref.id for ref in ready}
        return ready, [ref for ref in refs if ref.id not in chosen]

    def on_value(self, ref: AnyRef, callback: Callable[[Any, BaseException | None], None]) -> None:
        self._objects.apply_refcounts()
        self._finish_streams([ref])
        self._objects.call_back(ref.id, lambda value: callback(*load_outcome(value)))

    # -- shutdown

    def shutdown(self) -> None:
        if self._owner != os.getpid():
            return
        for actor in list(self._actors.values()):
            actor.end("ended with the program's `shutdown()`")
        for stream in list(self._streams.values()):
            stream.close(None)
        for table in (self._actors, self._constructors, self._streams, self._names):
            table.clear()
        self._objects.clear()
        shutil.rmtree(self.session_directory, ignore_errors=True)

    def abandon_after_fork(self) -> None:
        self._owner = 0  # `shutdown` in the child must not remove the parent's directory
