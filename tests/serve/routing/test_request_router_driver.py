"""Custom request routers on the links of processes, with listening replicas."""

import asyncio
import random
import threading
from dataclasses import replace

import pytest

from syncline.core import serialization
from syncline.serve.config import RequestRouterConfig
from syncline.serve.event_loop import new_event_loop
from syncline.serve.exceptions import BackPressureError, RayServeException
from syncline.serve.request_router import FIFOMixin, RequestRouter
from syncline.serve.response import DeploymentResponse, HandleCall
from syncline.serve.routing.link import RequestTimeoutError
from syncline.serve.routing.router import Call
from syncline.serve.routing.thread_link import ThreadLink
from syncline.serve.wire.connection import Hello
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.routes import Address, DeploymentRoute, TableUpdate
from syncline.serve.wire.values import CallMeta, pack_call
from tests.serve.routing.test_link import DEPLOYMENT, KEY, Network

META = CallMeta(
    method="predict",
    request_id="id-1",
    timeout_s=None,
    multiplexed_model_id="",
    session_id="s",
    stream=False,
    app="app",
    route="/",
)


class Last(RequestRouter):
    """Chooses the replica with the last name."""

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        return [[max(candidate_replicas, key=lambda each: each.replica_id.unique_id)]]


class ByArgument(RequestRouter):
    """Chooses the replica that the first argument names."""

    def initialize_state(self, *, prefix):
        self.prefix = prefix

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        await asyncio.sleep(0)
        assert pending_request.metadata.call_method == "predict"
        assert pending_request.metadata.request_id == "id-1"
        name = self.prefix + pending_request.args[0]
        return [[each for each in candidate_replicas if str(each.replica_id) == name]]


class Failing(RequestRouter):
    async def choose_replicas(self, candidate_replicas, pending_request=None):
        raise KeyError("no idea")


class Unconstructable(RequestRouter):
    def __init__(self, *args, **kwargs):
        raise OSError("no table")


class Wrong(RequestRouter):
    async def choose_replicas(self, candidate_replicas, pending_request=None):
        return candidate_replicas


class Slow(RequestRouter):
    async def choose_replicas(self, candidate_replicas, pending_request=None):
        await asyncio.sleep(60)


class Patient(FIFOMixin, RequestRouter):
    """Chooses nothing until the replica has a statistic."""

    async def choose_replicas(self, candidate_replicas, pending_request=None):
        return [[each for each in candidate_replicas if each.routing_stats.get("ready")]]


class Recording(Last):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        Recording.events = self.events = []

    def on_request_routed(self, pending_request, replica_id, result):
        self.events.append(("routed", pending_request.metadata.request_id, str(replica_id)))

    def on_request_completed(self, replica_id, internal_request_id):
        self.events.append(("completed", str(replica_id)))

    def on_replica_actor_died(self, replica_id):
        self.events.append(("died", str(replica_id)))


def config(cls, **options):
    options = {"request_router_class": cls, "initial_backoff_s": 30, "max_backoff_s": 30, **options}
    return serialization.pack_callable(RequestRouterConfig(**options))


class CountedCall(Call):
    def __init__(self, *args):
        super().__init__(DEPLOYMENT, Kind.CALL, pack_call(META, args, {}))
        self.outcome = asyncio.get_running_loop().create_future()

    def on_frame(self, kind, payload):
        self.outcome.set_result((kind, payload))

    def on_failed(self, error):
        self.outcome.set_result(error)

    async def ended(self):
        return await asyncio.wait_for(self.outcome, 60)


def run(tmp_path, test):
    async def body():
        net = Network(tmp_path)
        try:
            await asyncio.wait_for(test(net), 30)
        finally:
            net.link.close(RuntimeError("the test ended"))
            for each in net.replicas.values():
                each.die()

    loop = new_event_loop()
    try:
        loop.run_until_complete(body())
    finally:
        loop.close()


def submit(net, *args, deadline=None):
    call = CountedCall(*args)
    call.deadline = deadline
    net.link.submit(call)
    return call


