"""`GrpcServer`: gRPC clients of a proxy. grpcio's asyncio server runs on the proxy's event loop.

The methods of the services go to the ingress of the application that the metadata `application`
names (not needed while there is only one), by the proxy's link, like HTTP requests: queues, limits,
deadlines and resends are the same. The proxy itself answers `ray.serve.RayServeAPIService` and
server reflection.

Status codes: NOT_FOUND for an unknown application, DEADLINE_EXCEEDED after the deadline of the
client or of `gRPCOptions`, RESOURCE_EXHAUSTED for a full queue, UNAVAILABLE for a deployment that
failed or a replica that died, INTERNAL for an exception, or the code that user code set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from time import perf_counter
from typing import Any

from syncline.optional import load
from syncline.records import dataclass
from syncline.serve.grpc_util import REQUEST_ID
from syncline.serve.proxy.grpc_calls import GrpcCall
from syncline.serve.proxy.grpc_services import ServiceMethod, load_services
from syncline.serve.proxy.routes import RouteTable
from syncline.serve.proxy.server import RequestIds
from syncline.serve.proxy.statistics import LatencyHistogram
from syncline.serve.proxy_options import gRPCOptions
from syncline.serve.routing.link import Link
from syncline.serve.wire.grpc_frames import Code, GrpcHead, GrpcStatus
from syncline.serve.wire.routes import ApplicationRoute

logger = logging.getLogger("syncline.serve")

SERVICE = "ray.serve.RayServeAPIService"
"""The service of the proxy itself; `generated.serve_pb2` has its messages."""
_LARGEST_MESSAGE = 2**31 - 1
_LONGEST_REQUEST_ID = 128
_PING = f"Ping /{SERVICE}/ListApplications for available applications."
_STARTING = "Starting: the route table has not arrived yet."
_DRAINING = "This node is being drained."

GrpcObserver = Callable[[GrpcCall, str, float], None]
"""`observer(call, name of the status code, seconds)`, called after each call."""


@dataclass(frozen=True, kw_only=True)
class GrpcMethodStatistics:
    """Calls of one method of one application."""

    app: str
    """Empty for calls without an application."""
    method: str
    """`/package.Service/Method`."""
    by_code: dict[str, int]
    """Number of ended calls by name of the status code."""
    latency_sum_s: float
    latency_buckets: dict[int, int]
    """See `LatencyHistogram.buckets`."""


@dataclass(frozen=True, kw_only=True)
class GrpcStatistics:
    """State of the gRPC side of a proxy at one moment."""

    ongoing_calls: int
    methods: tuple[GrpcMethodStatistics, ...]


class _Counts:
    def __init__(self) -> None:
        self.by_code: dict[str, int] = {}
        self.latency = LatencyHistogram()


class GrpcServer:
    """Used on the proxy's event loop."""

    def __init__(
        self,
        link: Link,
        routes: RouteTable,
        options: gRPCOptions,
        *,
        host: str,
        clock: Callable[[], float],
        largest_message: int = _LARGEST_MESSAGE,
    ) -> None:
        """`clock` is the clock of the link's deadlines.

        Raises ImportError if grpcio is not installed; ImportError, AttributeError, TypeError or
        ValueError for wrong `grpc_servicer_functions`.
        """
        self._grpc = _load("grpc")
        self._aio = _load("grpc.aio")
        self._codes = {code.value[0]: code for code in self._grpc.StatusCode}
        self._link = link
        self._routes = routes
        self._options = options
        self._host = host
        self._clock = clock
        self._largest_message = min(largest_message, _LARGEST_MESSAGE)
        self._methods = load_services(options.grpc_servicer_functions)
        self._is_draining = False
        self._server: Any = None
        self._request_ids = RequestIds()
        self._ongoing = 0
        self._counts: dict[tuple[str, str], _Counts] = {}
        self.address: tuple[str, int] | None = None
        """Host and port; None before the start."""
        self.on_call_done: GrpcObserver | None = None

    async def start(self) -> tuple[str, int]:
        """Listen; return the address. Raises OSError if the port is taken."""
        limit = self._largest_message
        server = self._server = self._aio.server(
            options=[
                ("grpc.so_reuseport", 0),  # a port in use is an error, not a second server
                ("grpc.max_receive_message_length", limit),
                ("grpc.max_send_message_length", _LARGEST_MESSAGE),
            ]
        )
        server.add_generic_rpc_handlers(self._handlers())
        if self._options.enable_reflection:
            self._enable_reflection(server)
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            port: int = server.add_insecure_port(f"{host}:{self._options.port}")
        except RuntimeError as error:
            raise OSError(
                f"gRPC cannot listen on {host}:{self._options.port}: {error}. Choose another port "
                "with `gRPCOptions(port=...)`, or 0 for a free one."
            ) from None
        await server.start()
        self.address = self._host, port
        return self.address

    def drain(self) -> None:
        """Report that this proxy will stop; calls continue."""
        self._is_draining = True

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, and cancel the calls that have not ended after `grace_s` seconds."""
        self._is_draining = True
        if self._server is not None:
            await self._server.stop(grace_s)

    def statistics(self) -> GrpcStatistics:
        """Return the current counts."""
        return GrpcStatistics(
            ongoing_calls=self._ongoing,
            methods=tuple(
                GrpcMethodStatistics(
                    app=app,
                    method=method,
                    by_code=dict(counts.by_code),
                    latency_sum_s=counts.latency.sum_s,
                    latency_buckets=counts.latency.buckets(),
                )
                for (app, method), counts in self._counts.items()
            ),
        )

    # -- handlers

    def _handlers(self) -> list[Any]:
        unary = self._grpc.unary_unary_rpc_method_handler
        services: dict[str, dict[str, Any]] = {}
        for method in self._methods.values():
            services.setdefault(method.service, {})[method.name] = self._handler(method)
        services[SERVICE] = {
            "Healthz": unary(self._healthz),
            "ListApplications": unary(self._list_applications),
        }
        make = self._grpc.method_handlers_generic_handler
        return [make(service, handlers) for service, handlers in services.items()]

    def _handler(self, method: ServiceMethod) -> Any:
        """Return grpcio's handler; without serializers, messages are bytes."""

        async def answer(request: object, context: object) -> bytes:
            return await self._answer(method, request, context)

        async def stream(request: object, context: object) -> AsyncIterator[bytes]:
            async for message in self._stream(method, request, context):
                yield message

        kinds = self._grpc
        if method.streams_request:
            if method.streams_response:
                return kinds.stream_stream_rpc_method_handler(stream)
            return kinds.stream_unary_rpc_method_handler(answer)
        if method.streams_response:
            return kinds.unary_stream_rpc_method_handler(stream)
        return kinds.unary_unary_rpc_method_handler(answer)

    def _enable_reflection(self, server: object) -> None:
        reflection = _load("grpc_reflection.v1alpha.reflection")
        services = sorted({method.service for method in self._methods.values()})
        reflection.enable_server_reflection([*services, reflection.SERVICE_NAME], server)

    async def _healthz(self, request: bytes, context: object) -> bytes:
        problem = self._problem()
        if problem is not None:
            self._set_status(context, GrpcStatus(int(Code.UNAVAILABLE), problem))
        return _texts_message([problem or "success"])

    async def _list_applications(self, request: bytes, context: object) -> bytes:
        problem = self._problem()
        if problem is not None:
            self._set_status(context, GrpcStatus(int(Code.UNAVAILABLE), problem))
        return _texts_message(sorted(self._routes.applications))

    def _problem(self) -> str | None:
        if self._is_draining:
            return _DRAINING
        return None if self._routes.is_ready else _STARTING

    # -- calls

    async def _answer(self, method: ServiceMethod, request: object, context: Any) -> bytes:
        call = self._start(method, request, context)
        if call is None:
            return b""
        with _Ending(self, call, method, context):
            async with _sending(call, method, request):
                message = await call.reply()
            if call.compression is not None:
                context.set_compression(self._grpc.Compression(call.compression))
            return message

    async def _stream(
        self, method: ServiceMethod, request: object, context: Any
    ) -> AsyncIterator[bytes]:
        call = self._start(method, request, context)
        if call is None:
            return
        with _Ending(self, call, method, context):
            async with _sending(call, method, request):
                is_first = True
                async for message in call.replies():
                    if is_first and call.compression is not None:
                        context.set_compression(self._grpc.Compression(call.compression))
                    is_first = False
                    yield message

    def _start(self, method: ServiceMethod, request: Any, context: Any) -> GrpcCall | None:
        """Submit a call; return None without an application for it."""
        metadata = [(key, value) for key, value in context.invocation_metadata() or ()]
        sent = {key: value for key, value in metadata if isinstance(value, str)}
        request_id = self._request_id(sent)
        application = self._application(sent.get("application", ""))
        if isinstance(application, GrpcStatus):
            context.set_trailing_metadata(((REQUEST_ID, request_id),))
            code = self._set_status(context, application)
            self._count("", method.path, code, 0.0)
            return None
        limits = [self._options.request_timeout_s, context.time_remaining()]
        timeout_s = min((each for each in limits if each is not None), default=None)
        head = GrpcHead(
            method=method.name,
            request_id=request_id,
            timeout_s=timeout_s,
            multiplexed_model_id=sent.get("multiplexed_model_id", ""),
            session_id=sent.get("session_id", ""),
            app=application.name,
            service_method=method.path,
            streams_request=method.streams_request,
            streams_response=method.streams_response,
            deserializer=method.deserializer,
            metadata=metadata,
            peer=context.peer(),
            auth_context={key: list(each) for key, each in context.auth_context().items()},
        )
        ingress = application.ingress
        call = GrpcCall(self._link, ingress, head, b"" if method.streams_request else request)
        router = self._link.route_of(ingress)
        call.may_repeat = router is not None and router.route.idempotent
        if timeout_s is not None:
            call.deadline = self._clock() + timeout_s
        self._link.submit(call)
        return call

    def _application(self, name: str) -> ApplicationRoute | GrpcStatus:
        if not self._routes.is_ready:
            return GrpcStatus(int(Code.UNAVAILABLE), _STARTING)
        applications = self._routes.applications
        if name in applications:
            return applications[name]
        if len(applications) == 1:
            return next(iter(applications.values()))
        problem = f"Application '{name}' not found." if name else "Application metadata not set."
        return GrpcStatus(int(Code.NOT_FOUND), f"{problem} {_PING}")

    def _request_id(self, sent: dict[str, str]) -> str:
        id = sent.get(REQUEST_ID, "")
        if 0 < len(id) <= _LONGEST_REQUEST_ID and id.isprintable():
            return id
        return self._request_ids.new()

    def _set_status(self, context: Any, status: GrpcStatus) -> str:
        """Set the status of an answer; return the name of its code."""
        if status.code is not None:
            context.set_code(self._codes[status.code])
        if status.details:
            context.set_details(status.details)
        name: str = self._codes[status.code or 0].name
        return name

    def _count(self, app: str, method: str, code: str, seconds: float) -> None:
        counts = self._counts.get((app, method))
        if counts is None:
            counts = self._counts[app, method] = _Counts()
        counts.by_code[code] = counts.by_code.get(code, 0) + 1
        counts.latency.add(seconds)

    def _ended(self, call: GrpcCall, method: ServiceMethod, code: str, seconds: float) -> None:
        self._count(call.app, method.path, code, seconds)
        if self.on_call_done is not None:
            self.on_call_done(call, code, seconds)


