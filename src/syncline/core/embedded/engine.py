"""The engine of one machine, in every process: calls become messages to the hub."""

from __future__ import annotations

import inspect
import itertools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from syncline import settings
from syncline.core import error_messages, packages, refs, runtime_env, serialization
from syncline.core.definitions import ActorDefinition, AnyFunction, CallDefinition, TaskDefinition
from syncline.core.embedded import messages as m
from syncline.core.embedded import stack_dump
from syncline.core.embedded.hub_connection import HubConnection
from syncline.core.embedded.messages import (
    ActorSpec,
    TaskSpec,
    Value,
    load_outcome,
    make_value,
    open_value,
)
from syncline.core.embedded.session_directories import shared_memory_directory
from syncline.core.engine import (
    LISTED,
    ActorListing,
    ActorRecord,
    Args,
    Engine,
    Kwargs,
    Row,
    RuntimeInfo,
    Submitted,
    TaskListing,
)
from syncline.core.labels import Selector, check_machine
from syncline.core.options import ASYNC_CONCURRENCY, ActorOptions, RetryExceptions, TaskOptions
from syncline.core.placement import PlacementGroupSchedulingStrategy
from syncline.core.refs import AnyGenerator, AnyRef, Hold, ObjectRef, ObjectRefGenerator, Waitable
from syncline.core.state_rows import Filter, StateListing, StateResource
from syncline.core.tracebacks import raisable
from syncline.exceptions import GetTimeoutError
from syncline.records import dataclass

logger = logging.getLogger("syncline")

PROCESS_SHIFT = 40
"""Process number p makes the ids from p << 40; no process needs to request an id."""


@dataclass(frozen=True, kw_only=True)
class SessionInfo:
    """Facts about a session that each of its processes has."""

    session_id: str
    directory: str
    namespace: str
    node_id: str


@dataclass(frozen=True, kw_only=True)
class TaskContext:
    """Context of a definition's tasks or an actor's calls; each of them shares it."""

    name: str = ""
    actor_id: int = 0
    actor_name: str = ""
    was_restarted: bool = False
    group_id: int = 0
    captured_group_id: int = 0
    """The placement group that submitted tasks inherit, or 0."""
    resources: tuple[tuple[str, float], ...] = ()
    gpu_ids: tuple[str, ...] = ()
    threads: int = 1
    """Value of OMP_NUM_THREADS."""
    record: bytes | None = None
    """The pickled `ActorRecord`."""


class CurrentTask(NamedTuple):
    """The task or call that runs in the current context."""

    task_id: int
    context: TaskContext


_NO_TASK = CurrentTask(0, TaskContext())
CURRENT: ContextVar[CurrentTask] = ContextVar("syncline_current", default=_NO_TASK)


def describe_current(
    session: SessionInfo, current: CurrentTask, *, worker_id: str, environment: Mapping[str, object]
) -> RuntimeInfo:
    """Return the facts of the running code's runtime context."""
    task_id, context = current
    return RuntimeInfo(
        job_id=session.session_id.rpartition("-")[2],  # hexadecimal, as Ray's
        node_id=session.node_id,
        worker_id=worker_id,
        namespace=session.namespace,
        task_id=f"{task_id:032x}" if task_id else None,
        task_name=context.name or None,
        actor_id=f"{context.actor_id:032x}" if context.actor_id else None,
        actor_name=context.actor_name or None,
        was_restarted=context.was_restarted,
        placement_group_id=context.group_id or None,
        captures_child_tasks=not context.group_id or bool(context.captured_group_id),
        assigned_resources=dict(context.resources),
        gpu_ids=context.gpu_ids,
        actor=serialization.unpack(context.record) if context.record is not None else None,
        runtime_env=environment,
    )


class ActorExit(BaseException):
    """Unwinds a method that called `exit_actor()`; the call then reports it."""