async def connected(net, *names):
    while sorted(net.link.running_replicas(DEPLOYMENT)) != sorted(names):
        await asyncio.sleep(0.005)


async def published(net, *names, **options):
    for name in names:
        await net.replica(name)
    net.publish(*names, **options)
    await connected(net, *names)


def test_the_chosen_replica_gets_the_call(tmp_path):
    async def test(net):
        await published(net, "a", "b", request_router=config(Last))
        for _ in range(3):
            submit(net)
        for number in range(3):
            assert (await net.replicas["b"].frame(number))[0] == Kind.CALL
        assert not net.replicas["a"].frames

    run(tmp_path, test)


def test_a_choice_may_depend_on_arguments_and_options(tmp_path):
    async def test(net):
        await published(
            net,
            "x-a",
            "x-b",
            request_router=config(ByArgument, request_router_kwargs={"prefix": "x-"}),
        )
        submit(net, "b"), submit(net, "a")
        assert await net.replicas["x-a"].frame(0)
        assert await net.replicas["x-b"].frame(0)

    run(tmp_path, test)


def test_limits_hold_and_waiting_calls_are_sent_as_slots_get_free(tmp_path):
    async def test(net):
        await published(
            net, "a", request_router=config(Last), max_ongoing_requests=1, max_queued_requests=1
        )
        replica = net.replicas["a"]
        first, second = submit(net), submit(net)
        _, call_id, _ = await replica.frame(0)
        refused = await submit(net).ended()
        assert isinstance(refused, BackPressureError)
        assert len(replica.frames) == 1
        replica.send(Kind.VALUE, call_id, b"1")
        _, call_id, _ = await replica.frame(1)
        replica.send(Kind.VALUE, call_id, b"2")
        assert [await first.ended(), await second.ended()] == [
            (Kind.VALUE, b"1"),
            (Kind.VALUE, b"2"),
        ]

    run(tmp_path, test)


def test_errors_of_the_class_fail_the_call_and_name_the_class(tmp_path):
    async def test(net):
        await published(net, "a")
        for cls, text in (
            (Failing, "the request router Failing of app#Model failed: KeyError: 'no idea'"),
            (Unconstructable, "Unconstructable of app#Model cannot be constructed: OSError"),
            (Wrong, "`choose_replicas` returned"),
            (RequestRouter, "RequestRouter has no `choose_replicas`"),
            (int, "is no subclass of syncline.serve.request_router.RequestRouter"),
        ):
            net.publish("a", request_router=config(cls))
            for _ in range(2):
                error = await submit(net).ended()
                assert isinstance(error, RayServeException)
                assert text in str(error)

    run(tmp_path, test)


def test_a_call_that_waits_for_its_choice_has_a_deadline(tmp_path):
    async def test(net):
        await published(net, "a", request_router=config(Slow))
        call = submit(net, deadline=net.link.loop.time() + 0.1)
        assert isinstance(await call.ended(), RequestTimeoutError)
        assert net.link.statistics().calls == 0

    run(tmp_path, test)


def test_new_statistics_of_a_replica_let_the_router_choose_again(tmp_path):
    async def test(net):
        await published(net, "a", request_router=config(Patient))
        submit(net)
        await asyncio.sleep(0.1)
        assert not net.replicas["a"].frames
        route = replace(net.replicas["a"].route, routing_stats={"ready": True})
        net.link.update(
            TableUpdate(
                version=9,
                deployments=(
                    DeploymentRoute(
                        id=DEPLOYMENT, replicas=(route,), request_router=config(Patient)
                    ),
                ),
            )
        )
        assert await net.replicas["a"].frame(0)

    run(tmp_path, test)


def test_a_router_that_chose_nothing_is_asked_again_after_a_pause(tmp_path):
    class Twice(RequestRouter):
        asked = 0

        async def choose_replicas(self, candidate_replicas, pending_request=None):
            self.asked += 1
            return [] if self.asked < 3 else [candidate_replicas]

    async def test(net):
        await published(net, "a", request_router=config(Twice, initial_backoff_s=0.01))
        submit(net)
        assert await net.replicas["a"].frame(0)

    run(tmp_path, test)


