"""gRPC clients of a proxy, with a real server, a real client and a replica in one process."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import grpc.aio
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from syncline.serve.generated import serve_pb2, serve_pb2_grpc
from syncline.serve.proxy.grpc_server import GrpcServer
from syncline.serve.proxy.grpc_services import load_services
from syncline.serve.proxy.routes import RouteTable
from syncline.serve.proxy_options import gRPCOptions
from syncline.serve.routing.link import LoopLink
from syncline.serve.wire.connection import Hello
from syncline.serve.wire.routes import (
    ApplicationRoute,
    DeploymentId,
    DeploymentRoute,
    ReplicaRoute,
    TableUpdate,
)
from tests.serve.grpc_services import words_pb2_grpc
from tests.serve.grpc_services.words_pb2 import Count, Text
from tests.serve.replica.harness import KEY, run, staged

SERVICES = ("tests.serve.grpc_services.words_pb2_grpc.add_WordsServicer_to_server",)
WORDS = DeploymentId("app", "D")
events = []


class Words:
    async def Upper(self, message, grpc_context):
        if message.text == "wait":
            try:
                await asyncio.sleep(60)
            finally:
                events.append("cancelled")
        if message.text == "fail":
            raise ValueError("bad word")
        if message.text == "missing":
            grpc_context.set_code(grpc.StatusCode.NOT_FOUND)
            grpc_context.set_details("no such word")
            raise KeyError(message.text)
        if message.text == "ids":
            return Text(text=f"{grpc_context.request_id()} {grpc_context.multiplexed_model_id()}")
        if message.text == "tail":
            grpc_context.set_trailing_metadata([("tail", "end")])
            grpc_context.set_compression(grpc.Compression.Gzip)
        return Text(text=message.text.upper())

    async def Letters(self, message):
        for letter in message.text:
            yield Text(text=letter)

    async def Total(self, messages):
        return Count(count=sum([len(each.text) async for each in messages]))

    async def Echo(self, messages):
        async for message in messages:
            yield message


class Stage:
    def __init__(self, server, routes, link, channel):
        self.server = server
        self.routes = routes
        self.link = link
        self.channel = channel
        self.words = words_pb2_grpc.WordsStub(channel)
        self.api = serve_pb2_grpc.RayServeAPIServiceStub(channel)

    def publish(self, replicas, applications=("app",), **options):
        update = TableUpdate(
            version=1,
            deployments=(DeploymentRoute(id=WORDS, replicas=replicas, **options),),
            applications=tuple(
                ApplicationRoute(name=name, route_prefix=None, ingress=WORDS, is_asgi=False)
                for name in applications
            ),
            is_complete=True,
        )
        self.link.update(update)
        self.routes.update(update)


@asynccontextmanager
async def served(directory, *, publishes=True, options=None, **route):
    """Start a replica, a link and a gRPC server."""
    async with staged(directory, Words) as replica:
        loop = asyncio.get_running_loop()
        link = LoopLink(loop, node_id="node", hello=Hello(role="proxy", id="p", pid=1), key=KEY)
        settings = gRPCOptions(port=0, grpc_servicer_functions=SERVICES, **(options or {}))
        routes = RouteTable()
        server = GrpcServer(link, routes, settings, host="127.0.0.1", clock=loop.time)
        host, port = await server.start()
        async with grpc.aio.insecure_channel(f"{host}:{port}") as channel:
            stage = Stage(server, routes, link, channel)
            stage.replicas = (
                ReplicaRoute(
                    replica_id=replica.config.replica_id,
                    address=replica.address,
                    ledger_path=replica.config.ledger_path,
                ),
            )
            if publishes:
                stage.publish(stage.replicas, **route)
            try:
                yield stage
            finally:
                await server.stop(0)
                link.close(RuntimeError("the test ended"))


def test_the_four_kinds_of_calls(tmp_path):
    async def scenario():
        async with served(tmp_path) as stage:
            words = stage.words
            assert (await words.Upper(Text(text="abc"))).text == "ABC"
            assert [each.text async for each in words.Letters(Text(text="ab"))] == ["a", "b"]
            texts = [Text(text="ab"), Text(), Text(text="c")]
            assert (await words.Total(iter(texts))).count == 3
            assert [each.text async for each in words.Echo(iter(texts))] == ["ab", "", "c"]
            assert stage.link.statistics().calls == 0
            counts = {each.method: each.by_code for each in stage.server.statistics().methods}
            assert counts["/syncline.tests.Words/Upper"] == {"OK": 1}
            assert stage.server.statistics().ongoing_calls == 0

    run(scenario)


def test_a_bidirectional_stream_answers_before_the_client_has_sent_all(tmp_path):
    async def scenario():
        async with served(tmp_path) as stage:
            call = stage.words.Echo()
            for text in ("first", "second"):
                await call.write(Text(text=text))
                assert (await call.read()).text == text
            await call.done_writing()
            assert await call.read() is grpc.aio.EOF

    run(scenario)


def test_streams_larger_than_the_windows_arrive_whole(tmp_path):
    async def scenario():
        async with served(tmp_path) as stage:
            texts = [Text(text=str(i) * 50_000) for i in range(10)] * 3
            answers = [each.text async for each in stage.words.Echo(iter(texts))]
            assert answers == [each.text for each in texts]

    run(scenario)


async def status_of(call):
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code(), raised.value.details()


def test_status_codes(tmp_path):
    async def scenario():
        async with served(tmp_path, options={"request_timeout_s": 0.3}) as stage:
            upper = stage.words.Upper
            code, details = await status_of(upper(Text(text="fail")))
            assert (code, details) == (grpc.StatusCode.INTERNAL, "ValueError: bad word")
            code, details = await status_of(upper(Text(text="missing")))
            assert (code, details) == (grpc.StatusCode.NOT_FOUND, "no such word")
            code, details = await status_of(upper(Text(text="wait")))
            assert (code, details) == (
                grpc.StatusCode.DEADLINE_EXCEEDED,
                "Request timed out after 0.3s.",
            )

    run(scenario)


def test_a_full_queue_is_resource_exhausted(tmp_path):
    async def scenario():
        async with served(tmp_path, max_ongoing_requests=1, max_queued_requests=1) as stage:
            calls = [stage.words.Upper(Text(text="wait")) for _ in range(2)]
            while stage.server.statistics().ongoing_calls < 2:
                await asyncio.sleep(0.01)
            code, details = await status_of(stage.words.Upper(Text(text="abc")))
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "max_queued_requests=1" in details
            for call in calls:
                call.cancel()

    run(scenario)


def test_an_unavailable_deployment_is_unavailable(tmp_path):
    async def scenario():
        async with served(tmp_path, publishes=False) as stage:
            stage.publish((), unavailable="its constructor failed")
            code, details = await status_of(stage.words.Upper(Text(text="abc")))
            assert code == grpc.StatusCode.UNAVAILABLE
            assert "its constructor failed" in details

    run(scenario)


def test_the_application_is_named_by_metadata_unless_there_is_only_one(tmp_path):
    async def scenario():
        async with served(tmp_path, applications=("app", "other")) as stage:
            upper = stage.words.Upper
            code, details = await status_of(upper(Text(text="a")))
            assert code == grpc.StatusCode.NOT_FOUND
            assert details.startswith("Application metadata not set.")
            code, details = await status_of(upper(Text(text="a"), metadata=[("application", "x")]))
            assert code == grpc.StatusCode.NOT_FOUND
            assert details.startswith("Application 'x' not found.")
            assert (await upper(Text(text="a"), metadata=[("application", "app")])).text == "A"

    run(scenario)


def test_metadata_goes_in_and_out(tmp_path):
    async def scenario():
        async with served(tmp_path) as stage:
            metadata = [("request_id", "id-7"), ("multiplexed_model_id", "m")]
            call = stage.words.Upper(Text(text="ids"), metadata=metadata)
            assert (await call).text == "id-7 m"
            assert ("request_id", "id-7") in [
                tuple(each) for each in await call.trailing_metadata()
            ]
            call = stage.words.Upper(Text(text="tail"))
            assert (await call).text == "TAIL"
            trailing = dict(await call.trailing_metadata())
            assert trailing["tail"] == "end"
            assert trailing["request_id"]

    run(scenario)


def test_a_client_that_cancels_cancels_the_method(tmp_path):
    async def scenario():
        async with served(tmp_path) as stage:
            events.clear()
            call = stage.words.Upper(Text(text="wait"))
            while not stage.server.statistics().ongoing_calls:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            call.cancel()
            while not events:
                await asyncio.sleep(0.01)
            assert stage.link.statistics().calls == 0

    run(scenario)


def test_the_deadline_of_the_client_counts(tmp_path):
    async def scenario():
        async with served(tmp_path) as stage:
            events.clear()
            code, _ = await status_of(stage.words.Upper(Text(text="wait"), timeout=0.2))
            assert code == grpc.StatusCode.DEADLINE_EXCEEDED
            while not events:
                await asyncio.sleep(0.01)

    run(scenario)


def test_serves_own_service_reports_health_and_applications(tmp_path):
    async def scenario():
        async with served(tmp_path, publishes=False) as stage:
            code, details = await status_of(stage.api.Healthz(serve_pb2.HealthzRequest()))
            assert (code, details.startswith("Starting")) == (grpc.StatusCode.UNAVAILABLE, True)
            stage.publish(stage.replicas)
            assert (await stage.api.Healthz(serve_pb2.HealthzRequest())).message == "success"
            names = await stage.api.ListApplications(serve_pb2.ListApplicationsRequest())
            assert list(names.application_names) == ["app"]
            stage.server.drain()
            code, _ = await status_of(stage.api.Healthz(serve_pb2.HealthzRequest()))
            assert code == grpc.StatusCode.UNAVAILABLE

    run(scenario)


def test_reflection_names_the_services(tmp_path):
    async def scenario():
        async with served(tmp_path) as stage:
            stub = reflection_pb2_grpc.ServerReflectionStub(stage.channel)
            request = reflection_pb2.ServerReflectionRequest(list_services="")
            async for reply in stub.ServerReflectionInfo(iter([request])):
                names = [each.name for each in reply.list_services_response.service]
            assert names == ["grpc.reflection.v1alpha.ServerReflection", "syncline.tests.Words"]

    run(scenario)


def test_a_taken_port_is_an_error_that_says_what_to_do(tmp_path):
    async def scenario():
        async with served(tmp_path) as stage:
            port = int(stage.server.address[1])
            other = GrpcServer(
                stage.link,
                stage.routes,
                gRPCOptions(port=port, grpc_servicer_functions=SERVICES),
                host="127.0.0.1",
                clock=asyncio.get_running_loop().time,
            )
            with pytest.raises(OSError, match="Choose another port"):
                await other.start()

    run(scenario)


def test_services_are_read_from_generated_code():
    methods = load_services(SERVICES)
    assert {each.name for each in methods.values()} == {"Upper", "Letters", "Total", "Echo"}
    echo = methods["/syncline.tests.Words/Echo"]
    assert (echo.streams_request, echo.streams_response) == (True, True)
    assert echo.service == "syncline.tests.Words"


def test_a_function_that_adds_no_service_is_refused():
    with pytest.raises(TypeError, match="'builtins.max', which failed"):
        load_services(["builtins.max"])
    with pytest.raises(AttributeError):
        load_services(["tests.serve.grpc_services.words_pb2_grpc.add_to_server"])
