"""`Engine` on Ray Core: each method is one request to Ray, with arguments, results and errors in
syncline's terms.
"""

from __future__ import annotations

import atexit
import functools
import pickle
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
from ray.experimental import internal_kv

from syncline.core import errors, runtime_env, serialization
from syncline.core.cluster import arguments, feasible, handles, listings, timeline
from syncline.core.cluster import facts as facts_of
from syncline.core.cluster.actors import await_end, entry_of, remote_class
from syncline.core.cluster.errors import timed_out, translated
from syncline.core.cluster.groups import Groups
from syncline.core.cluster.handles import ClusterRef, ReadyRef, ray_ref
from syncline.core.cluster.streams import Streams
from syncline.core.cluster.tasks import Kind, remote_function
from syncline.core.cluster.watch import Guard
from syncline.core.engine import (
    LISTED,
    ActorListing,
    ActorRecord,
    Engine,
    RuntimeFacts,
    Submitted,
    TaskListing,
)
from syncline.core.options import ActorOptions, TaskOptions
from syncline.core.plans import ActorPlan, CallPlan, TaskPlan
from syncline.core.refs import Hold, ObjectRef, ObjectRefGenerator

RECORD_WAIT_S = 10.0
"""How long to wait for what a named actor's maker tells of it, which happens right after its name
is taken.
"""
_KV_NAMESPACE = b"syncline"


