"""`util.ActorPool` and `util.queue.Queue`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import get
from syncline.util import ActorPool
from syncline.util.queue import Empty, Full, Queue


@syncline.remote
class Doubler:
    """An actor of the pool."""

    def double(self, x: int) -> int:
        if x < 0:
            raise ValueError(f"negative: {x}")
        return 2 * x


def _double(actor: Any, value: int) -> object:
    return actor.double.remote(value)


class ActorPools(Suite):
    """A pool of two actors."""

    @pytest.fixture
    def pool(self) -> object:
        return ActorPool([Doubler.remote(), Doubler.remote()])

    def test_map_keeps_the_order(self, pool: ActorPool[int]) -> None:
        assert list(pool.map(_double, range(7))) == [2 * i for i in range(7)]
        assert list(pool.map(_double, [5])) == [10]

    def test_map_unordered_gives_everything_once(self, pool: ActorPool[int]) -> None:
        assert sorted(pool.map_unordered(_double, range(7))) == [2 * i for i in range(7)]

    def test_submit_and_get_next(self, pool: ActorPool[int]) -> None:
        for i in range(4):
            pool.submit(_double, i)
        assert pool.has_next()
        assert [pool.get_next(timeout=60) for _ in range(4)] == [0, 2, 4, 6]
        assert not pool.has_next()
        with pytest.raises(StopIteration):
            pool.get_next()

    def test_get_next_unordered(self, pool: ActorPool[int]) -> None:
        for i in range(4):
            pool.submit(_double, i)
        assert sorted(pool.get_next_unordered(timeout=60) for _ in range(4)) == [0, 2, 4, 6]
        with pytest.raises(StopIteration):
            pool.get_next_unordered()

    def test_error_of_one_value_leaves_the_pool_usable(self, pool: ActorPool[int]) -> None:
        for i in (-1, 3):
            pool.submit(_double, i)
        with pytest.raises(ValueError, match="negative"):
            pool.get_next()
        assert pool.get_next() == 6
        assert list(pool.map(_double, range(3))) == [0, 2, 4]

    def test_idle_actors_can_be_popped_and_pushed(self, pool: ActorPool[int]) -> None:
        assert pool.has_free()
        first, second = pool.pop_idle(), pool.pop_idle()
        assert first != second
        assert pool.pop_idle() is None
        assert not pool.has_free()
        pool.submit(_double, 4)
        pool.push(first)
        assert pool.get_next(timeout=60) == 8
        with pytest.raises(ValueError):
            pool.push(first)

    def test_results_that_were_not_taken_are_discarded_by_map(self, pool: ActorPool[int]) -> None:
        pool.submit(_double, 100)
        assert list(pool.map(_double, [1])) == [2]

    def test_timeout_keeps_or_gives_up_the_result(self) -> None:
        @syncline.remote
        class Waiter:
            async def wait(self) -> None:
                await asyncio.Event().wait()

        pool: ActorPool[None] = ActorPool([Waiter.remote()])
        pool.submit(lambda actor, _: actor.wait.remote(), None)
        with pytest.raises(TimeoutError):
            pool.get_next(timeout=0.01)
        assert pool.has_next()
        with pytest.raises(TimeoutError):
            pool.get_next(timeout=0.01, ignore_if_timedout=True)
        assert not pool.has_next()

    def test_a_call_with_a_timeout_may_be_repeated(self) -> None:
        @syncline.remote
        class Gate:
            def __init__(self) -> None:
                self._open = asyncio.Event()

            async def wait(self) -> str:
                await self._open.wait()
                return "open"

            async def open(self) -> None:
                self._open.set()

        gate = Gate.remote()
        for method in ("get_next", "get_next_unordered"):
            pool: ActorPool[None] = ActorPool([gate])
            pool.submit(lambda actor, _: actor.wait.remote(), None)
            if method == "get_next":
                for _ in range(2):
                    with pytest.raises(TimeoutError):
                        pool.get_next_unordered(timeout=0.01)
                    with pytest.raises(TimeoutError):
                        pool.get_next(timeout=0.01)
                gate.open.remote()
            assert getattr(pool, method)(timeout=60) == "open"

    def test_function_may_return_several_references(self) -> None:
        @syncline.remote
        class Divider:
            @syncline.method(num_returns=2)
            def divide(self, x: int) -> tuple[int, int]:
                return divmod(x, 3)

        pool: ActorPool[int] = ActorPool([Divider.remote(), Divider.remote()])
        expected = [list(divmod(x, 3)) for x in range(5)]
        assert list(pool.map(lambda actor, x: actor.divide.remote(x), range(5))) == expected
        unordered = pool.map_unordered(lambda actor, x: actor.divide.remote(x), range(5))
        assert sorted(unordered) == sorted(expected)


class PoolsOfMortals(Suite):
    """A pool whose actors die."""

    needs = ("processes",)

    def test_actor_that_died_gets_no_more_work(self) -> None:
        pool: ActorPool[int] = ActorPool([Doubler.remote(), Doubler.remote()])
        actor = pool.pop_idle()
        pool.push(actor)
        pool.submit(_double, 1)
        assert pool.get_next() == 2
        syncline.kill(actor)
        for value in range(2):
            pool.submit(_double, value)
        failed = 0
        while pool.has_next():
            try:
                pool.get_next_unordered(timeout=60)
            except syncline.exceptions.ActorDiedError:
                failed += 1
        assert failed == 1
        assert list(pool.map(_double, range(4))) == [0, 2, 4, 6]


class Queues(Suite):
    """A queue in an actor."""

    def test_first_in_first_out(self) -> None:
        queue = Queue()
        for i in range(5):
            queue.put(i)
        assert queue.qsize() == queue.size() == len(queue) == 5
        assert not queue.empty()
        assert not queue.full()
        assert [queue.get() for _ in range(5)] == list(range(5))
        assert queue.empty()
        queue.shutdown()

    def test_full_queue_takes_nothing(self) -> None:
        queue = Queue(maxsize=2)
        queue.put_nowait(1)
        queue.put_nowait(2)
        assert queue.full()
        with pytest.raises(Full):
            queue.put_nowait(3)
        with pytest.raises(Full):
            queue.put(3, timeout=0.01)
        with pytest.raises(Full):
            queue.put_nowait_batch([3])
        assert queue.get_nowait_batch(2) == [1, 2]

    def test_empty_queue_gives_nothing(self) -> None:
        queue = Queue()
        with pytest.raises(Empty):
            queue.get_nowait()
        with pytest.raises(Empty):
            queue.get(timeout=0.01)
        queue.put(1)
        with pytest.raises(Empty):
            queue.get_nowait_batch(2)
        assert queue.get_nowait() == 1

    def test_negative_timeouts_and_sizes_are_refused(self) -> None:
        queue = Queue()
        with pytest.raises(ValueError):
            queue.put(1, timeout=-1)
        with pytest.raises(ValueError):
            queue.get(timeout=-1)
        with pytest.raises(TypeError):
            queue.get_nowait_batch("2")

    def test_coroutines(self) -> None:
        async def use() -> object:
            queue = Queue(maxsize=1)
            await queue.put_async("a")
            with pytest.raises(Full):
                await queue.put_async("b", block=False)
            first = await queue.get_async()
            taken = asyncio.ensure_future(queue.get_async())
            await queue.put_async("c")
            with pytest.raises(Empty):
                await asyncio.gather(taken, queue.get_async(timeout=0.01))
            return first, await taken

        assert asyncio.run(use()) == ("a", "c")

    def test_batches(self) -> None:
        queue = Queue()
        queue.put_nowait_batch(range(4))
        assert queue.get_nowait_batch(3) == [0, 1, 2]
        assert queue.get() == 3

    def test_tasks_share_a_queue(self) -> None:
        @syncline.remote
        def produce(queue: Any, n: int) -> None:
            for i in range(n):
                queue.put(i)

        queue = Queue()
        get(produce.remote(queue, 5))
        assert [queue.get(timeout=60) for _ in range(5)] == list(range(5))

    def test_queue_that_was_shut_down_does_not_answer(self) -> None:
        queue = Queue(actor_options={"num_cpus": 0})
        actor = queue.actor
        queue.shutdown(force=True)
        with pytest.raises(syncline.exceptions.RayActorError):
            get(actor.empty.remote())

    def test_queue_that_is_shut_down_finishes_its_calls(self) -> None:
        queue = Queue()
        actor = queue.actor
        queue.put(1)
        queue.shutdown()
        assert queue.actor is None
        queue.shutdown()
        with pytest.raises(syncline.exceptions.RayActorError):
            get(actor.full.remote())
