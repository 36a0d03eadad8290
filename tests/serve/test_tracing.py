"""OpenTelemetry spans without processes: context, names, errors, sampling, mistakes."""

import asyncio
import subprocess
import sys
from time import perf_counter

import pytest

from syncline.serve import tracing
from syncline.serve.logging_config import TracingConfig
from syncline.serve.wire.routes import DeploymentId
from syncline.serve.wire.values import CallMeta, pack_call, read_meta, unpack_call

pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util._once import Once

TRACE_ID = "ab" * 16
SAMPLED = f"00-{TRACE_ID}-{'cd' * 8}-01"
NOT_SAMPLED = f"00-{TRACE_ID}-{'cd' * 8}-00"

exporter = InMemorySpanExporter()


def processors():
    """The function that `exporter_import_path` names."""
    return [SimpleSpanProcessor(exporter)]


def no_processors():
    return ["a string"]


PATH = f"{__name__}:processors"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """A process without a provider."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    exporter.clear()
    yield
    tracing.disable()


def enabled(**options):
    config = {"enabled": True, "exporter_import_path": PATH, "sampling_ratio": 1.0, **options}
    found = tracing.enable(TracingConfig(**config))
    assert found is not None
    return found


class Request:
    """A request as the proxy has it."""

    method = "POST"
    request_id = "r1"
    replica_id = "app#Model#0001"
    deployment = DeploymentId("app", "Model")
    span = None

    def __init__(self, *headers):
        self.headers = [(b"host", b"here"), *headers]
        self.started = perf_counter() - 0.5


class Call:
    """A call as the replica has it."""

    request_id = "r1"
    route = "/"
    multiplexed_model_id = ""
    is_cancelled = False

    def __init__(self, function, carrier=None):
        self.received = perf_counter()
        self._function = function
        self._carrier = carrier

    async def run(self):
        self._function()

    def label(self):
        return "predict"

    def trace_carrier(self):
        return self._carrier

    def set_trace_carrier(self, carrier):
        self._carrier = carrier


def spans():
    return {span.name: span for span in exporter.get_finished_spans()}


def hexadecimal(span_id):
    return f"{span_id:016x}"


def test_nothing_is_traced_by_default():
    assert tracing.enable(None) is None
    assert tracing.enable(TracingConfig()) is None
    assert tracing.current() is None


def test_opentelemetry_is_not_loaded_without_traces():
    program = (
        "import sys\n"
        "from syncline.serve import api, tracing\n"
        "from syncline.serve.proxy import process\n"
        "from syncline.serve.replica import process\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_request_continues_the_trace_of_its_client():
    traces = enabled()
    request = Request((b"traceparent", SAMPLED.encode()), (b"tracestate", b"a=1"))
    headers = dict(traces.begin_request(request))
    traces.end_request(request, 200, "/models")
    span = spans()["proxy_http_request"]
    assert f"{span.context.trace_id:032x}" == TRACE_ID
    assert hexadecimal(span.parent.span_id) == "cd" * 8
    assert headers[b"host"] == b"here"
    assert headers[b"tracestate"] == b"a=1"
    assert headers[b"traceparent"] == (
        f"00-{TRACE_ID}-{hexadecimal(span.context.span_id)}-01".encode()
    )
    assert (span.end_time - span.start_time) / 1e9 >= 0.5
    assert dict(span.attributes) == {
        "request_id": "r1",
        "app": "app",
        "deployment": "Model",
        "replica_id": "app#Model#0001",
        "request_type": "http",
        "http.method": "POST",
        "http.route": "/models",
        "http.status_code": 200,
    }


def test_a_server_error_marks_the_request():
    traces = enabled()
    request = Request()
    traces.begin_request(request)
    traces.end_request(request, 502, "/")
    assert spans()["proxy_http_request"].status.status_code is trace.StatusCode.ERROR


def test_a_request_that_is_not_sampled_passes_that_on():
    traces = enabled(sampling_ratio=0.0)
    request = Request()
    headers = dict(traces.begin_request(request))
    traces.end_request(request, 200, "/")
    assert int(headers[b"traceparent"].rpartition(b"-")[2], 16) & 1 == 0
    assert not spans()


@pytest.mark.parametrize(("ratio", "parent", "count"), [(0.0, SAMPLED, 1), (1.0, NOT_SAMPLED, 0)])
def test_the_decision_of_the_client_counts(ratio, parent, count):
    traces = enabled(sampling_ratio=ratio)
    request = Request((b"traceparent", parent.encode()))
    traces.begin_request(request)
    traces.end_request(request, 200, "/")
    assert len(spans()) == count


def test_a_malformed_context_begins_a_new_trace():
    traces = enabled()
    request = Request((b"traceparent", b"nonsense\xff"))
    traces.begin_request(request)
    traces.end_request(request, 200, "/")
    assert spans()["proxy_http_request"].parent is None


def test_user_code_runs_in_the_span_of_its_call():
    traces = enabled()

    def work():
        with trace.get_tracer("user").start_as_current_span("work"):
            span, carrier = traces.begin_call(DeploymentId("app", "Next"), "step", "r1")
            traces.end_call(span, None)
        carriers.append(carrier)

    carriers = []
    call = Call(work, {"traceparent": SAMPLED})
    asyncio.run(traces.run(call))
    found = spans()
    handled, own = found["replica_handle_request  predict"], found["work"]
    called = found["route_to_replica Next step"]
    assert hexadecimal(handled.parent.span_id) == "cd" * 8
    assert own.parent.span_id == handled.context.span_id
    assert call.trace_carrier()["traceparent"].split("-")[2] == hexadecimal(handled.context.span_id)
    assert called.parent.span_id == own.context.span_id
    assert carriers[0]["traceparent"].split("-")[2] == hexadecimal(called.context.span_id)


def test_exceptions_and_cancellation_are_recorded():
    traces = enabled()
    failed = Call(lambda: traces.note_failure(ValueError("no")))
    failed.is_cancelled = True
    asyncio.run(traces.run(failed))
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR
    assert span.status.description == "ValueError: no"
    assert span.events[0].attributes["exception.message"] == "no"
    assert span.attributes["cancelled"] is True


def test_the_error_of_a_call_marks_its_span():
    traces = enabled()
    span, _ = traces.begin_call(DeploymentId("app", "Next"), "step", "r1")
    traces.end_call(span, TimeoutError("late"))
    assert spans()["route_to_replica Next step"].status.description == "late"


def test_context_travels_with_the_call_of_a_handle():
    meta = CallMeta("m", "id", None, "", "", False, "app", "/", {"traceparent": SAMPLED})
    parts = pack_call(meta, (1,), {})
    assert read_meta(parts) == meta
    assert unpack_call(b"".join(parts))[0].trace == {"traceparent": SAMPLED}


@pytest.mark.parametrize(
    "headers",
    [
        [(b"traceparent", SAMPLED.encode()), (b"host", b"x")],
        [("traceparent", SAMPLED), ("data-bin", b"\x00")],
    ],
)
def test_context_in_headers_and_in_metadata(headers):
    assert tracing.carrier_of(headers) == {"traceparent": SAMPLED}
    assert tracing.carrier_of(headers[1:]) is None


def test_the_provider_of_the_program_is_kept():
    own = TracerProvider()
    trace.set_tracer_provider(own)
    enabled()
    assert trace.get_tracer_provider() is own


def test_without_an_exporter_the_provider_of_user_code_is_used():
    traces = enabled(exporter_import_path="")
    own = TracerProvider()
    own.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(own)  # later, as the module of a deployment does
    span, _ = traces.begin_call(DeploymentId("app", "Next"), "step", "r1")
    traces.end_call(span, None)
    assert list(spans()) == ["route_to_replica Next step"]


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        ("no_such_module:processors", ImportError, "cannot be imported"),
        (f"{__name__}:missing", ImportError, "cannot be imported"),
        (f"{__name__}:no_processors", TypeError, "not a list of span processors"),
    ],
)
def test_a_wrong_exporter_is_refused(path, error, text):
    with pytest.raises(error, match=text):
        enabled(exporter_import_path=path)
    assert tracing.current() is None


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ImportError, match=r"pip install 'syncline\[serve-tracing\]'"):
        enabled()
