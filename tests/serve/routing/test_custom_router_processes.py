"""Custom request routers of applications with real processes."""

import os
import time

import httpx
import pytest

import syncline
from syncline import serve
from syncline.serve.config import RequestRouterConfig
from syncline.serve.exceptions import RayServeException
from syncline.serve.request_router import RequestRouter
from syncline.testing.programs import free_port

pytestmark = pytest.mark.processes


class MostWeight(RequestRouter):
    """Chooses the replica with the largest `weight`, once both have told it."""

    def initialize_state(self, *, replicas):
        self.wanted = replicas

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        told = [each for each in candidate_replicas if "weight" in each.routing_stats]
        if len(told) < self.wanted:
            return []
        return [[max(told, key=lambda each: each.routing_stats["weight"])]]


class Refusing(RequestRouter):
    async def choose_replicas(self, candidate_replicas, pending_request=None):
        raise LookupError(f"nothing for {pending_request.metadata.call_method!r}")


@serve.deployment(
    num_replicas=2,
    ray_actor_options={"num_cpus": 0.1},
    request_router_config=RequestRouterConfig(
        request_router_class=MostWeight,
        request_router_kwargs={"replicas": 2},
        request_routing_stats_period_s=0.1,
    ),
)
class Weighted:
    def record_routing_stats(self):
        return {"weight": serve.get_replica_context().rank}

    def __call__(self, request):
        return {"rank": serve.get_replica_context().rank, "pid": os.getpid()}


@serve.deployment(
    ray_actor_options={"num_cpus": 0.1}, request_router_config={"request_router_class": Refusing}
)
class Refused:
    def __call__(self, request):
        return "never"


@pytest.fixture(scope="module")
def url():
    port = free_port()
    syncline.init(num_cpus=2)
    serve.start(http_options={"port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    syncline.shutdown()


def test_the_proxy_and_handles_use_statistics_of_replicas(url):
    handle = serve.run(Weighted.bind(), name="weighted", route_prefix="/weighted")
    began = time.monotonic()
    answers = [httpx.get(f"{url}/weighted", timeout=30).json() for _ in range(10)]
    answers += [handle.remote(None).result(timeout_s=30) for _ in range(10)]
    assert {each["rank"] for each in answers} == {1}
    assert len({each["pid"] for each in answers}) == 1
    assert time.monotonic() - began < 30


def test_an_error_of_the_class_fails_the_request(url):
    handle = serve.run(Refused.bind(), name="refused", route_prefix="/refused")
    assert httpx.get(f"{url}/refused", timeout=30).status_code == 500
    with pytest.raises(RayServeException, match="Refusing .*: LookupError: nothing for '__call__'"):
        handle.remote(None).result(timeout_s=30)
