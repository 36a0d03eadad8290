"""Spans of proxy, replicas and program, exported to a file by real processes."""

import json
import sys

import httpx
import pytest

import syncline
from syncline import serve
from syncline.testing.programs import free_port
from syncline.testing.waiting import eventually

pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry import trace

pytestmark = pytest.mark.processes

SMALL = {"num_cpus": 0.1}
EXPORTER = """
import json
from pathlib import Path
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class FileExporter(SpanExporter):
    def export(self, spans):
        with Path(__file__).with_name("spans.jsonl").open("a") as file:
            for span in spans:
                parent = span.parent.span_id if span.parent else None
                file.write(json.dumps({
                    "name": span.name, "id": span.context.span_id, "parent": parent,
                    "trace": f"{span.context.trace_id:032x}",
                    "status": span.status.status_code.name,
                }) + "\\n")
        return SpanExportResult.SUCCESS

def processors():
    return [SimpleSpanProcessor(FileExporter())]
"""


@serve.deployment(ray_actor_options=SMALL)
class Model:
    def __call__(self, value):
        if value < 0:
            raise ValueError("negative")
        return value + 1


@serve.deployment(ray_actor_options=SMALL)
class Front:
    def __init__(self, model):
        self.model = model

    async def __call__(self, request):
        return await self.model.remote(int(request.query_params["value"]))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """URL of the application, and the file of the spans."""
    directory = tmp_path_factory.mktemp("exporter")
    (directory / "file_of_spans.py").write_text(EXPORTER)
    sys.path.insert(0, str(directory))
    port = free_port()
    syncline.init(num_cpus=2, runtime_env={"env_vars": {"PYTHONPATH": str(directory)}})
    serve.start(
        http_options={"port": port},
        tracing_config={
            "enabled": True,
            "exporter_import_path": "file_of_spans:processors",
            "sampling_ratio": 1.0,
        },
    )
    serve.run(Front.bind(Model.bind()))
    yield f"http://127.0.0.1:{port}", directory / "spans.jsonl"
    serve.shutdown()
    syncline.shutdown()
    sys.path.remove(str(directory))


def spans_of(file, trace_id, count):
    """Return the spans of a trace by name, once there are as many as expected."""

    def found():
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        spans = {line["name"]: line for line in lines if line["trace"] == trace_id}
        return spans if len(spans) == count else None

    return eventually(found, what=f"trace {trace_id} has {count} spans")


def chain(spans, *names):
    """Check that each span is the parent of the next."""
    for parent, child in zip(names, names[1:], strict=False):
        assert spans[child]["parent"] == spans[parent]["id"], (parent, child)


def test_one_trace_from_the_client_to_the_last_replica(site):
    url, file = site
    trace_id = "12" * 16
    headers = {"traceparent": f"00-{trace_id}-{'34' * 8}-01"}
    assert httpx.get(f"{url}/?value=3", headers=headers, timeout=60).text == "4"
    names = (
        "proxy_http_request",
        "replica_handle_request Front GET /",
        "route_to_replica Model __call__",
        "replica_handle_request Model __call__",
    )
    spans = spans_of(file, trace_id, len(names))
    assert spans[names[0]]["parent"] == int("34" * 8, 16)
    chain(spans, *names)
    assert {span["status"] for span in spans.values()} == {"UNSET"}


def test_an_error_marks_the_spans_up_to_the_proxy(site):
    url, file = site
    trace_id = "56" * 16
    headers = {"traceparent": f"00-{trace_id}-{'34' * 8}-01"}
    assert httpx.get(f"{url}/?value=-3", headers=headers, timeout=60).status_code == 500
    spans = spans_of(file, trace_id, 4)
    assert {span["status"] for span in spans.values()} == {"ERROR"}


def test_calls_of_the_program_are_traced(site):
    _, file = site
    with trace.get_tracer("test").start_as_current_span("program") as span:
        assert serve.get_deployment_handle("Model", "default").remote(1).result() == 2
    spans = spans_of(file, f"{span.get_span_context().trace_id:032x}", 3)
    chain(
        spans, "program", "route_to_replica Model __call__", "replica_handle_request Model __call__"
    )
