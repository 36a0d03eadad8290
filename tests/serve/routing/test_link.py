"""The link of a process, with replicas that are listeners on the same event loop."""

import asyncio

import pytest

from syncline.serve.event_loop import new_event_loop
from syncline.serve.exceptions import DeploymentUnavailableError, ReplicaUnavailableError
from syncline.serve.replica.ledger import Ledger
from syncline.serve.routing.link import LoopLink, RequestTimeoutError
from syncline.serve.routing.router import Call
from syncline.serve.wire.connection import Hello, Listener
from syncline.serve.wire.frames import Kind
from syncline.serve.wire.routes import (
    Address,
    DeploymentId,
    DeploymentRoute,
    ReplicaRoute,
    TableUpdate,
)

DEPLOYMENT = DeploymentId("app", "Model")
KEY = b"k" * 32


class FakeReplica:
    """Listens on a Unix socket and records frames; the test answers them."""

    def __init__(self, directory, name):
        self.name = name
        self.frames = []
        self.connections = []
        self.arrived = asyncio.Event()
        self.listener = Listener(Hello(role="replica", id=name, pid=1), KEY, self.on_ready)
        self.path = str(directory / f"{name}.sock")
        self.ledger_path = str(directory / f"{name}.ledger")
        self.ledger = Ledger(self.ledger_path)

    async def start(self):
        await self.listener.start(self.path, node_id="n", host=None)
        return self

    @property
    def route(self):
        return ReplicaRoute(
            replica_id=self.name,
            address=Address(node_id="n", unix_path=self.path),
            ledger_path=self.ledger_path,
        )

    def on_ready(self, connection):
        self.connections.append(connection)
        return self

    def on_frame(self, kind, call_id, payload):
        self.frames.append((kind, call_id, payload))
        self.arrived.set()

    def on_closed(self):
        pass

    async def frame(self, number):
        """The frame with this number, once it has arrived."""
        while len(self.frames) <= number:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), 60)
        return self.frames[number]

    def send(self, *frame):
        self.connections[-1].send(*frame)

    def die(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()


async def until(condition):
    async def wait():
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(wait(), 60)


class RecordedCall(Call):
    def __init__(self, **options):
        super().__init__(options.pop("deployment", DEPLOYMENT), Kind.CALL, (b"payload",))
        self.outcome = asyncio.get_running_loop().create_future()
        for name, value in options.items():
            setattr(self, name, value)

    def on_frame(self, kind, payload):
        self.outcome.set_result((kind, payload))

    def on_failed(self, error):
        self.outcome.set_result(error)

    async def ended(self):
        return await asyncio.wait_for(self.outcome, 60)


class Network:
    def __init__(self, directory):
        self.directory = directory
        self.replicas = {}
        self.version = 0
        self.link = LoopLink(
            asyncio.get_running_loop(),
            node_id="n",
            hello=Hello(role="caller", id="c", pid=1),
            key=KEY,
        )

    async def replica(self, name):
        self.replicas[name] = replica = await FakeReplica(self.directory, name).start()
        return replica

    def publish(self, *names, **options):
        self.version += 1
        route = DeploymentRoute(
            id=DEPLOYMENT, replicas=tuple(self.replicas[name].route for name in names), **options
        )
        self.link.update(TableUpdate(version=self.version, deployments=(route,)))

    def depart(self, **causes):
        """Publish a table without replicas, and why they left it."""
        self.version += 1
        self.link.update(
            TableUpdate(
                version=self.version,
                deployments=(DeploymentRoute(id=DEPLOYMENT),),
                departures=causes,
            )
        )

    def submit(self, **options):
        call = RecordedCall(**options)
        self.link.submit(call)
        return call


@pytest.fixture
def network(tmp_path):
    """Runs the coroutine function that the test returns a result of."""

    def run(test):
        async def body():
            net = Network(tmp_path)
            try:
                await asyncio.wait_for(test(net), 60)
            finally:
                net.link.close(RuntimeError("the test ended"))
                for replica in net.replicas.values():
                    replica.die()

        loop = new_event_loop()
        try:
            loop.run_until_complete(body())
        finally:
            loop.close()

    return run


def test_a_call_is_sent_and_answered(network):
    async def test(net):
        replica = await net.replica("a")
        net.publish("a")
        call = net.submit()
        kind, call_id, payload = await replica.frame(0)
        assert (kind, payload) == (Kind.CALL, b"payload")
        replica.send(Kind.VALUE, call_id, b"value")
        assert await call.ended() == (Kind.VALUE, b"value")
        assert net.link.statistics().calls == 0

    network(test)


def test_calls_before_the_first_table_wait_for_it(network):
    async def test(net):
        replica = await net.replica("a")
        net.submit()
        net.publish("a")
        assert (await replica.frame(0))[0] == Kind.CALL

    network(test)


def test_an_unknown_deployment_is_an_error_that_names_the_known_ones(network):
    async def test(net):
        await net.replica("a")
        net.publish("a")
        error = await net.submit(deployment=DeploymentId("app", "Modle")).ended()
        assert isinstance(error, DeploymentUnavailableError)
        assert "app#Model" in str(error)

    network(test)


def test_a_call_fails_at_its_deadline_and_is_cancelled_at_the_replica(network):
    async def test(net):
        replica = await net.replica("a")
        net.publish("a")
        call = net.submit(deadline=net.link.loop.time() + 0.1)
        _, call_id, _ = await replica.frame(0)
        assert isinstance(await call.ended(), RequestTimeoutError)
        assert (await replica.frame(1))[:2] == (Kind.CANCEL, call_id)
        replica.send(Kind.ERROR, call_id, b"")  # the late answer frees the slot, nothing more

    network(test)


def test_a_waiting_call_fails_at_its_deadline(network):
    async def test(net):
        net.publish()
        call = net.submit(deadline=net.link.loop.time() + 0.1)
        assert isinstance(await call.ended(), RequestTimeoutError)

    network(test)


def test_cancelled_calls_change_the_load(network):
    async def test(net):
        net.publish()
        call = net.submit()
        seen = []
        net.link.on_load = lambda: seen.append(net.link.loads()[DEPLOYMENT][0])
        net.link.cancel(call)
        assert seen == [0]

    network(test)


def test_unbegun_calls_of_a_dead_replica_go_to_another_one(network):
    async def test(net):
        first = await net.replica("a")
        net.publish("a")
        call = net.submit()
        _, call_id, _ = await first.frame(0)
        second = await net.replica("b")
        net.publish("a", "b")
        first.die()
        assert (await second.frame(0))[1] == call_id
        second.send(Kind.VALUE, call_id, b"value")
        assert await call.ended() == (Kind.VALUE, b"value")

    network(test)


def test_a_begun_call_of_a_dead_replica_fails(network):
    async def test(net):
        replica = await net.replica("a")
        net.publish("a")
        call = net.submit()
        replica.ledger.begin((await replica.frame(0))[1])
        replica.die()
        error = await call.ended()
        assert isinstance(error, ReplicaUnavailableError)
        assert "replica a died (its process ended)" in str(error)

    network(test)


@pytest.mark.parametrize("cause_comes_first", [True, False])
def test_the_error_of_a_begun_call_names_the_cause_of_the_death(network, cause_comes_first):
    async def test(net):
        replica = await net.replica("a")
        net.publish("a")
        call = net.submit()
        replica.ledger.begin((await replica.frame(0))[1])
        if cause_comes_first:
            net.depart(a="killed by SIGKILL")
        replica.die()
        if not cause_comes_first:
            await until(lambda: not net.link.statistics().connections)
            assert not call.outcome.done()
            net.depart(a="killed by SIGKILL")
        assert "replica a died (killed by SIGKILL)" in str(await call.ended())

    network(test)


def test_unbegun_calls_do_not_wait_for_the_cause(network):
    async def test(net):
        first, second = await net.replica("a"), await net.replica("b")
        net.publish("a", max_ongoing_requests=2)
        begun, unbegun = net.submit(), net.submit()
        first.ledger.begin((await first.frame(0))[1])
        await first.frame(1)
        net.publish("a", "b", max_ongoing_requests=2)
        first.die()
        await second.frame(0)
        assert not begun.outcome.done()
        second.send(Kind.VALUE, unbegun.call_id, b"value")
        assert await unbegun.ended() == (Kind.VALUE, b"value")
        assert isinstance(await begun.ended(), ReplicaUnavailableError)

    network(test)


def test_a_link_that_closes_ends_calls_that_wait_for_the_cause(network):
    async def test(net):
        replica = await net.replica("a")
        net.publish("a")
        call = net.submit()
        replica.ledger.begin((await replica.frame(0))[1])
        replica.die()
        await until(lambda: not net.link.statistics().connections)
        net.link.close(RuntimeError("closed"))
        assert call.outcome.done()

    network(test)


def test_a_removed_replica_answers_its_calls(network):
    async def test(net):
        first, second = await net.replica("a"), await net.replica("b")
        net.publish("a")
        call = net.submit()
        _, call_id, _ = await first.frame(0)
        net.publish("b")
        net.submit()
        assert (await second.frame(0))[0] == Kind.CALL
        first.send(Kind.VALUE, call_id, b"value")
        assert await call.ended() == (Kind.VALUE, b"value")

    network(test)


def test_a_replica_that_comes_back_into_the_table_gets_calls_again(network):
    async def test(net):
        replica = await net.replica("a")
        net.publish("a")
        first = net.submit()
        await replica.frame(0)
        net.publish()
        net.publish("a")
        net.submit()
        await replica.frame(1)
        assert len(replica.connections) == 1
        replica.send(Kind.VALUE, replica.frames[0][1], b"value")
        assert await first.ended() == (Kind.VALUE, b"value")
        net.submit()
        await replica.frame(2)

    network(test)


def test_a_replica_that_comes_back_while_the_link_connects_gets_one_connection(network):
    async def test(net):
        replica = await net.replica("a")
        for names in (["a"], [], ["a"]):
            net.publish(*names)
        net.submit()
        await replica.frame(0)
        await asyncio.sleep(0)
        assert len(replica.connections) == 1
        assert net.link.statistics().connections == 1

    network(test)


def test_the_link_connects_again_to_a_replica_that_is_still_in_the_table(network):
    async def test(net):
        replica = await net.replica("a")
        net.publish("a")
        net.submit()
        await replica.frame(0)
        for connection in replica.connections:
            connection.close()
        assert (await replica.frame(1))[0] == Kind.CALL

    network(test)


def test_a_busy_replica_gets_the_call_again_when_it_is_free(network):
    async def test(net):
        replica = await net.replica("a")
        net.publish("a")
        call = net.submit()
        _, call_id, _ = await replica.frame(0)
        replica.send(Kind.BUSY, call_id)
        replica.send(Kind.FREE)
        assert (await replica.frame(1))[1] == call_id
        replica.send(Kind.VALUE, call_id, b"value")
        assert await call.ended() == (Kind.VALUE, b"value")

    network(test)


def test_a_complete_table_removes_the_deployments_that_it_lacks(network):
    async def test(net):
        await net.replica("a")
        net.publish("a", max_ongoing_requests=1)
        running, waiting = net.submit(), net.submit()
        net.link.update(TableUpdate(version=9, is_complete=True))
        for call in (running, waiting):
            assert "deleted" in str(await call.ended())

    network(test)


def test_calls_in_flight_of_a_deleted_deployment_are_answered(network):
    async def test(net):
        replica = await net.replica("a")
        net.publish("a", max_ongoing_requests=1)
        running, waiting = net.submit(), net.submit()
        _, call_id, _ = await replica.frame(0)
        net.link.update(TableUpdate(version=9, is_complete=True))
        assert "deleted" in str(await waiting.ended())
        assert "deleted" in str(await net.submit().ended())
        replica.send(Kind.VALUE, call_id, b"value")
        assert await running.ended() == (Kind.VALUE, b"value")
        net.publish("a", max_ongoing_requests=1)
        net.submit()
        assert (await replica.frame(1))[0] == Kind.CALL

    network(test)


def test_a_process_without_the_key_is_refused(network):
    async def test(net):
        replica = await net.replica("a")
        net.link._key = b"other" * 8
        net.publish("a")
        call = net.submit(deadline=net.link.loop.time() + 0.3)
        assert isinstance(await call.ended(), RequestTimeoutError)
        assert not replica.connections
        assert not replica.frames

    network(test)


class RecordingSpinner:
    def __init__(self):
        self.events = []

    def start(self):
        self.events.append("start")

    def stop(self):
        self.events.append("stop")


def test_a_loop_spins_for_the_answer_of_its_only_call(network):
    async def test(net):
        spinner = net.link._spinner = RecordingSpinner()
        await net.replica("a")
        net.publish("a")
        net.submit()
        net.link.enter()
        net.submit()
        net.link.enter()  # the other call needs the processor
        net.link.leave()
        assert spinner.events == ["start", "stop"]

    network(test)
