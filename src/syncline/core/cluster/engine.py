"""`Engine` on Ray Core: each method is one request to Ray.

Arguments, results and errors are translated to syncline's.
"""

from __future__ import annotations

import atexit
import functools
import logging
import pickle
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
import ray.exceptions
from ray.experimental import internal_kv
from ray.util import serialization as ray_serialization

from syncline.core import error_messages, runtime_env, serialization
from syncline.core.cluster import cluster_state, feasibility, handles, ray_options, state_tables
from syncline.core.cluster.handles import ClusterRef, ItemWaiter, RayObject, ReadyRef, ray_ref
from syncline.core.cluster.health import Connection
from syncline.core.cluster.key_values import RayKeyValues
from syncline.core.cluster.placement_groups import Groups, group_of
from syncline.core.cluster.ray_errors import get_timeout_error, translated
from syncline.core.cluster.ray_workers import (
    Enter,
    ResultMode,
    await_death,
    entry_of,
    remote_class,
    remote_function,
)
from syncline.core.definitions import ActorDefinition, AnyFunction, CallDefinition, TaskDefinition
from syncline.core.engine import (
    LISTED,
    ActorListing,
    ActorRecord,
    Args,
    Engine,
    Kwargs,
    Row,
    RuntimeInfo,
    Statistics,
    Submitted,
    TaskListing,
)
from syncline.core.key_values import KeyValues
from syncline.core.labels import Selector, alternatives
from syncline.core.node_rows import with_both_spellings
from syncline.core.options import ActorOptions, Keywords, TaskOptions
from syncline.core.refs import AnyGenerator, AnyRef, Hold, ObjectRefGenerator, Waitable
from syncline.core.state_rows import Filter, StateListing, StateResource

Result = TypeVar("Result")

logger = logging.getLogger("syncline")

RECORD_WAIT_S = 10.0
"""Seconds to wait for the record of a named actor, which is stored right after its name."""
_KV_NAMESPACE = b"syncline"


@dataclass(frozen=True, kw_only=True)
class ClusterStatistics:
    """Counts of this process."""

    actors_and_streams: int
    """Actors and generators that it holds."""
    waiting_for_items: int
    """Callbacks that wait for an item of a generator."""
    removed_groups: int
    """Placement groups that it removed or found removed."""


