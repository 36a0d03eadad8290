"""`InlineEngine`: tasks, actors and objects. `machine` has what it is built on."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from syncline.core import errors, runtime_env, serialization
from syncline.core.engine import ActorRecord, Submitted
from syncline.core.inline import surroundings
from syncline.core.inline.engine_base import InlineMachine
from syncline.core.inline.generator_streams import (
    AsyncStream,
    EndedStream,
    Items,
    Stream,
    SyncStream,
)
from syncline.core.inline.inline_actor import InlineActor
from syncline.core.inline.inline_call import (
    Call,
    NotRun,
    Results,
    as_async_iterator,
    attempt,
    attempt_async,
)
from syncline.core.inline.inline_objects import Entry, ObjectTable
from syncline.core.inline.surroundings import Surroundings, environment_of, running_as
from syncline.core.options import ActorOptions, MethodOptions, TaskOptions
from syncline.core.definitions import ActorDefinition, CallDefinition, TaskDefinition
from syncline.core.refs import Hold, ObjectRef, ObjectRefGenerator
from syncline.exceptions import GetTimeoutError, TaskCancelledError

Place = tuple[int, int] | None
"""(placement group id, bundle index or -1)."""


class InlineEngine(InlineMachine):
    """Runs everything in this process; what differs from the contract of `Engine` is in the
    package's docstring.
    """

    # -- tasks

    def submit_task(
        self, plan: TaskDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted:
        self._table.drain()
        function = self._loaded(plan, plan.function)
        options = plan.options
        place, captures = self._place(options)
        needed = options.resources_needed()
        self._ledger.check(needed, place)
        name = options.name or plan.name
        call = self._call(
            name,
            serialization.pack_call(args, kwargs, function_name=plan.name).detached(),
            (args, kwargs),
            max_retries=options.max_retries,
            retry_exceptions=options.retry_exceptions,
            resources=needed,
            runtime_env=runtime_env.merge(self._config.runtime_env, options.runtime_env),
            placement_group_id=place[0] if place else None,
            captures_child_tasks=captures,
        )

        def body() -> Any:
            loaded, named = call.load_arguments(self._table)
            return self._within(call, place, partial(function, *loaded, **named))

        if options.num_returns == "streaming":
            return self._stream(
                call,
                lambda items: SyncStream(
                    items, body, partial(self._within, call, place), call.failure
                ),
            )
        results = Results(self._table, _number(options.num_returns))
        if options.num_returns == "dynamic":
            self._start(
                call, results, lambda: self._collected(body(), partial(self._within, call, place))
            )
        else:
            self._start(
                call,
                results,
                lambda: self._materialized(body(), partial(self._within, call, place)),
            )
        return results.submitted()

    def _call(
        self, name: str, packed: serialization.Packed, given: tuple[tuple[Any, ...], dict[str, Any]], *, max_retries: int,
        retry_exceptions: Any, **of_surroundings: Any,
    ) -> Call:  # fmt: skip
        self._calls += 1
        args, kwargs = given
        return Call(
            name=name,
            arguments=packed,
            held=tuple(arg for arg in (*args, *kwargs.values()) if isinstance(arg, ObjectRef)),
            inside=tuple(Hold(id) for id in packed.refs),
            surroundings=Surroundings(
                task_id=self._table.new_id(), task_name=name, **of_surroundings
            ),
            max_retries=max_retries,
            retry_exceptions=retry_exceptions,
        )

    def _loaded(self, plan: TaskDefinition | ActorDefinition, thing: Any) -> Any:
        """The function or class as another process would have it: a copy, with copies of what it
        captured.
        """
        if plan.prepared_for is not self:
            captured: list[int] = []
            data = serialization.pack_callable(thing, refs=captured)
            plan.prepared = (serialization.unpack(data), [Hold(id) for id in captured])
            plan.prepared_for = self
        return plan.prepared[0]

    def _place(self, options: TaskOptions | ActorOptions) -> tuple[Place, bool]:
        """Where a task or actor runs, and whether what it submits does so too."""
        group = options.placement_group
        if group is not None:
            strategy: Any = options.scheduling_strategy
            return (int(group.id), strategy.placement_group_bundle_index), bool(
                strategy.placement_group_capture_child_tasks
            )
        parent = surroundings.now()
        if (
            parent is not None
            and parent.captures_child_tasks
            and options.scheduling_strategy == "DEFAULT"
        ):
            assert parent.placement_group_id is not None
            return (parent.placement_group_id, -1), True
        return None, False

    def _start(
        self,
        call: Call,
        results: Results,
        body: Callable[[], Any],
        *,
        actor: InlineActor | None = None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        """Run now; or in a thread, if the arguments depend on a coroutine that has not ended, or an
        earlier call of the actor does.
        """
        waits = [entry for entry in call.dependencies(self._table) if entry.is_pending]
        before = actor.after if actor is not None else None
        if not waits and (before is None or before.is_set()):
            attempt(call, results, body)
            ended()
            return
        done = threading.Event()
        if actor is not None:
            actor.after = done
        cancelled = threading.Event()

        def cancel() -> None:
            cancelled.set()
            results.fail(_cancelled(call))

        results.can_be_cancelled(cancel)

        def later() -> None:
            try:
                self._table.wait_for(waits, len(waits), None)
                if before is not None:
                    before.wait()
                if not cancelled.is_set():
                    attempt(call, results, body)
                ended()
            finally:
                done.set()

        threading.Thread(target=later, name=f"waits to run {call.name}", daemon=True).start()

    def _within(self, call: Call, place: Place, function: Callable[[], Any]) -> Any:
        """Call user code as a task: with its resources, its environment and its name."""
        with ExitStack() as stack:
            with self._lock:
                holding = self._ledger.hold(call.surroundings.resources, place)
                gpu_ids = self._ledger.gpu_ids(holding)
            stack.callback(self._give_back, holding)
            stack.callback(self._note_event, call, time.time())
            stack.enter_context(running_as(_with_gpus(call.surroundings, gpu_ids)))
            stack.enter_context(environment_of(call.surroundings.runtime_env))
            return function()

    def _give_back(self, holding: Any) -> None:
        with self._lock:
            self._ledger.release(holding)

    def _note_event(self, call: Call, started: float) -> None:
        self._events.append(
            {
                "cat": "task" if call.surroundings.actor_id is None else "actor",
                "name": call.name,
                "ph": "X",
                "ts": started * 1e6,
                "dur": (time.time() - started) * 1e6,
                "pid": os.getpid(),
                "tid": threading.get_ident(),
                "args": {"task_id": f"{call.surroundings.task_id:032x}"},
            }
        )

    # -- generators

    def _stream(self, call: Call, make: Callable[[Items], Stream]) -> ObjectRefGenerator[Any]:
        end = self._table.create()
        self._streams[end.id] = make(Items(self._table, end))
        return ObjectRefGenerator(end.id)

    def _materialized(self, value: Any, run: Callable[[Callable[[], Any]], Any]) -> Any:
        """What a generator function yields, where it has a fixed number of results."""
        return (
            run(lambda: list(value))
            if hasattr(value, "__next__") and hasattr(value, "send")
            else value
        )

    def _collected(
        self, values: Iterable[Any], run: Callable[[Callable[[], Any]], Any]
    ) -> ObjectRefGenerator[Any]:
        """The value of a call with `num_returns="dynamic"`: a generator over items that exist
        already.
        """
        return self._ended_stream(run(lambda: list(values)))

    def _ended_stream(self, values: Sequence[Any]) -> ObjectRefGenerator[Any]:
        end = self._table.create()
        items = Items(self._table, end, keep=True)
        for value in values:
            items.add(value, lambda error: error)
        items.finish()
        self._streams[end.id] = EndedStream(items)
        return ObjectRefGenerator(end.id)

    def next_item(
        self, generator: ObjectRefGenerator[Any], index: int, timeout_s: float | None
    ) -> ObjectRef[Any] | None:
        self._table.drain()
        stream = self._find_stream(generator.id)
        stream.advance(index)
        return self._item(stream, index)

    def on_item(
        self,
        generator: ObjectRefGenerator[Any],
        index: int,
        callback: Callable[[ObjectRef[Any] | None], None],
    ) -> None:
        self._table.drain()
        stream = self._find_stream(generator.id)
        stream.advance_later(index, lambda: callback(self._item(stream, index)))

    def _item(self, stream: Stream, index: int) -> ObjectRef[Any] | None:
        id = stream.items.hand_out(index)
        if id is None:
            return None
        ref: ObjectRef[Any] = ObjectRef(id)
        stream.items.handed_out(index)
        return ref

    def _find_stream(self, id: int) -> Stream:
        self._table.find(id)
        return self._streams[id]

    # -- actors

    def create_actor(
        self, plan: ActorDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[ActorRecord, Hold]:
        self._table.drain()
        options = plan.options
        namespace = options.namespace or self._config.namespace
        known = self._names.get((namespace, options.name)) if options.name else None
        if known is not None:
            if options.get_if_exists:
                return self._actors[known].record, Hold(known)
            raise ValueError(
                f"an actor named {options.name!r} lives in namespace {namespace!r} already: look it up with `get_actor`, pass "
                "`get_if_exists=True`, or choose another name."
            )
        cls = self._loaded(plan, plan.cls)
        packed = serialization.pack_call(
            args, kwargs, function_name=f"{plan.name}.__init__"
        ).detached()
        place, captures = self._place(options)
        with self._lock:
            self._ledger.check(options.resources_to_place(), place)
            holding = self._ledger.hold(options.resources_needed(), place)
        id = self._table.new_id()
        record = ActorRecord(
            actor_id=id, class_name=plan.name, methods=plan.methods, groups=plan.groups
        )
        actor = InlineActor(
            record=record, options=options, namespace=namespace, holding=holding, group_id=place[0] if place else None,
            captures_child_tasks=captures, is_async=plan.is_async,
        )  # fmt: skip
        hold = Hold(id)
        self._actors[id] = actor
        if options.name:
            self._names[namespace, options.name] = id
        call = self._actor_call(
            actor, f"{plan.name}.__init__", packed, (args, kwargs), MethodOptions()
        )
        self._makers[id] = partial(self._construct, actor, cls, call)
        self._makers[id]()
        return record, hold

    def _construct(self, actor: InlineActor, cls: type, call: Call) -> None:
        waits = call.dependencies(self._table)
        self._table.wait_for(waits, len(waits), None)
        call = _restarted(call, actor.restarts > 0)

        def make() -> Any:
            args, kwargs = call.load_arguments(self._table)
            with running_as(call.surroundings), environment_of(call.surroundings.runtime_env):
                return cls(*args, **kwargs)

        actor.construct(make)
        if actor.death is not None:
            self._forget(actor)

    def _actor_call(
        self, actor: InlineActor, name: str, packed: serialization.Packed, given: tuple[tuple[Any, ...], dict[str, Any]],
        options: MethodOptions,
    ) -> Call:  # fmt: skip
        retries = (
            options.max_task_retries
            if options.max_task_retries is not None
            else actor.options.max_task_retries
        )
        return self._call(
            name,
            packed,
            given,
            max_retries=retries,
            retry_exceptions=options.retry_exceptions,
            actor_id=actor.record.actor_id,
            actor_name=actor.options.name,
            was_restarted=actor.restarts > 0,
            placement_group_id=actor.group_id,
            captures_child_tasks=actor.captures_child_tasks,
            resources=actor.options.resources_needed(),
            gpu_ids=self._ledger.gpu_ids(actor.holding),
            runtime_env=runtime_env.merge(self._config.runtime_env, actor.options.runtime_env),
        )

    def submit_call(
        self, plan: CallDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted:
        self._table.drain()
        options = plan.options
        packed = serialization.pack_call(args, kwargs, function_name=plan.method).detached()
        actor = self._actors[plan.actor_id]
        call = self._actor_call(actor, options.name or plan.name, packed, (args, kwargs), options)
        if options.num_returns == "streaming":
            return self._actor_stream(actor, plan, call)
        results = Results(self._table, _number(options.num_returns))
        actor.began(results)
        if actor.death is not None:
            return results.submitted()
        if actor.loop is not None:
            self._spawn_call(actor, plan, call, results)
        else:
            ended = partial(self._call_ended, actor, results)
            self._start(
                call,
                results,
                partial(self._run_method, actor, plan, call),
                actor=actor,
                ended=ended,
            )
        return results.submitted()

    def _run_method(self, actor: InlineActor, plan: CallDefinition, call: Call) -> Any:
        args, kwargs = call.load_arguments(self._table)
        run = partial(self._as_actor, actor, call)
        try:
            value = run(lambda: actor.method(plan.method)(*args, **kwargs))
        except SystemExit as exit:
            self._end_actor(actor, f"called sys.exit({exit.code!r})")
            assert actor.death is not None
            raise NotRun(actor.death) from None
        if plan.options.num_returns == "dynamic":
            return self._collected(value, run)
        return self._materialized(value, run)

    def _as_actor(self, actor: InlineActor, call: Call, function: Callable[[], Any]) -> Any:
        with ExitStack() as stack:
            stack.enter_context(actor.lock)
            stack.callback(self._note_event, call, time.time())
            stack.enter_context(running_as(call.surroundings))
            stack.enter_context(environment_of(call.surroundings.runtime_env))
            return function()

    def _spawn_call(self, actor: InlineActor, plan: CallDefinition, call: Call, results: Results) -> None:
        assert actor.loop is not None

        async def body() -> Any:
            args, kwargs = await self._load_on_loop(call)
            async with actor.limit(plan.options.concurrency_group):
                started = time.time()
                value = actor.method(plan.method)(*args, **kwargs)
                if hasattr(value, "__await__"):
                    value = await value
                elif hasattr(value, "__anext__") or (
                    hasattr(value, "__next__") and hasattr(value, "send")
                ):
                    value = [item async for item in as_async_iterator(value)]
                self._note_event(call, started)
            return self._ended_stream(value) if plan.options.num_returns == "dynamic" else value

        async def run() -> None:
            with running_as(call.surroundings):
                try:
                    await attempt_async(call, results, body)
                finally:
                    self._call_ended(actor, results)

        future = actor.loop.spawn(run())

        def cancel() -> None:
            results.fail(_cancelled(call))
            future.cancel()

        results.can_be_cancelled(cancel)

    async def _load_on_loop(self, call: Call) -> tuple[list[Any], dict[str, Any]]:
        for ref in call.held:
            entry = self._table.find(ref.id)
            if entry.is_pending:
                await _settled(self._table, entry)
        return call.load_arguments(self._table)

    def _call_ended(self, actor: InlineActor, results: Results) -> None:
        actor.ended(results)
        if actor.leaving:
            self._end_actor(actor, "ended by `exit_actor()`")

    def _actor_stream(
        self, actor: InlineActor, plan: CallDefinition, call: Call
    ) -> ObjectRefGenerator[Any]:
        if actor.loop is None:
            start = partial(self._start_generator, actor, plan, call, Hold(plan.actor_id))
            return self._stream(
                call,
                lambda items: SyncStream(
                    items, start, partial(self._as_actor, actor, call), call.failure
                ),
            )
        loop, hold = (
            actor.loop,
            Hold(plan.actor_id),
        )  # the actor lives at least as long as the generator

        async def start_on_loop() -> AsyncIterator[Any]:
            assert hold.id
            args, kwargs = await self._load_on_loop(call)
            return as_async_iterator(actor.method(plan.method)(*args, **kwargs))

        def spawn(
            make: Callable[[], Coroutine[Any, Any, None]], then: Callable[[], None] | None
        ) -> None:
            async def within() -> None:
                with running_as(call.surroundings):
                    await make()

            future = loop.spawn(within())
            if then is not None:
                future.add_done_callback(lambda _: then())

        return self._stream(
            call, lambda items: AsyncStream(items, start_on_loop, spawn, call.failure)
        )

    def _start_generator(self, actor: InlineActor, plan: CallDefinition, call: Call, hold: Hold) -> Any:
        args, kwargs = call.load_arguments(self._table)
        return actor.method(plan.method)(*args, **kwargs)

    def kill(self, actor_id: int, *, no_restart: bool) -> None:
        self._table.drain()
        actor = self._actors[actor_id]
        if actor.death is None and not no_restart and actor.may_restart:
            actor.interrupt("was ended by `kill`")
            actor.restarts += 1
            self._makers[actor_id]()
        else:
            self._end_actor(actor, "was ended by `kill`")

    def exit_actor(self) -> None:
        current = surroundings.now()
        if current is None or current.actor_id is None:
            raise RuntimeError(
                "`exit_actor()` ends the actor whose method calls it, but this code is not part of an actor's method"
            )
        actor = self._actors.get(current.actor_id)
        if actor is not None:
            actor.leaving = True

    def _end_actor(self, actor: InlineActor, cause: str) -> None:
        actor.end(cause)
        self._forget(actor)

    def _forget(self, actor: InlineActor) -> None:
        """A dead actor's name is free, and so is what it held. The record stays for those who still
        have a handle.
        """
        with self._lock:
            if self._makers.pop(actor.record.actor_id, None) is None:
                return
            if actor.options.name:
                self._names.pop((actor.namespace, actor.options.name), None)
            self._ledger.release(actor.holding)

    def named_actor(self, name: str, namespace: str | None) -> tuple[ActorRecord, Hold]:
        self._table.drain()
        wanted = namespace or self._config.namespace
        id = self._names.get((wanted, name))
        if id is None:
            there = [known for where, known in sorted(self._names) if where == wanted]
            raise ValueError(
                f"no living actor is named {name!r} in namespace {wanted!r}.{errors.did_you_mean(name, there)} "
                f"There {'is ' + ', '.join(map(repr, there)) if there else 'is none with a name'}."
            )
        return self._actors[id].record, Hold(id)

    def list_named_actors(self, *, all_namespaces: bool) -> list[tuple[str, str]]:
        return sorted(
            key for key in self._names if all_namespaces or key[0] == self._config.namespace
        )

    # -- cancelling

    def cancel(
        self, ref: ObjectRef[Any] | ObjectRefGenerator[Any], *, force: bool, recursive: bool
    ) -> None:
        self._table.drain()
        stream = self._streams.get(ref.id)
        if stream is not None:
            stream.close(TaskCancelledError())
            return
        cancel = self._table.find(ref.id).cancel
        if cancel is not None:
            cancel()

    # -- objects

    def put(self, value: Any) -> ObjectRef[Any]:
        self._table.drain()
        packed = serialization.pack(value).detached()
        entry = self._table.create()
        self._table.settle_packed(entry, packed)
        return ObjectRef(entry.id)

    def get(self, refs: Sequence[ObjectRef[Any]], timeout_s: float | None) -> list[Any]:
        self._table.drain()
        entries = [self._table.find(ref.id) for ref in refs]
        self._finish_streams(refs)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        values = []
        for entry in entries:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not self._table.wait_for([entry], 1, left_s):
                pending = sum(entry.is_pending for entry in entries)
                raise GetTimeoutError(errors.get_timeout(timeout_s or 0.0, pending, len(entries)))
            values.append(entry.load())
        return values

    def wait(
        self,
        refs: Sequence[ObjectRef[Any]],
        *,
        num_returns: int,
        timeout_s: float | None,
        fetch_local: bool,
    ) -> tuple[list[ObjectRef[Any]], list[ObjectRef[Any]]]:
        self._table.drain()
        entries = [self._table.find(ref.id) for ref in refs]
        self._finish_streams(refs)
        self._table.wait_for(entries, num_returns, timeout_s)
        ready = [ref for ref, entry in zip(refs, entries, strict=True) if not entry.is_pending][
            :num_returns
        ]
        chosen = {ref.id for ref in ready}
        return ready, [ref for ref in refs if ref.id not in chosen]

    def _finish_streams(self, waited_for: Sequence[ObjectRef[Any]]) -> None:
        """Waiting for the end of a generator is asking for all of its items."""
        for ref in waited_for:
            stream = self._streams.get(ref.id)
            while stream is not None and not stream.items.ended:
                stream.advance(len(stream.items))

    def on_value(
        self, ref: ObjectRef[Any], callback: Callable[[Any, BaseException | None], None]
    ) -> None:
        self._table.drain()
        self._finish_streams([ref])
        entry = self._table.find(ref.id)
        self._table.call_back(entry, lambda: callback(*entry.outcome()))

    def _released(self, id: int) -> None:
        """Nobody holds `id` any more."""
        stream = self._streams.pop(id, None)
        if stream is not None:
            stream.close(None)
        actor = self._actors.get(id)
        if actor is not None and (actor.is_counted or actor.death is not None):
            self._when_idle(actor, lambda: self._end_actor(actor, "ended with its last handle"))
            self._actors.pop(id, None)

    def _when_idle(self, actor: InlineActor, then: Callable[[], None]) -> None:
        """After the calls that were made before."""
        waiting = actor.pending_calls()
        if not waiting:
            then()
            return

        def next_one() -> None:
            self._when_idle(actor, then)

        self._table.call_back(waiting[0], next_one)

    # -- the end

    def shutdown(self) -> None:
        if self._owner != os.getpid():
            return
        for actor in list(self._actors.values()):
            actor.end("ended with the program's `shutdown()`")
        for stream in list(self._streams.values()):
            stream.close(None)
        self._actors.clear()
        self._makers.clear()
        self._streams.clear()
        self._names.clear()
        self._table.clear()
        shutil.rmtree(self._directory, ignore_errors=True)

    def abandon_after_fork(self) -> None:
        self._owner = 0  # this object belongs to nobody now: `shutdown` must not remove the parent's directory


async def _settled(table: ObjectTable, entry: Entry) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(done.set)

    table.call_back(entry, tell)
    await done.wait()


def _number(num_returns: int | Literal["streaming", "dynamic"] | None) -> int | None:
    return num_returns if isinstance(num_returns, int) and num_returns != 1 else None


def _cancelled(call: Call) -> TaskCancelledError:
    return TaskCancelledError(
        f"{call.name}() was cancelled, so it has no value.",
        task_id=f"{call.surroundings.task_id:032x}",
    )


def _with_gpus(of_task: Surroundings, gpu_ids: tuple[str, ...]) -> Surroundings:
    return replace(of_task, gpu_ids=gpu_ids) if gpu_ids else of_task


def _restarted(call: Call, was_restarted: bool) -> Call:
    return (
        replace(call, surroundings=replace(call.surroundings, was_restarted=True))
        if was_restarted
        else call
    )
