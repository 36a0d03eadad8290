"""Values in files of shared memory: when they are used, and when the files are removed."""

import asyncio
import os
import signal
import subprocess
import threading

import numpy as np
import pytest

import syncline
from syncline import serve
from syncline.core.api import ensure_engine
from syncline.serve.wire import shared_values
from syncline.serve.wire.values import (
    CallMeta,
    pack_call,
    pack_value,
    split_call,
    unpack_call,
    unpack_value,
)
from tests.serve.faults.harness import replicas, wait_until

LARGE = np.arange(200_000, dtype=np.float64)
SMALL = LARGE[:1000]
META = CallMeta("m", "id", None, "", "", False, "app", "")


@pytest.fixture
def folder(tmp_path):
    before = shared_values._state.directory
    shared_values.use(tmp_path)
    yield tmp_path / "serve"
    shared_values._state.directory = before


def files(folder):
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_arguments_live_as_long_as_the_call(folder):
    parts = pack_call(META, (LARGE, 1), {"k": SMALL})
    assert len(files(folder)) == 1
    for _ in range(2):  # the call may be sent again
        meta, args, kwargs = unpack_call(b"".join(parts))
        assert meta == META
        assert np.array_equal(args[0], LARGE)
        assert np.array_equal(kwargs["k"], SMALL)
        assert not args[0].flags.writeable
    del parts
    assert files(folder) == []
    assert np.array_equal(args[0], LARGE)  # the mapping is alive


def test_call_that_has_ended_raises_when_its_arguments_are_read(folder):
    payload = b"".join(pack_call(META, (LARGE,), {}))
    meta, arguments = split_call(payload)
    assert meta.method == "m"
    with pytest.raises(FileNotFoundError):
        unpack_value(arguments)


def test_result_belongs_to_its_receiver(folder):
    (payload,) = pack_value(LARGE, may_share=True)
    name = payload.disown()
    del payload.file
    assert os.path.exists(name)
    mapped = shared_values.open_payload(payload, take=True)
    assert files(folder) == []
    assert np.array_equal(shared_values.unpack(mapped), LARGE)


def test_unwanted_result_is_removed(folder):
    (payload,) = pack_value(LARGE, may_share=True)
    payload.disown()
    shared_values.discard(bytes(payload))
    assert files(folder) == []
    shared_values.discard(pack_value(1)[0])


def test_small_values_and_items_of_streams_use_the_socket(folder):
    pack_value(SMALL, may_share=True)
    parts = pack_value(LARGE)
    assert files(folder) == []
    assert np.array_equal(unpack_value(b"".join(parts)), LARGE)


def test_full_disk_leaves_the_value_to_the_socket(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_values.segments, "write", full)
    parts = pack_value(LARGE, may_share=True)
    assert files(folder) == []
    assert np.array_equal(unpack_value(b"".join(parts)), LARGE)


def test_sweep_removes_the_files_of_ended_processes(folder, tmp_path):
    ended = subprocess.Popen(["true"])
    ended.wait()
    folder.mkdir()
    (folder / f"{ended.pid}-0").touch()
    (folder / f"{os.getpid()}-0").touch()
    shared_values.sweep(tmp_path)
    assert files(folder) == [f"{os.getpid()}-0"]
    shared_values.sweep(tmp_path / "nothing")


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Store:
    """Keeps what it gets."""

    async def take(self, array):
        self.array = array
        return float(array.sum())

    async def give(self):
        return self.array

    async def hold(self, array, gate):
        while not os.path.exists(gate):
            await asyncio.sleep(0.01)
        return array

    def die(self, array):
        os.kill(os.getpid(), signal.SIGKILL)


def session_files():
    directory = ensure_engine().shared_directory
    return files(directory / "serve")


@pytest.fixture
def running():
    syncline.init(num_cpus=2)
    yield
    serve.shutdown()
    syncline.shutdown()


@pytest.mark.processes
def test_arrays_arrive_and_leave_no_file(running, tmp_path):
    handle = serve.run(Store.bind(), route_prefix=None)
    for _ in range(100):
        assert handle.take.remote(LARGE).result(timeout_s=30) == LARGE.sum()
    assert np.array_equal(handle.give.remote().result(timeout_s=30), LARGE)
    assert session_files() == []
    for _ in range(40):  # nobody reads the results
        handle.give.remote()
    handle.take.remote(LARGE).result(timeout_s=30)
    wait_until(lambda: session_files() == [])
    held = handle.hold.remote(LARGE, str(tmp_path / "gate"))
    wait_until(lambda: len(session_files()) == 1)
    held.cancel()
    wait_until(lambda: session_files() == [])


@pytest.mark.processes
def test_killed_replica_leaves_no_file_and_the_array_arrives_at_the_next(running):
    handle = serve.run(Store.bind(), route_prefix=None)
    with pytest.raises(serve.exceptions.ReplicaUnavailableError):
        handle.die.remote(LARGE).result(timeout_s=30)
    assert session_files() == []
    assert handle.take.remote(LARGE).result(timeout_s=30) == LARGE.sum()


@pytest.mark.processes
def test_array_for_a_replica_that_is_killed_before_it_begins_is_sent_again(running):
    handle = serve.run(Store.bind(), route_prefix=None)
    handle.take.remote(SMALL).result(timeout_s=30)
    (replica,) = replicas()
    os.kill(replica.pid, signal.SIGSTOP)
    results = []
    thread = threading.Thread(
        target=lambda: results.append(handle.take.remote(LARGE).result(timeout_s=30))
    )
    thread.start()
    wait_until(lambda: len(session_files()) == 1)
    os.kill(replica.pid, signal.SIGKILL)
    thread.join(30)
    assert results == [LARGE.sum()]
    assert session_files() == []


@pytest.mark.processes
def test_files_of_a_killed_caller_are_removed(running, tmp_path):
    serve.run(Store.bind(), route_prefix=None)
    gate = str(tmp_path / "gate")

    @syncline.remote(max_restarts=0, num_cpus=0.1)
    class Caller:
        def pid(self):
            return os.getpid()

        def call(self):
            handle = serve.get_deployment_handle("Store", "default")
            return handle.hold.remote(LARGE, gate).result()

    caller = Caller.remote()
    pid = syncline.get(caller.pid.remote())
    caller.call.remote()
    wait_until(lambda: session_files() != [])
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: session_files() == [])