class ClusterEngine(Engine):
    """See `Engine`. One per process; only the driver's disconnects."""

    def __init__(
        self,
        *,
        address: str,
        environment: runtime_env.Env,
        may_grow: Callable[[], bool],
        connection: Connection,
        enter: Enter,
        disconnect: Callable[[], None] = lambda: None,
    ) -> None:
        """`may_grow` returns True if nodes are added on demand; `enter` is called in workers."""
        self._address = address
        self._environment = dict(environment)
        self._may_grow = may_grow
        self._connection = connection
        self._enter = enter
        self._disconnect = disconnect
        self._items = ItemWaiter()
        self._groups = Groups(may_grow=may_grow)

    @property
    def session_directory(self) -> Path:
        node = ray._private.worker._global_node
        return Path(node.get_session_dir_path() if node is not None else ".")

    @property
    def key_values(self) -> KeyValues:
        return RayKeyValues()

    def register_serializer(
        self, cls: type, serializer: Callable[[Any], object], deserializer: Callable[[Any], object]
    ) -> None:
        ray_serialization.register_serializer(cls, serializer=serializer, deserializer=deserializer)

    def deregister_serializer(self, cls: type) -> None:
        ray_serialization.deregister_serializer(cls)

    @property
    def installs_packages(self) -> bool:
        return True

    @property
    def address(self) -> str:
        return self._address if ":" in self._address else str(ray.get_runtime_context().gcs_address)

    @property
    def dashboard_url(self) -> str | None:
        node = ray._private.worker._global_node
        return None if node is None else node.webui_url or None

    @property
    def outlives_driver(self) -> bool:
        return True

    @property
    def may_grow(self) -> bool:
        return self._may_grow()

    # -- tasks and actors

    def submit_task(self, definition: TaskDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        name = definition.name
        return _submitted(self._submit(self._prepare_task, definition, args, kwargs, name))

    def _submit(
        self,
        prepare: Callable[[Any], AnyFunction],
        definition: TaskDefinition | ActorDefinition | CallDefinition,
        args: Args,
        kwargs: Kwargs,
        name: str,
    ) -> RayObject:
        """Call the function that `prepare` returns for the definition; prepare it once."""
        self._connection.check()
        if definition.prepared_for is not self:
            definition.prepared = prepare(definition)
            definition.prepared_for = self
        positional, keyword = handles.with_ray_refs(args, kwargs)
        try:
            return definition.prepared(*positional, **keyword)
        except Exception as error:
            raise self._submission_error(error, args, kwargs, name) from None

    def _prepare_task(self, definition: TaskDefinition) -> AnyFunction:
        options = definition.options
        if options.placement_group is None:
            self._check_demand(options.resources_needed(), options, f"the task {definition.name}")
        mode: ResultMode = (
            options.num_returns if options.num_returns in ("streaming", "dynamic") else "plain"
        )
        if mode == "dynamic" and options.retry_exceptions:
            mode = "retried"
        function = remote_function(definition.function, mode, options.max_calls, self._enter)
        keywords = ray_options.task_options(
            options, definition.name, self._own_environment(options)
        )
        return self._placed(options, function.options(**keywords).remote)

    def create_actor(
        self, definition: ActorDefinition, args: Args, kwargs: Kwargs
    ) -> tuple[ActorRecord, Hold]:
        name, options = f"{definition.name}.__init__", definition.options
        actor = self._submit(self._prepare_actor, definition, args, kwargs, name)
        hold = handles.actor_hold(actor)
        if options.get_if_exists and (found := _read_record(hold.id)) is not None:
            return found, hold
        record = ActorRecord.of(definition, hold.id)
        if options.name is not None:
            internal_kv._internal_kv_put(
                _record_key(hold.id), serialization.pack(record).data, namespace=_KV_NAMESPACE
            )
        return record, hold

    def _prepare_actor(self, definition: ActorDefinition) -> AnyFunction:
        options = definition.options
        if options.placement_group is None:
            demand = (
                options.resources_to_place()
                if ray_options.needs_cpu_to_start(options)
                else options.resources_needed()
            )
            self._check_demand(demand, options, f"the actor {definition.name}")
        cls = remote_class(definition, self._enter)
        keywords = ray_options.actor_options(
            options, self._own_environment(options), is_async=definition.is_async
        )
        return self._placed(options, cls.options(**keywords).remote)

    def submit_call(self, definition: CallDefinition, args: Args, kwargs: Kwargs) -> Submitted:
        method = definition.method
        return _submitted(self._submit(self._prepare_call, definition, args, kwargs, method))

    def _prepare_call(self, definition: CallDefinition) -> AnyFunction:
        entry = entry_of(self._actor(definition.actor_id), definition)
        first = entry.first
        submit = self._submitter(
            entry.method,
            ray_options.call_options(
                definition.options, definition.name, ray_has_groups=not entry.has_loop
            ),
        )

        def call(*positional: object, **keyword: object) -> RayObject:
            return submit([*first, *positional], keyword)

        return call

    def cancel(self, ref: AnyRef | AnyGenerator, *, force: bool, recursive: bool) -> None:
        target = handles.find(ref.id) if isinstance(ref, ObjectRefGenerator) else ray_ref(ref)
        # Ray ends the whole program if it cancels a task that has its result and is about to end.
        if _ready([ray_ref(ref)]):
            return
        try:
            ray.cancel(target, force=force, recursive=recursive)
        except Exception as error:
            raise translated(error) from None

    def kill(self, actor_id: int, *, no_restart: bool) -> None:
        actor = self._actor(actor_id)
        ray.kill(actor, no_restart=no_restart)
        if no_restart:
            await_death(actor)

    def exit_actor(self) -> None:
        if not cluster_state.is_worker() or ray.get_runtime_context().get_actor_id() is None:
            raise error_messages.NotInActorError
        ray.actor.exit_actor()

    def named_actor(self, name: str, namespace: str | None) -> tuple[ActorRecord, Hold]:
        try:
            actor = ray.get_actor(name, namespace)
        except ValueError:
            names = [
                f"{known!r} in {space!r}"
                for space, known in self.list_named_actors(all_namespaces=True)
            ]
            where = namespace if namespace is not None else ray.get_runtime_context().namespace
            raise ValueError(
                f"no living actor is named {name!r} in the namespace {where!r}; the named actors "
                f"are {', '.join(names) or 'none'}."
            ) from None
        hold = handles.actor_hold(actor)
        record = _read_record(hold.id, RECORD_WAIT_S)
        if record is None:
            raise ValueError(
                f"syncline did not create the actor {name!r}, so its methods are unknown here: "
                f"use Ray's own `get_actor`."
            )
        return record, hold

    def list_named_actors(self, *, all_namespaces: bool) -> list[tuple[str, str]]:
        if not all_namespaces:
            here = ray.get_runtime_context().namespace
            return sorted((here, name) for name in ray.util.list_named_actors())
        return sorted(
            (row["namespace"], row["name"])
            for row in ray.util.list_named_actors(all_namespaces=True)
        )

    def hold_actor(self, actor_id: int) -> Hold:
        return handles.actor_hold(self._actor(actor_id))

    # -- objects

    def put(self, value: object) -> AnyRef:
        self._connection.check()
        try:
            return ClusterRef(ray.put(value))
        except Exception as error:
            if not isinstance(error, ray.exceptions.RayError):
                serialization.pack(value)  # raises an error that names the unpicklable part
            raise translated(error) from None

    def get(self, refs: Sequence[AnyRef], timeout_s: float | None) -> list[Any]:
        wanted = [ray_ref(ref) for ref in refs]
        unique = set(wanted)

        def attempt(limit_s: float | None) -> list[Any] | None:
            try:
                return list(ray.get(wanted, timeout=limit_s))
            except ray.exceptions.GetTimeoutError as error:
                if isinstance(error, ray.exceptions.RayTaskError):  # a timeout inside the task
                    raise
                return None

        try:
            values = self._connection.wait(
                attempt, lambda: len(_ready(unique)) == len(unique), timeout_s
            )
        except Exception as error:
            raise translated(error) from None
        if values is None:
            raise get_timeout_error(
                error_messages.get_timeout(
                    timeout_s or 0.0, len(unique) - len(_ready(unique)), len(refs)
                )
            )
        return [
            group_of(value) if type(ref) is ReadyRef else value
            for ref, value in zip(refs, values, strict=True)
        ]

    def wait(
        self,
        refs: Sequence[Waitable],
        *,
        num_returns: int,
        timeout_s: float | None,
        fetch_local: bool,
    ) -> tuple[list[Waitable], list[Waitable]]:
        wanted = [
            handles.find(ref.id) if isinstance(ref, ObjectRefGenerator) else ray_ref(ref)
            for ref in refs
        ]
        arrived: set[RayObject] = set()

        def arrive(number: int, limit_s: float | None) -> bool | None:
            arrived.update(
                ray.wait(wanted, num_returns=number, timeout=limit_s, fetch_local=fetch_local)[0]
            )
            return True if len(arrived) >= num_returns else None

        try:
            # Ray returns any ready references, but we must return the first ones. Requesting all
            # ready references costs no more than requesting some.
            if num_returns == len(wanted) or not arrive(len(wanted), 0):
                self._connection.wait(
                    functools.partial(arrive, num_returns),
                    lambda: len(_ready(wanted)) >= num_returns,
                    timeout_s,
                )
        except Exception as error:
            raise translated(error) from None
        ready: list[Waitable] = []
        rest: list[Waitable] = []
        for ref, rays in zip(refs, wanted, strict=True):
            (ready if rays in arrived and len(ready) < num_returns else rest).append(ref)
        return ready, rest

    def next_item(
        self, generator: AnyGenerator, index: int, timeout_s: float | None
    ) -> AnyRef | None:
        items = handles.find(generator.id)

        def attempt(limit_s: float | None) -> RayObject:
            item = items._next_sync(limit_s)
            return None if item.is_nil() else item

        try:
            item = self._connection.wait(attempt, lambda: False, timeout_s)
        except StopIteration:
            return None
        if item is None:
            raise get_timeout_error(
                f"item {index} of a generator did not arrive within {timeout_s:g} s; the generator "
                f"continues to run"
            )
        return ClusterRef(item)

    def on_value(self, ref: AnyRef, callback: Callable[[Any, BaseException | None], None]) -> None:
        is_ready_ref = type(ref) is ReadyRef

        def on_completed(result: object, held: AnyRef = ref) -> None:
            if isinstance(result, ray.exceptions.RayError):
                callback(None, translated(result))
            else:
                callback(group_of(result) if is_ready_ref else result, None)

        ray_ref(ref)._on_completed(on_completed)

    def on_item(
        self, generator: AnyGenerator, index: int, callback: Callable[[AnyRef | None], None]
    ) -> None:
        def on_arrival(item: RayObject) -> None:
            callback(None if item is None else ClusterRef(item))

        self._items.next_item(handles.find(generator.id), on_arrival)

    def free(self, refs: Sequence[AnyRef]) -> None:
        logger.warning(
            "`internal.free` has no effect on a cluster, because Ray 2.60 frees a value when its "
            "last reference is gone: drop the references, for example with `del`"
        )

    def object_locations(self, refs: Sequence[AnyRef]) -> list[Row]:
        self._connection.check()
        return self._state(state_tables.object_locations, [ray_ref(ref) for ref in refs])

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
        return self._groups.create(
            bundles,
            strategy=strategy,
            name=name,
            detached=detached,
            label_selectors=label_selectors,
            may_wait=may_wait,
        )

    def placement_group_ready(self, group_id: int) -> AnyRef:
        return self._groups.ready(group_id)

    def remove_placement_group(self, group_id: int) -> None:
        self._groups.remove(group_id)

    def placement_groups(self) -> list[Row]:
        return self._groups.rows()

    # -- the machine

    def nodes(self) -> list[Row]:
        self._connection.check()
        return [with_both_spellings(row) for row in ray.nodes()]

    def draining_nodes(self) -> Mapping[str, float | None]:
        return self._state(cluster_state.draining_nodes)

    def cluster_resources(self) -> dict[str, float]:
        self._connection.check()
        return dict(ray.cluster_resources())

    def available_resources(self) -> dict[str, float]:
        self._connection.check()
        return dict(ray.available_resources())

    def available_resources_per_node(self) -> dict[str, dict[str, float]]:
        return self._state(state_tables.available_resources_per_node)

    def request_resources(
        self,
        *,
        num_cpus: int | None,
        bundles: Sequence[Mapping[str, float]],
        label_selectors: Sequence[Selector],
    ) -> None:
        self._connection.check()
        ray.autoscaler.sdk.request_resources(
            num_cpus=num_cpus,
            bundles=[dict(bundle) for bundle in bundles] or None,
            bundle_label_selectors=[dict(each) for each in label_selectors] or None,
        )

    def runtime_info(self) -> RuntimeInfo:
        return cluster_state.runtime_info(self._environment)

    def is_cancelled(self) -> bool:
        return bool(ray.get_runtime_context().is_canceled())

    def actors(self, limit: int = LISTED) -> ActorListing:
        return self._state(cluster_state.actors, limit)

    def tasks(self, limit: int = LISTED) -> TaskListing:
        return self._state(cluster_state.tasks, limit)

    def state(
        self, resource: StateResource, filters: Sequence[Filter] = (), limit: int = LISTED
    ) -> StateListing:
        return self._state(state_tables.listing, resource, tuple(filters), limit)

    def timeline(self) -> list[Row]:
        return self._state(cluster_state.timeline)

    def _state(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Call a function of `cluster_state`."""
        self._connection.check()
        return function(*arguments)

    def statistics(self) -> Mapping[str, Statistics]:
        handles_here = ClusterStatistics(
            actors_and_streams=handles.count(),
            waiting_for_items=self._items.waiting,
            removed_groups=self._groups.removed,
        )
        return {"handles": handles_here}

    def shutdown(self) -> None:
        self._connection.close()
        self._items.close()
        self._disconnect()

    def abandon_after_fork(self) -> None:
        # Only the parent may disconnect: this process's exit must not shut down Ray.
        atexit.unregister(ray.shutdown)

    # -- parts

    def _actor(self, actor_id: int) -> RayObject:
        actor = handles.find(actor_id)
        if actor is None:
            context = ray.get_runtime_context()
            if cluster_state.is_worker() and context.get_actor_id() == f"{actor_id:032x}":
                return context.current_actor
            raise RuntimeError(
                f"the actor {actor_id:032x} is not known in this process: use a handle that "
                f"`.remote()` or `get_actor` returned"
            )
        return actor

    def _placed(self, options: TaskOptions | ActorOptions, submit: AnyFunction) -> AnyFunction:
        group = options.placement_group
        return submit if group is None else self._groups.guarded(group.id, submit)

    def _submitter(
        self, method: RayObject, keywords: Keywords
    ) -> Callable[[list[object], Kwargs], RayObject]:
        """Return a function that calls one of Ray's actor methods with these options."""
        return functools.partial(method._remote, **keywords)

    def _check_demand(
        self, demand: Mapping[str, float], options: TaskOptions | ActorOptions, what: str
    ) -> None:
        if not self._may_grow():
            selectors = alternatives(options.label_selector, options.fallback_strategy)
            feasibility.check_demand(demand, ray.nodes(), what, *selectors)

    def _own_environment(self, options: TaskOptions | ActorOptions) -> runtime_env.Env | None:
        if not options.runtime_env:
            return None
        # Ray merges a task's `env_vars` into the program's, but replaces all other fields.
        merged = runtime_env.merge(self._environment, options.runtime_env, may_install=True)
        return ray_options.uploaded_environment(merged, self.session_directory)

    def _submission_error(
        self, error: Exception, args: Args, kwargs: Kwargs, name: str
    ) -> BaseException:
        if not isinstance(error, ray.exceptions.RayError) and isinstance(
            error, (TypeError, AttributeError, pickle.PicklingError)
        ):
            # Raises an error that names the unpicklable argument.
            serialization.pack_call(args, kwargs, function_name=name)
        return translated(error)


def _ready(ray_refs: Collection[RayObject]) -> list[RayObject]:
    ready: list[RayObject] = ray.wait(
        list(ray_refs), num_returns=len(ray_refs), timeout=0, fetch_local=False
    )[0]
    return ready


def _submitted(result: RayObject) -> Submitted:
    if isinstance(result, ray.ObjectRef):
        return ClusterRef(result)
    if isinstance(result, list):
        return [ClusterRef(one) for one in result]
    return None if result is None else handles.stream(result)


def _record_key(actor_id: int) -> bytes:
    return f"actor:{actor_id:032x}".encode()


def _read_record(actor_id: int, timeout_s: float = 0.0) -> ActorRecord | None:
    """Read the record of a named actor; None if its creator stores none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        data = internal_kv._internal_kv_get(_record_key(actor_id), namespace=_KV_NAMESPACE)
        if data is not None:
            record: ActorRecord = serialization.unpack(data)
            return record
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.02)
