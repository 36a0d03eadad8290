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
        results = handle.broadcast("__call__", 5).results(timeout_s=60)
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


def test_event_loops_and_threads_share_the_sockets(handle):
    found = {}

    def call(thread):
        found[thread] = [handle.remote((thread, count)).result() for count in range(200)]

    def call_on_a_loop(thread):
        async def calls():
            items = []
            for count in range(200):
                items.append(await handle.remote((thread, count)))
                if not count % 20:
                    stream = handle.options(stream=True).count.remote(5)
                    assert [item async for item in stream] == list(range(5))
            return items

        found[thread] = asyncio.run(calls())

    targets = [call, call_on_a_loop, call, call_on_a_loop]
    threads = [threading.Thread(target=each, args=(i,)) for i, each in enumerate(targets)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {thread: [(thread, count) for count in range(200)] for thread in range(4)}


def test_deadlines_end_while_an_event_loop_awaits(handle):
    async def late():
        with pytest.raises(TimeoutError):
            await handle.options(timeout_s=0.2).slow.remote()

    asyncio.run(asyncio.wait_for(late(), 60))


def test_a_blocked_event_loop_holds_up_no_other_caller(handle):
    ended = threading.Event()
    response = handle.remote(1)

    async def blocked():
        waits = asyncio.create_task(wait())
        await asyncio.sleep(0)
        response._call.call_back(ended.set)
        handle.remote(2)._call.call_back(ended.set)
        assert ended.wait(20)  # blocks the loop
        waits.cancel()

    async def wait():
        await handle.slow.remote()

    asyncio.run(blocked())


def test_calls_work_after_an_event_loop_that_ended_with_a_waiting_task(handle):
    async def abandon():
        asyncio.get_running_loop().call_later(0.05, asyncio.get_running_loop().stop)
        await handle.slow.remote()

    loop = asyncio.new_event_loop()
    loop.create_task(abandon())
    loop.run_forever()  # the task still waits
    assert asyncio.run(asyncio.wait_for(_value(handle), 60)) == 3
    assert handle.remote(4).result(timeout_s=60) == 4
    loop.run_until_complete(_cancel_others())
    loop.close()


async def _value(handle):
    return await handle.remote(3)


async def _cancel_others():
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait(others)