class EmbeddedEngine(Engine):
    """See `Engine`. Each process has one; its connection leads to the hub."""

    def __init__(
        self,
        connection: HubConnection,
        session: SessionInfo,
        number: int,
        *,
        environment: Mapping[str, object],
        end: Callable[[], None],
        abandon: Callable[[], None],
    ) -> None:
        """`end` and `abandon` implement `shutdown` and `abandon_after_fork`."""
        self._connection = connection
        self._session = session
        self._number = number
        self._environment = dict(environment)
        self._end = end
        self._abandon = abandon
        self.new_id = itertools.count(number << PROCESS_SHIFT | 1).__next__
        """Makes ids that are unique in the session."""
        self.process_context: Callable[[], TaskContext] = TaskContext
        """Returns the context of the process, for threads that user code started."""
        self.output_label = ""
        """Label of this worker's output, if `label_output` was called."""
        self.read_output: Callable[[], None] = lambda: None
        """Reads and shows the pending output of all workers, in the driver's process."""
        self.cancelled_calls: set[int] = set()
        """Ids of calls of this process that were cancelled and still run."""
        self.before_definition: Callable[[], None] = lambda: None
        """Called before a task is defined and before an actor is created."""
        self._definitions: dict[TaskSpec, int] = {}
        self._functions: dict[bytes, int] = {}

    @property
    def session_directory(self) -> Path:
        return Path(self._session.directory)

    @property
    def shared_directory(self) -> Path | None:
        return shared_memory_directory(self._session.session_id)

    # -- tasks and actors

    def submit_task(self, definition: TaskDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        current = CURRENT.get()
        if (
            definition.prepared_for is not self
            or definition.prepared[3] != current.context.captured_group_id
        ):
            self._prepare_task(definition, current.context.captured_group_id)
        definition_id, mode, count, _, parameters = definition.prepared
        task_id = self.new_id()
        value, arg_refs, held, own = self._pack_arguments(args, kwargs, definition.name, parameters)
        extra = _further_results(task_id, count) if count > 1 else ()
        self._connection.send(
            (m.SUBMIT, task_id, definition_id, value, arg_refs, held, extra, current.task_id)
        )
        if own:
            refs.journal.append(-own)
        return _make_refs(task_id, extra, mode, count)

    def _prepare_task(self, definition: TaskDefinition, captured_group_id: int) -> None:
        self.before_definition()
        options = definition.options
        mode, count = _mode(options.num_returns)
        retry_on = _pack_retry(options.retry_exceptions)
        group, captures = placement_of(options, captured_group_id)
        spec = TaskSpec(
            function_id=self._function_id(definition.function),
            name=options.name or definition.name,
            mode=mode,
            num_returns=count,
            resources=tuple(sorted(options.resources_needed().items())),
            group=group,
            captures=captures,
            environment=self._environment_text(options.runtime_env),
            max_retries=options.max_retries,
            retry_on=retry_on,
            max_calls=options.max_calls,
            backpressure=max(0, options.generator_backpressure or 0),
        )
        definition_id = self._definitions.get(spec)
        if definition_id is None:
            definition_id = self.new_id()
            self._connection.request("register_definition", definition_id, spec)
            self._definitions[spec] = definition_id
        definition.prepared = (
            definition_id,
            mode,
            count,
            captured_group_id,
            _parameters(definition.function),
        )
        definition.prepared_for = self

    def create_actor(
        self, definition: ActorDefinition, args: Args, kwargs: Kwargs
    ) -> tuple[ActorRecord, Hold]:
        self.before_definition()
        options = definition.options
        actor_id = self.new_id()
        record = ActorRecord.of(definition, actor_id)
        group, captures = placement_of(options, CURRENT.get().context.captured_group_id)
        value, arg_refs, held, own = self._pack_arguments(
            args, kwargs, f"{definition.name}.__init__"
        )
        if definition.prepared_for is not self:
            definition.prepared = self._function_id(definition.cls)
            definition.prepared_for = self
        spec = ActorSpec(
            class_id=definition.prepared,
            class_name=definition.name,
            placement=tuple(sorted(options.resources_to_place().items())),
            resources=tuple(sorted(options.resources_needed().items())),
            group=group,
            captures=captures,
            environment=self._environment_text(options.runtime_env),
            name=options.name or "",
            namespace=options.namespace or self._session.namespace,
            detached=options.lifetime == "detached",
            get_if_exists=options.get_if_exists,
            max_restarts=options.max_restarts,
            max_task_retries=options.max_task_retries,
            max_concurrency=options.max_concurrency
            or (ASYNC_CONCURRENCY if definition.is_async else 1),
            max_pending_calls=options.max_pending_calls,
            concurrency_groups=tuple(sorted(options.concurrency_groups.items())),
            is_async=definition.is_async,
            record=serialization.pack(record).data,
            methods=tuple(
                (name, o.concurrency_group)
                for name, o in definition.methods.items()
                if o.concurrency_group
            ),
            keeps_order=not options.allow_out_of_order_execution,
        )
        found: bytes | None = self._connection.request(
            "create_actor", actor_id, spec, value, arg_refs, held
        )
        if own:
            refs.journal.append(-own)
        if found is not None:
            record = serialization.unpack(found)
            return record, Hold(record.actor_id, counted=True)
        return record, Hold(actor_id, counted=True)

    def submit_call(self, definition: CallDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        options = definition.options
        mode, count = (m.ONE, 1) if options.num_returns is None else _mode(options.num_returns)
        call_id = self.new_id()
        value, arg_refs, held, own = self._pack_arguments(args, kwargs, definition.method)
        extra = _further_results(call_id, count) if count > 1 else ()
        retry_on = _pack_retry(options.retry_exceptions)
        more: tuple[str | None, int] | None = None
        if options.name is not None or options.generator_backpressure is not None:
            more = options.name, max(0, options.generator_backpressure or 0)
        message = (
            m.CALL, call_id, definition.actor_id, definition.method, mode, value, arg_refs, held,
            extra, count, CURRENT.get().task_id, options.max_task_retries,
            options.concurrency_group, retry_on, more,
        )  # fmt: skip
        self._connection.send(message)
        if own:
            refs.journal.append(-own)
        return _make_refs(call_id, extra, mode, count)

    def cancel(self, ref: AnyRef | AnyGenerator, *, force: bool, recursive: bool) -> None:
        self._connection.request("cancel", ref.id, force, recursive)

    def kill(self, actor_id: int, *, no_restart: bool) -> None:
        self._connection.request("kill_actor", actor_id, no_restart)

    def exit_actor(self) -> None:
        if not CURRENT.get().context.actor_id:
            raise error_messages.NotInActorError
        raise ActorExit

    def named_actor(self, name: str, namespace: str | None) -> tuple[ActorRecord, Hold]:
        record: ActorRecord = serialization.unpack(
            self._connection.request("named_actor", name, namespace or self._session.namespace)
        )
        return record, Hold(record.actor_id, counted=True)

    def list_named_actors(self, *, all_namespaces: bool) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = self._connection.request("named_actors")
        return (
            found
            if all_namespaces
            else [entry for entry in found if entry[0] == self._session.namespace]
        )

    # -- objects

    def put(self, value: object) -> AnyRef:
        id = self.new_id()
        self._connection.send(
            (m.PUT, id, make_value(serialization.pack(value), id, self._connection.allocate))
        )
        return ObjectRef(id, counted=True)

    def get(self, refs: Sequence[AnyRef], timeout_s: float | None) -> list[Any]:
        if len(refs) == 1:
            return [self._get_one(refs[0].id, timeout_s)]
        ids = [ref.id for ref in refs]
        values = self._connection.values(ids, timeout_s)
        for id in ids:
            value = values.get(id)
            if value is not None and value[0] == m.ERROR:
                raise raisable(serialization.unpack_error(value[1]))
        if len(values) < len(set(ids)):
            raise GetTimeoutError(
                error_messages.get_timeout(timeout_s or 0.0, len(set(ids)) - len(values), len(ids))
            )
        return [open_value(values[id]) for id in ids]

    def _get_one(self, id: int, timeout_s: float | None) -> Any:
        value = self._connection.value(id, timeout_s)
        if value is None:
            raise GetTimeoutError(error_messages.get_timeout(timeout_s or 0.0, 1, 1))
        if value[0] == m.ERROR:
            raise raisable(serialization.unpack_error(value[1]))
        return open_value(value)

    def wait(
        self,
        refs: Sequence[Waitable],
        *,
        num_returns: int,
        timeout_s: float | None,
        fetch_local: bool,
    ) -> tuple[list[Waitable], list[Waitable]]:
        streams = [ref for ref in refs if isinstance(ref, ObjectRefGenerator)]
        ids = [ref.id for ref in refs if not isinstance(ref, ObjectRefGenerator)]
        arrived = self._connection.ready(
            ids, num_returns, timeout_s, {stream.id: stream.when_next for stream in streams}
        )
        ready = [ref for ref in refs if ref.id in arrived][:num_returns]
        chosen = {ref.id for ref in ready}
        return ready, [ref for ref in refs if ref.id not in chosen]

    def next_item(
        self, generator: AnyGenerator, index: int, timeout_s: float | None
    ) -> AnyRef | None:
        arrived, id = self._connection.item(generator.id, index, timeout_s)
        if not arrived:
            raise GetTimeoutError(
                f"item {index} of a generator did not arrive within {timeout_s:g} s; the generator "
                "is still running. Call again, or pass a longer timeout"
            )
        return None if id is None else ObjectRef(id, counted=True)

    def on_value(self, ref: AnyRef, callback: Callable[[Any, BaseException | None], None]) -> None:
        def report(value: Value, held: AnyRef = ref) -> None:
            try:
                outcome = load_outcome(value)
            except Exception as error:  # a class cannot be imported here
                outcome = None, error
            callback(*outcome)

        self._connection.call_back(ref.id, report)

    def on_item(
        self, generator: AnyGenerator, index: int, callback: Callable[[AnyRef | None], None]
    ) -> None:
        def report(id: int | None) -> None:
            callback(None if id is None else ObjectRef(id, counted=True))

        self._connection.call_back_item(generator.id, index, report)

    def task_of(self, id: int) -> int:
        return m.task_of(id)

    def free(self, refs: Sequence[AnyRef]) -> None:
        self._connection.request("free", [ref.id for ref in refs])

    # -- placement groups

    def create_placement_group(
        self,
        bundles: Sequence[Mapping[str, float]],
        *,
        strategy: str,
        name: str,
        detached: bool,
        label_selectors: Sequence[Selector] = (),
        may_wait: bool = False,
    ) -> int:
        for number, selector in enumerate(label_selectors):
            check_machine(self.nodes(), [selector], f"bundle {number} of the placement group")
        group_id = self.new_id()
        specs = [dict(bundle) for bundle in bundles]
        problem: str | None = self._connection.request(
            "create_group", group_id, specs, strategy, name, may_wait
        )
        if problem is not None:
            logger.warning("%s", error_messages.group_waits(specs, problem))
        return group_id

    def placement_group_ready(self, group_id: int) -> AnyRef:
        return ObjectRef(int(group_id))

    def remove_placement_group(self, group_id: int) -> None:
        self._connection.request("remove_group", int(group_id))

    def placement_groups(self) -> list[Row]:
        return self._connection.request("groups")  # type: ignore[no-any-return]

    # -- the machine

    def nodes(self) -> list[Row]:
        return self._connection.request("nodes")  # type: ignore[no-any-return]

    def cluster_resources(self) -> dict[str, float]:
        return self._connection.request("total")  # type: ignore[no-any-return]

    def available_resources(self) -> dict[str, float]:
        return self._connection.request("available")  # type: ignore[no-any-return]

    def resize(self, amounts: Mapping[str, float]) -> None:
        """Change the machine's amounts of resources, as `Scheduler.resize` does."""
        self._connection.request("resize", dict(amounts))

    def runtime_info(self) -> RuntimeInfo:
        current = CURRENT.get()
        if current is _NO_TASK:
            current = CurrentTask(0, replace(self.process_context(), name=""))
        return describe_current(
            self._session, current, worker_id=f"{self._number:032x}", environment=self._environment
        )

    def is_cancelled(self) -> bool:
        return CURRENT.get().task_id in self.cancelled_calls

    def actors(self, limit: int = LISTED) -> ActorListing:
        return self._connection.request("actors", limit)  # type: ignore[no-any-return]

    def tasks(self, limit: int = LISTED) -> TaskListing:
        return self._connection.request("tasks", limit)  # type: ignore[no-any-return]

    def state(
        self, resource: StateResource, filters: Sequence[Filter] = (), limit: int = LISTED
    ) -> StateListing:
        job_id = self.runtime_info().job_id
        return self._connection.request(  # type: ignore[no-any-return]
            "state", resource, tuple(filters), limit, job_id
        )

    def stack_of(self, actor_id: int) -> str | None:
        pid: int | None = self._connection.request("actor_pid", actor_id)
        return None if pid is None else stack_dump.take(pid)

    def label_output(self, label: str) -> None:
        self.output_label = label
        self._connection.request("label_output", label)

    def debugger_waits(self, path: str) -> None:
        self._connection.request("debugger_waits", path)

    def show_output(self) -> None:
        self.read_output()

    def timeline(self) -> list[Row]:
        return self._connection.request("timeline")  # type: ignore[no-any-return]

    def statistics(self) -> Mapping[str, Any]:
        return self._connection.request("statistics")  # type: ignore[no-any-return]

    def shutdown(self) -> None:
        self._end()

    def abandon_after_fork(self) -> None:
        self._abandon()

    # -- packing

    def _pack_arguments(
        self, args: Args, kwargs: Kwargs, name: str, parameters: tuple[str, ...] = ()
    ) -> tuple[Value, tuple[int, ...], tuple[int, ...], int]:
        """Return (value, ids of reference arguments, ids of all references, id if it is shared)."""
        if not args and not kwargs:
            return _NO_ARGUMENTS, (), (), 0
        packed = serialization.pack_call(
            args, kwargs, function_name=name, parameter_names=parameters
        )
        held = packed.refs
        arg_refs: tuple[int, ...] = ()
        if held:
            arg_refs = tuple([a.id for a in (*args, *kwargs.values()) if type(a) is ObjectRef])
        id = self.new_id()
        value = make_value(packed, id, self._connection.allocate)
        if value[0] == m.SHARED:
            self._connection.send((m.PUT, id, value))
            return value, arg_refs, (*held, id), id
        return value, arg_refs, held, 0

    def _function_id(self, function: AnyFunction) -> int:
        inside: list[int] = []
        data = serialization.pack_callable(function, refs=inside)
        known = self._functions.get(data)
        if known is None:
            # references in the closure live as long as the function may be called: to the end
            refs.journal.extend(inside)
            known = self._functions[data] = self.new_id()
            self._connection.send((m.FUNCTION, known, data))
        return known

    def _environment_text(self, own: Mapping[str, object]) -> str:
        if not own:
            merged: Mapping[str, object] = self._environment
        elif settings.is_package_worker():  # only the program's interpreter knows its packages
            merged = runtime_env.merge(self._environment, own)
        else:
            merged = packages.without_satisfied(runtime_env.merge(self._environment, own))
        return json.dumps(merged, sort_keys=True) if merged else ""


_NO_ARGUMENTS: Value = m.inline(serialization.pack_call((), {}, function_name="").data)


def _parameters(function: AnyFunction) -> tuple[str, ...]:
    """Return the names of a function's parameters, for error messages."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # written in C
        return ()


def _pack_retry(retry: RetryExceptions) -> bytes | None:
    """Return a pickled function that returns the error types to retry, or None."""
    if not retry:
        return None
    return serialization.pack_callable(lambda: (Exception,) if retry is True else retry)


def placement_of(
    options: TaskOptions | ActorOptions, captured_group_id: int
) -> tuple[tuple[int, int] | None, bool]:
    """Return ((placement group, bundle or -1), tasks inherit the group)."""
    group, strategy = options.placement_group, options.scheduling_strategy
    if group is not None and isinstance(strategy, PlacementGroupSchedulingStrategy):
        return (int(group.id), strategy.placement_group_bundle_index), bool(
            strategy.placement_group_capture_child_tasks
        )
    if captured_group_id and strategy == "DEFAULT":
        return (captured_group_id, -1), True
    return None, False


def _mode(num_returns: int | str | None) -> tuple[int, int]:
    if num_returns is None or num_returns == 1:
        return m.ONE, 1
    if num_returns == "streaming":
        return m.STREAM, 1
    if num_returns == "dynamic":
        return m.DYNAMIC, 1
    assert isinstance(num_returns, int)
    return m.MANY, num_returns


def _further_results(id: int, count: int) -> tuple[int, ...]:
    return tuple([m.result_id(id, number) for number in range(1, count)])


def _make_refs(id: int, extra: tuple[int, ...], mode: int, count: int) -> Submitted:
    if mode == m.STREAM:
        return ObjectRefGenerator(id, counted=True)
    if mode == m.MANY:
        return [ObjectRef(i, counted=True) for i in (id, *extra)] if count else None
    return ObjectRef(id, counted=True)