def test_hooks_hear_of_calls_and_deaths(tmp_path):
    async def test(net):
        await published(net, "a", "b", request_router=config(Recording))
        call = submit(net)
        _, call_id, _ = await net.replicas["b"].frame(0)
        net.replicas["b"].send(Kind.VALUE, call_id, b"")
        await call.ended()
        net.replicas["b"].die()
        expected = [("routed", "id-1", "b"), ("completed", "b"), ("died", "b")]
        while expected != [*Recording.events]:
            await asyncio.sleep(0.01)

    run(tmp_path, test)


def test_a_deployment_gets_another_router_while_calls_wait(tmp_path):
    async def test(net):
        await published(net, "a", "b", request_router=config(Slow))
        first, second = submit(net), submit(net)
        await asyncio.sleep(0.05)
        net.publish("a", "b", request_router=config(Last))
        for number in range(2):
            _, call_id, _ = await net.replicas["b"].frame(number)
            net.replicas["b"].send(Kind.VALUE, call_id, b"")
        await first.ended(), await second.ended()
        net.publish("a", "b")
        submit(net), submit(net)
        assert await net.replicas["a"].frame(0)

    run(tmp_path, test)


@pytest.fixture
def program(tmp_path):
    """A link of a program, whose replicas listen on a loop in another thread."""
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def wait(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(20)

    async def network():
        return Network(tmp_path)

    net = wait(network())
    net.wait = wait
    link = ThreadLink(
        Address(node_id="n", unix_path=str(tmp_path / "none.sock")),
        node_id="n",
        hello=Hello(role="caller", id="c", pid=1),
        key=KEY,
    )
    link._subscribe = lambda delay_s: None
    link.start()
    net.program = link
    yield net
    link.close(RuntimeError("the test ended"))

    async def end():
        for each in net.replicas.values():
            each.die()

    wait(end())
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


class Ended(Call):
    def __init__(self):
        super().__init__(DEPLOYMENT, Kind.CALL, pack_call(META, (), {}))
        self.event = threading.Event()

    def on_frame(self, kind, payload):
        self.event.set()

    def on_failed(self, error):
        self.error = error
        self.event.set()


def test_programs_run_the_class_on_a_thread_of_its_own(program):
    for name in ("a", "b"):
        program.wait(program.replica(name))
    program.program.update(
        TableUpdate(
            version=1,
            deployments=(
                DeploymentRoute(
                    id=DEPLOYMENT,
                    replicas=tuple(each.route for each in program.replicas.values()),
                    request_router=config(Last),
                    max_ongoing_requests=1,
                ),
            ),
        )
    )
    calls = [Ended() for _ in range(4)]
    random.Random(1).shuffle(calls)
    for call in calls:
        program.program.submit(call)

    async def answer():
        served = dict.fromkeys(program.replicas, 0)
        while sum(served.values()) < 4:
            for name, each in program.replicas.items():
                for _, call_id, _ in each.frames[served[name] :]:
                    served[name] += 1
                    each.send(Kind.VALUE, call_id, b"")
            await asyncio.sleep(0.005)
        return served

    served = program.wait(answer())
    assert served["b"] >= 1
    for call in calls:
        assert call.event.wait(10)


def test_errors_of_the_class_reach_the_threads_of_programs(program):
    program.wait(program.replica("a"))
    program.program.update(
        TableUpdate(
            version=1,
            deployments=(
                DeploymentRoute(
                    id=DEPLOYMENT,
                    replicas=(program.replicas["a"].route,),
                    request_router=config(Failing),
                ),
            ),
        )
    )
    call = HandleCall(program.program, DEPLOYMENT, "predict", "id-1", None)
    call.parts = pack_call(META, (), {})
    program.program.submit(call)
    with pytest.raises(RayServeException, match="no idea"):
        DeploymentResponse(call).result(timeout_s=60)