class _Ending:
    """Ends a call: sends its status to the client, or tells the replica that the client is gone."""

    def __init__(
        self, server: GrpcServer, call: GrpcCall, method: ServiceMethod, context: Any
    ) -> None:
        self._server = server
        self._call = call
        self._method = method
        self._context = context
        self._began = perf_counter()
        server._ongoing += 1

    def __enter__(self) -> None:
        """Nothing: the call has been submitted."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        call, server = self._call, self._server
        call.close()
        server._ongoing -= 1
        code = Code.CANCELLED.name
        if kind is None:
            status = call.status
            metadata = status.trailing_metadata or ((REQUEST_ID, call.request_id),)
            self._context.set_trailing_metadata(tuple((key, value) for key, value in metadata))
            code = server._set_status(self._context, status)
        server._ended(call, self._method, code, perf_counter() - self._began)


class _sending:
    """Sends the messages of a streaming client in the background."""

    def __init__(self, call: GrpcCall, method: ServiceMethod, request: Any) -> None:
        self._call = call
        self._request: AsyncIterator[bytes] | None = request if method.streams_request else None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        if self._request is not None:
            self._task = asyncio.ensure_future(self._call.send_messages(self._request))
            self._task.add_done_callback(_retrieve)

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()


def _load(module: str) -> Any:
    return load(module, purpose="The gRPC server of serve", install="syncline[serve-grpc]")


def _texts_message(texts: Iterable[str]) -> bytes:
    """Return a protobuf message whose field 1 has these texts.

    Both responses of the proxy's own service are of this form, so that no proxy loads protobuf.
    """
    encoded = bytearray()
    for text in texts:
        data = text.encode()
        encoded.append(0x0A)  # field 1, with a length
        length = len(data)
        while length > 0x7F:
            encoded.append(length & 0x7F | 0x80)
            length >>= 7
        encoded.append(length)
        encoded += data
    return bytes(encoded)


def _retrieve(task: asyncio.Task[None]) -> None:
    """Take the error of a stream that the client broke off; its call is cancelled as well."""
    if not task.cancelled():
        task.exception()
