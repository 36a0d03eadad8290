"""`Tracing`: OpenTelemetry spans of requests, with the names and attributes of Ray Serve.

The spans of a request, each the parent of the next: `proxy_http_request` in the proxy,
`replica_handle_request` in the replica of the ingress, and for each call of a handle
`route_to_replica` in the caller and `replica_handle_request` in the replica. The trace context
(W3C `traceparent`) of a client is continued; it travels to replicas in the headers of HTTP
requests and gRPC calls, and in `CallMeta.trace` for calls of handles.

A process without traces has no `Tracing`, and does not load OpenTelemetry. Proxies write no span
for gRPC calls and for requests without an application.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from time import perf_counter
from typing import Any, Protocol

from syncline.optional import load
from syncline.serve.context import replica_context
from syncline.serve.logging_config import TracingConfig
from syncline.serve.option_values import imported
from syncline.serve.wire.routes import DeploymentId

Headers = list[tuple[bytes, bytes]]
Carrier = dict[str, str]
"""Trace context as the headers `traceparent` and `tracestate`."""

FLUSH_S = 2.0
"""Seconds in which the last spans of a process can be exported."""
INSTALL = "syncline[serve-tracing]"
_NAMES: dict[str | bytes, str] = {
    name: text for text in ("traceparent", "tracestate") for name in (text, text.encode())
}


class ProxiedRequest(Protocol):
    """A request in a proxy."""

    method: str
    headers: Headers
    request_id: str
    replica_id: str
    deployment: DeploymentId
    started: float
    span: Any


class TracedCall(Protocol):
    """A call in a replica."""

    request_id: str
    route: str
    multiplexed_model_id: str
    received: float
    is_cancelled: bool

    async def run(self) -> None:
        """Handle the call; no exception leaves it."""

    def label(self) -> str:
        """Return the method of the user's class, or HTTP method and route."""

    def trace_carrier(self) -> Carrier | None:
        """Return the trace context of the caller; None without one."""

    def set_trace_carrier(self, carrier: Carrier) -> None:
        """Show the trace context of this call to libraries that read it from the request."""


