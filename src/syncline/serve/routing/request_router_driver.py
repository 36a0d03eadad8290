"""`RequestRouterDriver`: runs the custom request router of one deployment in one process.

It asks the user's class about each call that its `CustomRouter` names, on an event loop: the link's
own, or that of a thread in programs. The answer goes back under the rules of the link.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from syncline.core import serialization
from syncline.core.tracebacks import user_traceback
from syncline.serve.context import ReplicaID
from syncline.serve.exceptions import RayServeException
from syncline.serve.request_router import (
    FIFOMixin,
    PendingRequest,
    RequestMetadata,
    RequestRouter,
    RunningReplica,
)
from syncline.serve.routing.custom_router import AskingPolicy, CustomRouter
from syncline.serve.routing.router import Call, Instruction
from syncline.serve.wire.frames import Kind, decode_request
from syncline.serve.wire.grpc_frames import decode_head
from syncline.serve.wire.routes import DeploymentRoute, ReplicaRoute
from syncline.serve.wire.values import read_meta, unpack_call

if TYPE_CHECKING:
    from syncline.serve.config import RequestRouterConfig

logger = logging.getLogger("syncline.serve")

_REMEMBERED_MODELS = 256
"""Models of a replica that are remembered."""


class Cancellable(Protocol):
    """A running coroutine."""

    def cancel(self) -> object:
        """Cancel it."""


class TaskStarter(Protocol):
    """The side of a link that a driver uses."""

    def start_task(self, work: Coroutine[object, object, None]) -> Cancellable:
        """Run a coroutine."""

    def run(self, action: Callable[[], object]) -> None:
        """Call `action` under the rules of the link."""

    def decide(
        self, driver: RequestRouterDriver, step: Callable[[float], list[Instruction]]
    ) -> None:
        """Execute a step of the driver's router."""


class _Members(NamedTuple):
    """The replicas at one moment; a value, because the user's class runs in another thread."""

    version: int
    replicas: tuple[ReplicaRoute, ...]
    max_ongoing_requests: int


class RequestRouterDriver:
    """The user's request router and its tasks. Methods are called under the rules of the link."""

    def __init__(self, link: TaskStarter, route: DeploymentRoute, node_id: str) -> None:
        self.deployment = route.id
        self._link = link
        self._node_id = node_id
        self._failure: Exception | None = None
        policy = AskingPolicy()
        self._config: RequestRouterConfig | None = None
        try:
            assert route.request_router is not None
            config = self._config = serialization.unpack(route.request_router)
            policy = _policy(config)
        except Exception as error:  # of the user's module
            self._failure = self._error("cannot be loaded", error)
        self.router = CustomRouter(route, policy=policy, observer=self)
        """The router that asks."""
        self._tasks: dict[int, Cancellable] = {}
        self._models: dict[str, OrderedDict[str, None]] = {}  # replica id -> models sent to it
        # Used by the tasks only:
        self._user: RequestRouter | None = None
        self._version = -1
        self._replicas: dict[str, RunningReplica] = {}

    def ask(self, call: Call) -> None:
        """Ask which replica should get a call."""
        request = call.pending_request
        if request is None:
            request = call.pending_request = _pending_request(call)
        self._tasks[call.call_id] = self._link.start_task(
            self._ask(call.call_id, request, self._members())
        )

    def close(self) -> None:
        """Cancel the questions."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    # -- RouterObserver

    def sent(self, call: Call, replica_id: str) -> None:
        """Remember the model, and tell the user's class."""
        if call.model_id:
            models = self._models.setdefault(replica_id, OrderedDict())
            models[call.model_id] = None
            models.move_to_end(call.model_id)
            if len(models) > _REMEMBERED_MODELS:
                models.popitem(last=False)
        request = call.pending_request
        if request is not None and self._overrides("on_request_routed"):
            id = self._replica_id(replica_id)
            self._tell(lambda user: user.on_request_routed(request, id, None))

    def completed(self, call: Call, replica_id: str) -> None:
        """Tell the user's class."""
        request = call.pending_request
        if request is not None and self._overrides("on_request_completed"):
            id = self._replica_id(replica_id)
            internal_id = request.metadata.internal_request_id
            self._tell(lambda user: user.on_request_completed(id, internal_id))

    def lost(self, replica_id: str) -> None:
        """Tell the user's class."""
        self._models.pop(replica_id, None)
        if self._overrides("on_replica_actor_died"):
            id = self._replica_id(replica_id)
            self._tell(lambda user: user.on_replica_actor_died(id))

    # -- under the rules of the link

    def _members(self) -> _Members:
        route = self.router.route
        known = {replica.replica_id: replica for replica in route.replicas}
        return _Members(
            self.router.members_version,
            tuple(known[id] for id in self.router.members() if id in known),
            route.max_ongoing_requests,
        )

    def _deliver(self, call_id: int, result: list[list[str]] | Exception) -> None:
        self._tasks.pop(call_id, None)
        if isinstance(result, Exception):
            self._link.decide(self, partial(self.router.choice_failed, call_id, result))
        else:
            self._link.decide(self, partial(self.router.chosen, call_id, result))

    def _overrides(self, hook: str) -> bool:
        user = self._user
        return user is not None and getattr(type(user), hook) is not getattr(RequestRouter, hook)

    def _tell(self, action: Callable[[RequestRouter], None]) -> None:
        self._link.start_task(self._run_hook(action))

    def _replica_id(self, replica_id: str) -> ReplicaID:
        return ReplicaID(unique_id=replica_id, deployment_id=self.deployment)

    # -- on the event loop

    async def _ask(self, call_id: int, request: PendingRequest, members: _Members) -> None:
        result: list[list[str]] | Exception
        try:
            if self._failure is not None:
                raise self._failure
            user = self._user
            if user is None:
                user = self._user = self._make()
            self._update(user, members)
            result = _ids(await _awaited(user.choose_replicas([*self._replicas.values()], request)))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            result = error if error is self._failure else self._error("failed", error)
        self._link.run(partial(self._deliver, call_id, result))

    async def _run_hook(self, action: Callable[[RequestRouter], None]) -> None:
        try:
            assert self._user is not None
            action(self._user)
        except Exception as error:
            self._error("failed in a hook", error)

    def _make(self) -> RequestRouter:
        """Return an instance of the user's class; every call fails if that raises."""
        config = self._config
        assert config is not None
        try:
            user: RequestRouter = config.load()(
                deployment_id=self.deployment,
                self_node_id=self._node_id,
                prefer_local_node_routing=True,
                initial_backoff_s=config.initial_backoff_s,
                backoff_multiplier=config.backoff_multiplier,
                max_backoff_s=config.max_backoff_s,
            )
            user.initialize_state(**config.request_router_kwargs)
        except Exception as error:
            self._failure = self._error("cannot be constructed", error)
            raise self._failure from error
        return user

    def _update(self, user: RequestRouter, members: _Members) -> None:
        if members.version <= self._version:
            return
        self._version = members.version
        before, self._replicas = self._replicas, {}
        for route in members.replicas:
            id = route.replica_id
            replica = before.get(id) or RunningReplica(
                replica_id=self._replica_id(id),
                node_id=route.address.node_id,
                max_ongoing_requests=members.max_ongoing_requests,
                count=partial(self.router.count, id),
                models=partial(self._models_of, id),
            )
            replica.max_ongoing_requests = members.max_ongoing_requests
            replica.routing_stats = route.routing_stats
            self._replicas[id] = replica
        user.update_replicas([*self._replicas.values()])

    def _models_of(self, replica_id: str) -> set[str]:
        return set(self._models.get(replica_id, ()))

    def _error(self, what: str, error: BaseException) -> RayServeException:
        name = "of an unknown class" if self._config is None else _name(self._config)
        logger.error(
            "The request router %s of %s %s:\n%s",
            name,
            self.deployment,
            what,
            user_traceback(error).rstrip(),
        )
        failure = RayServeException(
            f"the request router {name} of {self.deployment} {what}: {type(error).__name__}: "
            f"{error}"
        )
        failure.__cause__ = error
        return failure


