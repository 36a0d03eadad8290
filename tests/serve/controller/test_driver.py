"""What the controller stores before it acts, and what a restarted one does; without processes."""

import asyncio
import errno
import pickle
from types import SimpleNamespace

import pytest

from syncline.serve.controller import driver
from syncline.serve.controller import messages as m
from syncline.serve.controller.driver import Controller
from syncline.serve.controller.snapshot import Snapshot, SnapshotWriter
from syncline.serve.event_loop import new_event_loop
from syncline.serve.wire.connection import Hello
from syncline.serve.wire.routes import Address, TableUpdate
from tests.serve.controller.world import NODE, World, application, deployment

KEY = b"k" * 32
PAUSE_S = 0.05


class Store:
    """Snapshots in memory. Each takes `PAUSE_S` of the clock, as large ones do."""

    def __init__(self):
        self.data = {}
        self.now = 100.0
        self.is_full = False

    def clock(self):
        return self.now

    def load(self, name):
        return self.data.get(name)

    def save(self, name, data):
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.now += PAUSE_S
        self.data[name] = data

    def remove(self, name):
        self.data.pop(name, None)

    def clear(self):
        self.data.clear()

    def states(self):
        """Return the states of the stored replicas by their ids."""
        snapshot = SnapshotWriter(self).load()
        assert snapshot is not None
        return {
            replica.id: replica.state
            for app in (snapshot.state.applications if snapshot.state is not None else ())
            for each in app.deployments
            for replica in each.replicas
        }


class Actors:
    """Notes which actors are started, watched and killed, and what is stored at that time."""

    unknown: tuple[str, ...] = ()
    """Names of actors that an earlier controller started."""

    def __init__(self, loop, events):
        self.started = {}
        self.attached = []
        self.killed = []

    def start(self, start):
        self.started[start.config.replica_id] = STORE[0].states()

    def attach(self, name, *_, **__):
        self.attached.append(name)

    def kill(self, name):
        self.killed.append(name)

    def kill_unknown(self, prefix, known=()):
        pass

    def find_unknown(self, prefix, found):
        for name in self.unknown:
            if name.startswith(prefix):
                found(name)

    def close(self):
        pass


STORE: list[Store] = []


class FakePeer:
    """A subscriber and program: notes messages, and what is stored at that time."""

    def __init__(self, role="proxy", id="p"):
        self.name = id
        self.hello = self.peer = Hello(role=role, id=id, pid=1)
        self.is_closed = False
        self.replies = {}
        self.tables = []
        self.notices = []

    def notify(self, payload):
        message = pickle.loads(payload)
        self.notices.append(message)
        if isinstance(message, TableUpdate):
            routes = [each for route in message.deployments for each in route.replicas]
            self.tables.append(({each.replica_id for each in routes}, STORE[0].states()))

    def send(self, kind, call_id, payload):
        self.notify(payload)

    def reply(self, call_id, value):
        self.replies[call_id] = value

    def fail(self, call_id, error):
        self.replies[call_id] = error


class HeldTimers:
    """An event loop whose timers do not run."""

    def __init__(self, loop):
        self._loop = loop
        self.timers = []

    def __getattr__(self, name):
        return getattr(self._loop, name)

    def call_later(self, delay_s, function, *arguments):
        self.timers.append((delay_s, function))
        return self._loop.call_later(3600, function, *arguments)


@pytest.fixture
def controller(tmp_path, monkeypatch):
    """Runs the coroutine function of a test with a controller and its store."""
    engine = SimpleNamespace(
        runtime_info=lambda: SimpleNamespace(node_id=NODE), outlives_driver=False
    )
    monkeypatch.setattr(driver, "ensure_engine", lambda: engine)
    monkeypatch.setattr(driver, "ServeActors", Actors)
    store = Store()
    STORE[:] = [store]

    def run(test, *, before=None):
        async def body():
            if before is not None:
                state = before.machine.save()
                SnapshotWriter(store).save(Snapshot(key=KEY, directory=str(tmp_path), state=state))
            loop = asyncio.get_running_loop()
            made = Controller(loop, SnapshotWriter(store), tmp_path, clock=store.clock)
            await made.start()
            try:
                await asyncio.wait_for(test(made, store), 60)
            finally:
                made.close()

        loop = new_event_loop()
        try:
            loop.run_until_complete(body())
        finally:
            loop.close()

    return run


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