class Tracing:
    """Creates the spans of one process.

    Args:
        config: Options. With an `exporter_import_path` the process gets a tracer provider with its
            span processors, unless the program has set a provider; without, the provider that user
            code sets is used.

    Raises:
        ImportError: OpenTelemetry is not installed, or the function does not exist.
        TypeError: The function does not return span processors.
    """

    def __init__(self, config: TracingConfig) -> None:
        purpose = "`tracing_config`"
        self._api = load("opentelemetry.trace", purpose=purpose, install=INSTALL)
        module = load(
            "opentelemetry.trace.propagation.tracecontext", purpose=purpose, install=INSTALL
        )
        self._propagator = module.TraceContextTextMapPropagator()
        self._provider: Any = None
        """The provider that was set here; None for another one."""
        if config.exporter_import_path:
            self._set_provider(config, purpose)
        self._tracer = self._api.get_tracer("syncline.serve")

    def _set_provider(self, config: TracingConfig, purpose: str) -> None:
        sdk = load("opentelemetry.sdk.trace", purpose=purpose, install=INSTALL)
        processors = _processors(config.exporter_import_path, sdk.SpanProcessor)
        if isinstance(self._api.get_tracer_provider(), sdk.TracerProvider):
            return  # the program's own
        sampling = load("opentelemetry.sdk.trace.sampling", purpose=purpose, install=INSTALL)
        sampler = sampling.ParentBasedTraceIdRatio(config.sampling_ratio)
        self._provider = sdk.TracerProvider(sampler=sampler)
        for processor in processors:
            self._provider.add_span_processor(processor)
        self._api.set_tracer_provider(self._provider)

    def flush(self) -> None:
        """Export the spans that have ended, for some seconds at most. Blocks."""
        if self._provider is not None:
            self._provider.force_flush(round(1e3 * FLUSH_S))

    # -- proxies

    def begin_request(self, request: ProxiedRequest) -> Headers:
        """Begin the span of a request; return its headers with the context of the span."""
        span = request.span = self._tracer.start_span(
            "proxy_http_request",
            context=self._propagator.extract(carrier_of(request.headers) or {}),
            kind=self._api.SpanKind.SERVER,
            start_time=_wall_ns(request.started),
        )
        return with_carrier(request.headers, self._carrier(span))

    def end_request(self, request: ProxiedRequest, status: int, route: str) -> None:
        """End the span of a request."""
        span = request.span
        if span.is_recording():
            span.set_attributes(
                {
                    "request_id": request.request_id,
                    "app": request.deployment.app,
                    "deployment": request.deployment.name,
                    "replica_id": request.replica_id,
                    "request_type": "http",
                    "http.method": request.method,
                    "http.route": route,
                    "http.status_code": status,
                }
            )
            if status >= 500:
                span.set_status(self._api.StatusCode.ERROR)
        span.end()

    # -- calls of handles

    def begin_call(
        self, deployment: DeploymentId, method: str, request_id: str
    ) -> tuple[Any, Carrier]:
        """Begin the span of a call that the running code makes; return it with its context."""
        span = self._tracer.start_span(
            f"route_to_replica {deployment.name} {method}",
            kind=self._api.SpanKind.CLIENT,
            attributes={
                "request_id": request_id,
                "app": deployment.app,
                "deployment": deployment.name,
                "call_method": method,
            },
        )
        return span, self._carrier(span)

    def _carrier(self, span: object) -> Carrier:
        carrier: Carrier = {}
        self._propagator.inject(carrier, self._api.set_span_in_context(span))
        return carrier

    def end_call(self, span: Any, error: BaseException | None) -> None:
        """End the span of a call with its error."""
        if error is not None:
            span.set_status(self._api.StatusCode.ERROR, str(error)[:500])
        span.end()

    # -- replicas

    async def run(self, call: TracedCall) -> None:
        """Run a call in a span; spans that user code begins become its children."""
        replica = replica_context()
        deployment = replica.deployment if replica is not None else ""
        with self._tracer.start_as_current_span(
            f"replica_handle_request {deployment} {call.label()}",
            context=self._propagator.extract(call.trace_carrier() or {}),
            kind=self._api.SpanKind.SERVER,
            start_time=_wall_ns(call.received),
            attributes={
                "request_id": call.request_id,
                "replica_id": replica.replica_tag if replica is not None else "",
                "app": replica.app_name if replica is not None else "",
                "deployment": deployment,
                "call_method": call.label(),
                "route": call.route,
                "multiplexed_model_id": call.multiplexed_model_id,
            },
        ) as span:
            call.set_trace_carrier(self._carrier(span))
            await call.run()
            if call.is_cancelled:
                span.set_attribute("cancelled", True)

    def note_failure(self, error: BaseException) -> None:
        """Record an exception of user code in the current span."""
        span = self._api.get_current_span()
        span.record_exception(error)
        span.set_status(self._api.StatusCode.ERROR, f"{type(error).__name__}: {error}"[:500])


_tracing: Tracing | None = None


def enable(config: TracingConfig | None) -> Tracing | None:
    """Start to trace the requests of this process if `config` enables it; return the traces."""
    global _tracing
    if _tracing is None and config is not None and config.enabled:
        _tracing = Tracing(config)
    return _tracing


def disable() -> None:
    """Export the spans of this process, and trace no further requests. Blocks."""
    global _tracing
    ended, _tracing = _tracing, None
    if ended is not None:
        ended.flush()


def current() -> Tracing | None:
    """Return the traces of this process; None if requests are not traced."""
    return _tracing


def carrier_of(headers: Iterable[tuple[str | bytes, str | bytes]]) -> Carrier | None:
    """Return the trace context in headers of HTTP or metadata of gRPC; None without one."""
    found = {
        _NAMES[name]: value if isinstance(value, str) else value.decode("latin-1")
        for name, value in headers
        if name in _NAMES
    }
    return found or None


def with_carrier(headers: Headers, carrier: Carrier) -> Headers:
    """Return headers with the trace context `carrier` instead of theirs."""
    return [
        *((name, value) for name, value in headers if name not in _NAMES),
        *((name.encode(), value.encode()) for name, value in carrier.items()),
    ]


def _processors(path: str, base: type[object]) -> list[Any]:
    try:
        function = imported(path)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"`exporter_import_path={path!r}` cannot be imported: {error}. It must name a function "
            f"that returns a list of span processors"
        ) from error
    found = function() if callable(function) else function
    processors = list(found) if isinstance(found, (list, tuple)) else [found]
    for processor in processors:
        if not isinstance(processor, base):
            raise TypeError(
                f"`exporter_import_path={path!r}` returned {processor!r}, not a list of span "
                f"processors such as BatchSpanProcessor(OTLPSpanExporter())"
            )
    return processors


def _wall_ns(at_s: float) -> int:
    """Convert a `perf_counter()` time of this process to nanoseconds since the epoch."""
    return time.time_ns() - round((perf_counter() - at_s) * 1e9)
