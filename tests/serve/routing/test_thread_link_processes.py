"""Calls of a program whose threads read the sockets themselves."""

import asyncio
import threading
import time

import pytest

import syncline
from syncline import serve

pytestmark = pytest.mark.processes


@serve.deployment(max_ongoing_requests=100, ray_actor_options={"num_cpus": 0.1})
class Echo:
    async def __call__(self, value):
        return value

    async def slow(self):
        await asyncio.sleep(60)

    async def count(self, limit):
        for i in range(limit):
            yield i


@pytest.fixture(scope="module")
def handle():
    yield serve.run(Echo.bind(), name="echo", route_prefix=None)
    syncline.shutdown()


def test_deadlines_end_although_a_thread_calls_one_by_one(handle):
    late = handle.options(timeout_s=0.2).slow.remote()
    end = time.monotonic() + 20
    while not late._call.is_done:
        assert time.monotonic() < end, "nobody looked after the timers"
        assert handle.remote(1).result() == 1
    with pytest.raises(TimeoutError):
        late.result()


def test_updates_arrive_although_a_thread_calls_one_by_one(handle):
    stopped = threading.Event()
    failures = []

    def call():
        count = 0
        while not stopped.is_set():
            try:
                assert handle.remote(count).result() == count
            except BaseException as error:
                failures.append(error)
                return
            count += 1

    caller = threading.Thread(target=call)
    caller.start()
    try:
        two = Echo.options(num_replicas=2)
        serve.run(two.bind(), name="echo", route_prefix=None)
        results = handle.broadcast("__call__", 5).results(timeout_s=20)
    finally:
        stopped.set()
        caller.join()
    assert results == [5, 5]
    assert not failures


def test_several_threads_and_streams_share_the_sockets(handle):
    found = {}

    def call(thread):
        items = []
        for count in range(200):
            items.append(handle.remote((thread, count)).result())
            if not count % 20:
                assert list(handle.options(stream=True).count.remote(5)) == list(range(5))
        found[thread] = items

    threads = [threading.Thread(target=call, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {thread: [(thread, count) for count in range(200)] for thread in range(4)}