def deploy(controller, peer, **options):
    target = m.Deploy(applications=(application(deployment(**options)),), replace_all=False)
    controller.on_request(peer, 1, pickle.dumps(target))


def ready(replica_id):
    return m.ReplicaReady(
        replica_id=replica_id,
        address=Address(node_id=NODE, unix_path="/s"),
        ledger_path="/l",
        is_asgi=False,
        docs_path=None,
        pid=1,
        node_id=NODE,
        constructor_s=0.01,
    )


def test_targets_and_replicas_are_stored_before_they_exist(controller):
    async def test(made, store):
        program = FakePeer()
        deploy(made, program, num_replicas=2)
        assert program.replies == {1: {"app": 1}}
        assert len(made._actors.started) == 2
        for id, stored in made._actors.started.items():
            assert stored[id] == "STARTING"

    controller(test)


def test_replicas_are_stored_as_running_before_callers_know_them(controller):
    async def test(made, store):
        peer = FakePeer()
        made.on_notice(peer, m.Subscribe())
        deploy(made, peer, num_replicas=3)
        for id in made._actors.started:
            made.on_notice(peer, ready(id))
            await asyncio.sleep(0.01)
        await until(lambda: len(peer.tables[-1][0]) == 3)
        for published, stored in peer.tables:
            assert {stored[id] for id in published} <= {"RUNNING"}

    controller(test)


def test_events_after_a_large_snapshot_are_handled_together(controller):
    async def test(made, store):
        peer = FakePeer()
        made.on_notice(peer, m.Subscribe())
        await until(lambda: not made._will_settle)
        made._loop = held = HeldTimers(made._loop)
        deploy(made, peer, num_replicas=10)
        tables = len(peer.tables)
        for id in made._actors.started:
            made.on_notice(peer, ready(id))
            await asyncio.sleep(0)
        assert len(peer.tables) == tables
        [(pause_s, settle)] = [each for each in held.timers if each[1] == made._settle]
        assert pause_s == pytest.approx(PAUSE_S)  # half of the time is for snapshots
        settle()
        assert len(peer.tables) == tables + 1
        assert len(peer.tables[-1][0]) == 10

    controller(test)


def test_a_full_disk_does_not_stop_the_controller(controller, monkeypatch, caplog):
    monkeypatch.setattr(driver, "SAVE_AGAIN_S", 0.001)

    async def test(made, store):
        store.is_full = True
        program = FakePeer()
        deploy(made, program, num_replicas=2)
        assert len(made._actors.started) == 2
        assert program.replies == {1: {"app": 1}}
        assert "No space left on device" in caplog.text
        await asyncio.sleep(0.01)
        assert caplog.text.count("No space left") == 1
        store.is_full = False
        await until(lambda: len(store.states()) == 2)

    controller(test)


def test_an_unknown_replica_drains_instead_of_being_killed(controller, monkeypatch):
    monkeypatch.setattr(Actors, "unknown", ("SERVE_REPLICA::app#D#x", "SERVE_PROXY::p"))
    monkeypatch.setattr(driver, "DRAIN_UNKNOWN_S", 0.0)
    monkeypatch.setattr(driver, "KILL_MARGIN_S", 0.1)
    world = World()
    world.deploy(application(deployment(num_replicas=1)))
    world.run(1)

    async def test(made, store):
        assert {"SERVE_REPLICA::app#D#x", "SERVE_PROXY::p"} <= set(made._actors.attached)
        for role, id, kind in (("replica", "app#D#x", m.Drain), ("proxy", "p", m.DrainProxy)):
            peer = FakePeer(role, id)
            made._accept(peer)
            assert [type(each) for each in peer.notices] == [kind]
        assert made._actors.killed == []
        await until(lambda: "SERVE_REPLICA::app#D#x" in made._actors.killed)

    controller(test, before=world)