class ClusterEngine(Engine):
    """See `Engine`. One object a process: in the program's it may end the connection, in a worker
    it never does.
    """

    def __init__(
        self,
        *,
        address: str,
        environment: Mapping[str, Any],
        may_grow: Callable[[], bool],
        guard: Guard,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """`may_grow`: whether nodes come when they are needed; `end`: closes the connection."""
        self._address = address
        self._environment = dict(environment)
        self._may_grow = may_grow
        self._guard = guard
        self._end = end
        self._streams = Streams()
        self._groups = Groups(may_grow=may_grow)

    @property
    def session_directory(self) -> Path:
        node = ray._private.worker._global_node
        return Path(node.get_session_dir_path() if node is not None else ".")

    @property
    def is_local_mode(self) -> bool:
        return False

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

    def submit_task(
        self, plan: TaskPlan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted:
        self._guard.check()
        if plan.prepared_for is not self:
            self._prepare_task(plan)
        positional, keyword = handles.with_ray_refs(args, kwargs)
        try:
            made = plan.prepared(*positional, **keyword)
        except Exception as error:
            raise self._refusal(error, args, kwargs, plan.name) from None
        return _submitted(made)

    def _prepare_task(self, plan: TaskPlan) -> None:
        options = plan.options
        if options.placement_group is None:
            self._check_demand(options.resources_needed(), options, f"the task {plan.name}")
        kind: Kind = (
            options.num_returns if options.num_returns in ("streaming", "dynamic") else "plain"
        )
        function = remote_function(plan.function, kind, options.max_calls)
        keywords = arguments.task_options(options, plan.name, self._own_environment(options))
        plan.prepared = self._placed(options, function.options(**keywords).remote)
        plan.prepared_for = self

    def create_actor(
        self, plan: ActorPlan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[ActorRecord, Hold]:
        self._guard.check()
        options = plan.options
        if plan.prepared_for is not self:
            if options.placement_group is None:
                demand = (
                    options.resources_to_place()
                    if arguments.needs_cpu_to_start(options)
                    else options.resources_needed()
                )
                self._check_demand(demand, options, f"the actor {plan.name}")
            cls = remote_class(plan)
            keywords = arguments.actor_options(
                options, self._own_environment(options), is_async=plan.is_async
            )
            plan.prepared = self._placed(options, cls.options(**keywords).remote)
            plan.prepared_for = self
        positional, keyword = handles.with_ray_refs(args, kwargs)
        try:
            actor = plan.prepared(*positional, **keyword)
        except Exception as error:
            raise self._refusal(error, args, kwargs, f"{plan.name}.__init__") from None
        hold = handles.actor_hold(actor)
        if options.get_if_exists and (found := _read_record(hold.id)) is not None:
            return found, hold
        record = ActorRecord(
            actor_id=hold.id, class_name=plan.name, methods=plan.methods, groups=plan.groups
        )
        if options.name is not None:
            internal_kv._internal_kv_put(
                _record_key(hold.id), serialization.pack(record).data, namespace=_KV_NAMESPACE
            )
        return record, hold

    def submit_call(
        self, plan: CallPlan, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Submitted:
        self._guard.check()
        if plan.prepared_for is not self:
            self._prepare_call(plan)
        positional, keyword = handles.with_ray_refs(args, kwargs)
        try:
            made = plan.prepared(positional, keyword)
        except Exception as error:
            raise self._refusal(error, args, kwargs, plan.method) from None
        return _submitted(made)

    def _prepare_call(self, plan: CallPlan) -> None:
        entry = entry_of(self._actor(plan.actor_id), plan)
        first = entry.first
        submit = self._submitting(
            entry.method,
            arguments.call_options(plan.options, plan.name, ray_has_groups=not entry.has_loop),
        )

        def call(positional: list[Any], keyword: dict[str, Any]) -> Any:
            return submit([*first, *positional], keyword)

        plan.prepared = call
        plan.prepared_for = self

    def cancel(
        self, ref: ObjectRef[Any] | ObjectRefGenerator[Any], *, force: bool, recursive: bool
    ) -> None:
        target = handles.find(ref.id) if isinstance(ref, ObjectRefGenerator) else ray_ref(ref)
        if _ready(
            [ray_ref(ref)]
        ):  # told to cancel what has its result and is about to end, Ray ends the whole program
            return
        try:
            ray.cancel(target, force=force, recursive=recursive)
        except Exception as error:
            raise translated(error) from None

    def kill(self, actor_id: int, *, no_restart: bool) -> None:
        actor = self._actor(actor_id)
        ray.kill(actor, no_restart=no_restart)
        if no_restart:
            await_end(actor)

    def exit_actor(self) -> None:
        if not facts_of.is_worker() or ray.get_runtime_context().get_actor_id() is None:
            raise RuntimeError(
                "`exit_actor()` ends the actor whose method calls it, but this code is not part of an actor's method"
            )
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
                f"no living actor is named {name!r} in the namespace {where!r}; those with names are {', '.join(names) or 'none'}."
            ) from None
        hold = handles.actor_hold(actor)
        record = _read_record(hold.id, RECORD_WAIT_S)
        if record is None:
            raise ValueError(
                f"the actor {name!r} was not made by syncline, so its methods are not known here: use Ray's own `get_actor`."
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

    def put(self, value: Any) -> ObjectRef[Any]:
        self._guard.check()
        try:
            return ClusterRef(ray.put(value))
        except Exception as error:
            if not isinstance(error, ray.exceptions.RayError):
                serialization.pack(value)  # raises with the part of the value that is to blame
            raise translated(error) from None

    def get(self, refs: Sequence[ObjectRef[Any]], timeout_s: float | None) -> list[Any]:
        wanted = [ray_ref(ref) for ref in refs]
        several = set(wanted)

        def attempt(limit_s: float | None) -> list[Any] | None:
            try:
                return list(ray.get(wanted, timeout=limit_s))
            except ray.exceptions.GetTimeoutError as error:
                if isinstance(
                    error, ray.exceptions.RayTaskError
                ):  # the task's own wait, not this one
                    raise
                return None

        try:
            values = self._guard.patiently(
                attempt, lambda: len(_ready(several)) == len(several), timeout_s
            )
        except Exception as error:
            raise translated(error) from None
        if values is None:
            raise timed_out(
                errors.get_timeout(timeout_s or 0.0, len(several) - len(_ready(several)), len(refs))
            )
        return [
            True if type(ref) is ReadyRef else value
            for ref, value in zip(refs, values, strict=True)
        ]

    def wait(
        self,
        refs: Sequence[ObjectRef[Any]],
        *,
        num_returns: int,
        timeout_s: float | None,
        fetch_local: bool,
    ) -> tuple[list[ObjectRef[Any]], list[ObjectRef[Any]]]:
        wanted = [ray_ref(ref) for ref in refs]
        arrived: set[Any] = set()

        def arrive(number: int, limit_s: float | None) -> bool | None:
            arrived.update(
                ray.wait(wanted, num_returns=number, timeout=limit_s, fetch_local=fetch_local)[0]
            )
            return True if len(arrived) >= num_returns else None

        try:
            # Of those that are there Ray gives any, we the first ones: asking for all that are
            # costs no more than asking for some.
            if num_returns == len(wanted) or not arrive(len(wanted), 0):
                self._guard.patiently(
                    functools.partial(arrive, num_returns),
                    lambda: len(_ready(wanted)) >= num_returns,
                    timeout_s,
                )
        except Exception as error:
            raise translated(error) from None
        ready: list[ObjectRef[Any]] = []
        rest: list[ObjectRef[Any]] = []
        for ref, rays in zip(refs, wanted, strict=True):
            (ready if rays in arrived and len(ready) < num_returns else rest).append(ref)
        return ready, rest

    def next_item(
        self, generator: ObjectRefGenerator[Any], index: int, timeout_s: float | None
    ) -> ObjectRef[Any] | None:
        items = handles.find(generator.id)

        def attempt(limit_s: float | None) -> Any:
            item = items._next_sync(limit_s)
            return None if item.is_nil() else item

        try:
            item = self._guard.patiently(attempt, lambda: False, timeout_s)
        except StopIteration:
            return None
        if item is None:
            raise timed_out(
                f"item {index} of a generator did not come within {timeout_s:g} s; the generator goes on"
            )
        return ClusterRef(item)

    def on_value(
        self, ref: ObjectRef[Any], callback: Callable[[Any, BaseException | None], None]
    ) -> None:
        is_ready_ref = type(ref) is ReadyRef

        def tell(result: Any, held: ObjectRef[Any] = ref) -> None:
            if isinstance(result, ray.exceptions.RayError):
                callback(None, translated(result))
            else:
                callback(True if is_ready_ref else result, None)

        ray_ref(ref)._on_completed(tell)

    def on_item(
        self,
        generator: ObjectRefGenerator[Any],
        index: int,
        callback: Callable[[ObjectRef[Any] | None], None],
    ) -> None:
        def tell(item: Any) -> None:
            callback(None if item is None else ClusterRef(item))

        self._streams.next_item(handles.find(generator.id), tell)

    # -- placement groups

    def create_placement_group(
        self, bundles: Sequence[Mapping[str, float]], *, strategy: str, name: str, detached: bool
    ) -> int:
        return self._groups.create(bundles, strategy=strategy, name=name, detached=detached)

    def placement_group_ready(self, group_id: int) -> ObjectRef[Any]:
        return self._groups.ready(group_id)

    def remove_placement_group(self, group_id: int) -> None:
        self._groups.remove(group_id)

    def placement_groups(self) -> list[Mapping[str, Any]]:
        return self._groups.rows()

    # -- the machine

    def nodes(self) -> list[dict[str, Any]]:
        self._guard.check()
        return list(ray.nodes())

    def draining_nodes(self) -> Mapping[str, float | None]:
        self._guard.check()
        return facts_of.draining_nodes()

    def cluster_resources(self) -> dict[str, float]:
        self._guard.check()
        return dict(ray.cluster_resources())

    def available_resources(self) -> dict[str, float]:
        self._guard.check()
        return dict(ray.available_resources())

    def facts(self) -> RuntimeFacts:
        return facts_of.now(self._environment)

    def actors(self, limit: int = LISTED) -> ActorListing:
        self._guard.check()
        return listings.actors(limit)

    def tasks(self, limit: int = LISTED) -> TaskListing:
        self._guard.check()
        return listings.tasks(limit)

    def timeline(self) -> list[dict[str, Any]]:
        return timeline.events()

    def statistics(self) -> Mapping[str, Any]:
        return {
            "handles": handles.statistics(),
            "streams": self._streams.statistics(),
            "groups": self._groups.statistics(),
        }

    def shutdown(self) -> None:
        self._guard.close()
        self._streams.close()
        self._end()

    def abandon_after_fork(self) -> None:
        # The parent's connection is not this process's to end; without this, its exit would say
        # goodbye to the cluster.
        atexit.unregister(ray.shutdown)

    # -- parts

    def _actor(self, actor_id: int) -> Any:
        actor = handles.find(actor_id)
        if actor is None:
            context = ray.get_runtime_context()
            if facts_of.is_worker() and context.get_actor_id() == f"{actor_id:032x}":
                return context.current_actor
            raise RuntimeError(
                f"the actor {actor_id:032x} is not known in this process: use a handle that `.remote()` or `get_actor` gave"
            )
        return actor

    def _placed(
        self, options: TaskOptions | ActorOptions, submit: Callable[..., Any]
    ) -> Callable[..., Any]:
        group = options.placement_group
        return submit if group is None else self._groups.guarded(group.id, submit)

    def _submitting(
        self, method: Any, keywords: Mapping[str, Any]
    ) -> Callable[[list[Any], dict[str, Any]], Any]:
        """What calls one of Ray's methods of an actor with these options."""
        return functools.partial(method._remote, **keywords)

    def _check_demand(
        self, demand: Mapping[str, float], options: TaskOptions | ActorOptions, what: str
    ) -> None:
        if not self._may_grow():
            feasible.check_demand(demand, ray.nodes(), what, options.label_selector)

    def _own_environment(self, options: TaskOptions | ActorOptions) -> Mapping[str, Any] | None:
        if not options.runtime_env:
            return None
        # Ray lets a task's `env_vars` win over the program's, and takes every other field from the
        # task alone.
        merged = runtime_env.merge(self._environment, options.runtime_env, may_install=True)
        return arguments.fetched_environment(merged, self.session_directory)

    def _refusal(
        self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], name: str
    ) -> BaseException:
        if not isinstance(error, ray.exceptions.RayError) and isinstance(
            error, (TypeError, AttributeError, pickle.PicklingError)
        ):
            serialization.pack_call(
                args, kwargs, function_name=name
            )  # raises with the argument that is to blame
        return translated(error)


def _ready(ray_refs: Collection[Any]) -> list[Any]:
    """Those that are there already, wherever."""
    ready: list[Any] = ray.wait(
        list(ray_refs), num_returns=len(ray_refs), timeout=0, fetch_local=False
    )[0]
    return ready


def _submitted(made: Any) -> Submitted:
    if isinstance(made, ray.ObjectRef):
        return ClusterRef(made)
    if isinstance(made, list):
        return [ClusterRef(one) for one in made]
    return None if made is None else handles.stream(made)


def _record_key(actor_id: int) -> bytes:
    return f"actor:{actor_id:032x}".encode()


def _read_record(actor_id: int, timeout_s: float = 0.0) -> ActorRecord | None:
    """What the maker of a named actor told of it."""
    deadline = time.monotonic() + timeout_s
    while True:
        data = internal_kv._internal_kv_get(_record_key(actor_id), namespace=_KV_NAMESPACE)
        if data is not None:
            record: ActorRecord = serialization.unpack(data)
            return record
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.02)