def _policy(config: RequestRouterConfig) -> AskingPolicy:
    cls = config.load()
    if not (isinstance(cls, type) and issubclass(cls, RequestRouter)):
        raise TypeError(f"{cls!r} is no subclass of syncline.serve.request_router.RequestRouter")
    return AskingPolicy(
        is_fifo=issubclass(cls, FIFOMixin),
        most_asks=cls.max_num_routing_tasks_cap,
        initial_backoff_s=config.initial_backoff_s,
        backoff_multiplier=config.backoff_multiplier,
        max_backoff_s=config.max_backoff_s,
    )


def _name(config: RequestRouterConfig) -> str:
    cls = config.request_router_class
    return cls if isinstance(cls, str) else getattr(cls, "__qualname__", repr(cls))


async def _awaited(value: object) -> Any:
    return await value if inspect.isawaitable(value) else value


def _ids(groups: object) -> list[list[str]]:
    """Return the ids in the result of `choose_replicas`; raise TypeError for another type."""
    if groups is None:
        return []
    if not isinstance(groups, Sequence):
        raise _wrong_result(groups)
    ids = []
    for group in groups:
        if not isinstance(group, (list, tuple, set, frozenset)):
            raise _wrong_result(groups)
        for replica in group:
            if not isinstance(replica, RunningReplica):
                raise _wrong_result(groups)
        ids.append([replica.replica_id.unique_id for replica in group])
    return ids


def _wrong_result(result: object) -> TypeError:
    return TypeError(f"`choose_replicas` returned {result!r}: return a list of lists of replicas")


def _pending_request(call: Call) -> PendingRequest:
    """Return a call as a request router sees it; its arguments are unpickled on first use."""
    facts: dict[str, Any] = {
        "internal_request_id": f"{call.call_id:016x}",
        "app_name": call.deployment.app,
        "multiplexed_model_id": call.model_id,
        "session_id": call.session_id,
    }
    if call.kind == Kind.CALL:
        meta = read_meta(call.parts)
        facts |= {
            "request_id": meta.request_id,
            "call_method": meta.method,
            "route": meta.route,
            "is_streaming": meta.stream,
        }
        return PendingRequest(metadata=RequestMetadata(**facts), load=partial(_arguments, call))
    start = b"".join(call.parts[:2])
    if call.kind == Kind.HTTP:
        http, _ = decode_request(start)
        facts |= {"request_id": http.request_id, "call_method": "", "route": http.route}
        facts["protocol"] = "HTTP"
    else:
        head, _ = decode_head(start)
        facts |= {
            "request_id": head.request_id,
            "call_method": head.method,
            "route": head.service_method,
            "is_streaming": head.streams_response,
            "protocol": "GRPC",
        }
    return PendingRequest(metadata=RequestMetadata(**facts))


def _arguments(call: Call) -> tuple[tuple[object, ...], dict[str, Any]]:
    if not call.parts:  # the call has ended
        return (), {}
    _, args, kwargs = unpack_call(b"".join(call.parts))
    return args, kwargs
