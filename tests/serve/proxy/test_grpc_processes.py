"""gRPC clients of applications with real processes."""

import grpc
import pytest

import syncline
from syncline import serve
from syncline.serve.generated import serve_pb2, serve_pb2_grpc
from syncline.testing.programs import free_port
from tests.serve.grpc_services import words_pb2_grpc
from tests.serve.grpc_services.words_pb2 import Count, Text

pytestmark = pytest.mark.processes

SERVICES = ["tests.serve.grpc_services.words_pb2_grpc.add_WordsServicer_to_server"]


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Lower:
    def __call__(self, text):
        return text.lower()


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Words:
    def __init__(self, lower):
        self.lower = lower

    async def Upper(self, message, grpc_context):
        if message.text == "stop":
            grpc_context.set_code(grpc.StatusCode.FAILED_PRECONDITION)
            raise RuntimeError("stopped")
        return Text(text=message.text.upper() + await self.lower.remote(message.text))

    async def Letters(self, message):
        for letter in message.text:
            yield Text(text=letter)

    async def Total(self, messages):
        return Count(count=sum([len(each.text) async for each in messages]))


def test_clients_call_the_ingress_of_an_application():
    port = free_port()
    syncline.init(num_cpus=2)
    try:
        serve.start(
            http_options={"port": free_port()},
            grpc_options={"port": port, "grpc_servicer_functions": SERVICES},
        )
        serve.run(Words.bind(Lower.bind()), name="words", route_prefix=None)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            api = serve_pb2_grpc.RayServeAPIServiceStub(channel)
            assert api.Healthz(serve_pb2.HealthzRequest(), timeout=60).message == "success"
            names = api.ListApplications(serve_pb2.ListApplicationsRequest(), timeout=60)
            assert list(names.application_names) == ["words"]
            words = words_pb2_grpc.WordsStub(channel)
            assert words.Upper(Text(text="aB"), timeout=60).text == "ABab"
            assert [each.text for each in words.Letters(Text(text="ab"), timeout=60)] == ["a", "b"]
            texts = iter([Text(text="ab"), Text(text="c")])
            assert words.Total(texts, timeout=60).count == 3
            with pytest.raises(grpc.RpcError) as raised:
                words.Upper(Text(text="stop"), timeout=60)
            assert raised.value.code() == grpc.StatusCode.FAILED_PRECONDITION
            assert raised.value.details() == "RuntimeError: stopped"
    finally:
        serve.shutdown()
        syncline.shutdown()
