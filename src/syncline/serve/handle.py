"""`DeploymentHandle`: calls of a deployment from programs, tasks, actors and other replicas."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import copy_context
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

from syncline.core import engine as engines
from syncline.core.api import ObjectRef
from syncline.records import dataclass
from syncline.serve import tracing
from syncline.serve.context import RequestContext, request_context
from syncline.serve.exceptions import DeploymentUnavailableError
from syncline.serve.response import (
    DeploymentBroadcastResponse,
    DeploymentResponse,
    DeploymentResponseGenerator,
    HandleCall,
)
from syncline.serve.routing.link import Link
from syncline.serve.routing.process_link import link_to
from syncline.serve.routing.thread_link import ThreadLink
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.routes import DeploymentId
from syncline.serve.wire.values import CallMeta, pack_call
from syncline.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

T = TypeVar("T")

Serialization = Literal["cloudpickle", "pickle", "msgpack", "orjson"]

_PENDING = (DeploymentResponse, DeploymentResponseGenerator, ObjectRef)
"""Arguments that are replaced by their values."""
_ID_PREFIX = secrets.token_hex(8)
_count = itertools.count(1).__next__


@dataclass(frozen=True, kw_only=True)
class HandleOptions:
    """Options of the calls of a handle."""

    method_name: str = "__call__"
    multiplexed_model_id: str = ""
    """Model that the call needs; it goes to a replica that has loaded it."""
    session_id: str = ""
    """Calls of one session go to one replica."""
    stream: bool = False
    """True to call a generator and iterate over its items."""
    timeout_s: float | None = None
    """Seconds until the call, and the calls that it makes, are cancelled; None: no limit."""
    request_serialization: Serialization = "cloudpickle"
    """Accepted as in Ray; all values are pickled, arrays without a copy."""
    response_serialization: Serialization = "cloudpickle"
    """Accepted as in Ray, like `request_serialization`."""

    def __post_init__(self) -> None:
        for name in ("method_name", "multiplexed_model_id", "session_id"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"`{name}={value!r}` is a {type(value).__name__}: give text")
        if not isinstance(self.stream, bool):
            raise TypeError(f"`stream={self.stream!r}` is not a boolean: give True or False")
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise ValueError(f"`timeout_s={self.timeout_s}` is not positive: give seconds or None")
        for name in ("request_serialization", "response_serialization"):
            value = getattr(self, name)
            if value not in get_args(Serialization):
                known = ", ".join(get_args(Serialization))
                raise ValueError(f"`{name}={value!r}` is unknown: give one of {known}")


_OPTION_NAMES = frozenset(field.name for field in fields(HandleOptions))
_IGNORED_OPTIONS = frozenset({"_prefer_local_routing", "_by_reference"})


class DeploymentHandle(Generic[T]):
    """Calls the replicas of a deployment.

    `handle.remote(...)` calls `__call__`, `handle.method.remote(...)` another method. Handles can
    be pickled and used in any process of the program.
    """

    def __init__(
        self, deployment_name: str, app_name: str, options: HandleOptions | None = None
    ) -> None:
        self._id = DeploymentId(app_name, deployment_name)
        self._options = options or HandleOptions()

    @property
    def deployment_name(self) -> str:
        """Name of the deployment."""
        return self._id.name

    @property
    def app_name(self) -> str:
        """Name of the application."""
        return self._id.app

    def options(self, **options: Any) -> DeploymentHandle[T]:
        """Return a handle with other options (see `HandleOptions`).

        Raises TypeError for an unknown option or a wrong type, and ValueError for a wrong value.
        """
        unknown = options.keys() - _OPTION_NAMES - _IGNORED_OPTIONS
        if unknown:
            name = min(unknown)
            raise TypeError(
                f"`options()` of a handle has no option `{name}`."
                f"{did_you_mean(name, _OPTION_NAMES)} Options: {', '.join(sorted(_OPTION_NAMES))}."
            )
        known = {name: value for name, value in options.items() if name in _OPTION_NAMES}
        return DeploymentHandle(self._id.name, self._id.app, replace(self._options, **known))

    def remote(self, *args: object, **kwargs: object) -> Any:
        """Call the deployment and return a `DeploymentResponse`, possibly before the call begins.

        With `stream=True` the result is a `DeploymentResponseGenerator`. Responses and object
        references among the arguments (not inside them) are replaced by their values first. Raises
        TypeError for an argument that cannot be pickled.
        """
        options = self._options
        link, call = self._new_call(options.method_name)
        call.model_id = options.multiplexed_model_id
        call.session_id = options.session_id
        self._start(link, call, args, kwargs, stream=options.stream)
        if options.stream:
            return DeploymentResponseGenerator(call)
        return DeploymentResponse(call)

    def broadcast(
        self, method_name: str, *args: object, **kwargs: object
    ) -> DeploymentBroadcastResponse:
        """Call a method on all replicas that are currently running.

        The response raises DeploymentUnavailableError if no replica is running.
        """
        responses: list[DeploymentResponse[Any]] = []

        def call_all(link: Link, replica_ids: list[str]) -> None:
            for replica_id in replica_ids:
                _, call = self._new_call(method_name)
                call.pinned = replica_id
                self._start(link, call, args, kwargs, stream=False)
                responses.append(DeploymentResponse[Any](call))

        return DeploymentBroadcastResponse(self._with_replicas(call_all), responses)

    def _with_replicas(self, action: Callable[[Link, list[str]], None]) -> HandleCall:
        """Schedule `action` with the running replicas; return a call that ends after it."""
        link, listing = self._new_call("")
        context = copy_context()

        def act(replica_ids: list[str]) -> None:
            try:
                if not replica_ids:
                    raise DeploymentUnavailableError(self._id, "it has no running replica")
                context.run(action, link, replica_ids)
            except Exception as error:
                listing.on_failed(error)
            else:
                listing.on_frame(Kind.END, b"")

        link.run(partial(link.with_replicas, self._id, act))
        return listing

    def choose_replica(
        self, *_args: object, **_kwargs: object
    ) -> AbstractAsyncContextManager[ReplicaSelection]:
        """Choose a replica for a later `dispatch`, in an `async with` statement."""
        return self._choose_replica()

    @asynccontextmanager
    async def _choose_replica(self) -> AsyncIterator[ReplicaSelection]:
        chosen = ""

        def choose(link: Link, replica_ids: list[str]) -> None:
            nonlocal chosen
            loads = link.loads()[self._id][1]
            chosen = min(replica_ids, key=lambda id: loads.get(id, 0))

        listing = self._with_replicas(choose)
        await listing.wait_async()
        listing.value()  # raises its error
        yield ReplicaSelection(handle=self, replica_id=chosen)

    def dispatch(self, selection: ReplicaSelection, *args: object, **kwargs: object) -> Any:
        """Call the replica that `choose_replica` chose; like `remote`.

        Raises ValueError for a selection of another handle. The response raises
        ReplicaUnavailableError if the replica ends first.
        """
        if selection.handle._id != self._id:
            raise ValueError(
                f"the selection is of {selection.handle._id}, and this handle calls {self._id}"
            )
        options = selection.handle._options
        link, call = self._new_call(options.method_name)
        call.pinned = selection.replica_id
        self._start(link, call, args, kwargs, stream=options.stream)
        return (DeploymentResponseGenerator if options.stream else DeploymentResponse)(call)

    def __getattr__(self, name: str) -> DeploymentHandle[T]:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.options(method_name=name)

    def __repr__(self) -> str:
        return f"DeploymentHandle(deployment='{self._id.name}')"

    def __reduce__(self) -> Any:
        return DeploymentHandle, (self._id.name, self._id.app, self._options)

    # -- calls

    def _new_call(self, method: str) -> tuple[Link, HandleCall]:
        context = request_context.get()
        request_id = context.request_id if context is not None else f"{_ID_PREFIX}{_count():x}"
        link = link_to(self._id.app)
        return link, HandleCall(link, self._id, method, request_id, context)

    def _start(
        self,
        link: Link,
        call: HandleCall,
        args: tuple[object, ...],
        kwargs: dict[str, Any],
        *,
        stream: bool,
    ) -> None:
        if call.context is not None or self._options.timeout_s is not None:
            self._set_deadline(call)
        if (traces := tracing.current()) is not None:
            call.span, call.trace = traces.begin_call(self._id, call.method, call.request_id)
        values = (*args, *kwargs.values()) if kwargs else args
        pending = [value for value in values if isinstance(value, _PENDING)]
        if pending:
            submit = partial(self._submit, link, call, stream)
            _Arguments(call, args, kwargs, pending, submit).resolve()
        else:
            self._submit(link, call, stream, args, kwargs)

    def _set_deadline(self, call: HandleCall) -> None:
        limit = self._options.timeout_s
        deadline = None if limit is None else time.monotonic() + limit
        context = call.context
        if context is not None and context.deadline is not None:
            deadline = min(context.deadline, deadline or context.deadline)
        if deadline is not None:
            call.deadline = deadline
            call.timeout_s = limit or round(deadline - time.monotonic(), 3)

    def _submit(
        self,
        link: Link,
        call: HandleCall,
        stream: bool,
        args: tuple[object, ...],
        kwargs: dict[str, Any],
    ) -> None:
        context: RequestContext | None = call.context
        left = None if call.deadline is None else max(0.0, call.deadline - time.monotonic())
        meta = CallMeta(
            call.method,
            call.request_id,
            left,
            call.model_id,
            call.session_id,
            stream,
            self._id.app,
            context.route if context is not None else "",
            call.trace,
        )
        call.parts = pack_call(meta, args, kwargs)
        if isinstance(link, ThreadLink):
            link.submit(call)
        else:
            link.run(partial(link.submit, call))


@dataclass(frozen=True, kw_only=True)
class ReplicaSelection:
    """A replica that `choose_replica` chose."""

    handle: DeploymentHandle[Any]
    replica_id: str


class _Arguments:
    """Arguments of a call, some of which are values that do not exist yet."""

    def __init__(
        self,
        call: HandleCall,
        args: tuple[object, ...],
        kwargs: dict[str, Any],
        pending: list[Any],
        submit: Callable[[tuple[Any, ...], dict[str, Any]], None],
    ) -> None:
        for value in pending:
            if isinstance(value, DeploymentResponseGenerator):
                raise TypeError(
                    "a streaming response cannot be an argument: collect its items first"
                )
        self._call = call
        self._args = args
        self._kwargs = kwargs
        self._submit = submit
        self._pending = pending
        self._missing = len(pending)
        self._values: dict[int, object] = {}
        self._link = link_to(call.deployment.app)

    def resolve(self) -> None:
        """Submit the call when all values exist; fail it with the first error."""
        for value in self._pending:
            if isinstance(value, DeploymentResponse):
                value._call.call_back(partial(self._take_response, value))
            else:
                engine = engines.current_engine()
                engine.on_value(value, partial(self._take_on_link, id(value)))

    def _take_response(self, response: DeploymentResponse[Any]) -> None:
        try:
            value = response._call.value()
        except BaseException as error:
            self._take(id(response), None, error)
        else:
            self._take(id(response), value, None)

    def _take_on_link(self, key: int, value: object, error: BaseException | None) -> None:
        self._link.run(partial(self._take, key, value, error))

    def _take(self, key: int, value: object, error: BaseException | None) -> None:
        call = self._call
        if call.is_done:  # cancelled, or an earlier argument failed
            return
        self._values[key] = value
        self._missing -= 1
        if error is not None:
            call.on_failed(error)
        elif not self._missing:
            try:
                self._submit(
                    tuple(self._values.get(id(arg), arg) for arg in self._args),
                    {name: self._values.get(id(arg), arg) for name, arg in self._kwargs.items()},
                )
            except Exception as failure:  # a value that cannot be pickled
                call.on_failed(failure)
