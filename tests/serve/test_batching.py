import asyncio
import pickle
import random
from typing import Any

import cloudpickle
import pytest

from syncline.serve import batching
from syncline.serve.batching import batch
from syncline.serve.context import RequestContext, request_context
from syncline.serve.exceptions import RayServeException, RequestCancelledError


class Doubler:
    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    @batch(max_batch_size=4, batch_wait_timeout_s=0.01)
    async def double(self, items: list[int]) -> list[int]:
        self.batches.append(items)
        return [2 * item for item in items]

    @batch(max_batch_size=4, batch_wait_timeout_s=0.0)
    async def stream(self, counts: list[int]):
        """Yield each number below the caller's count."""
        for step in range(max(counts)):
            yield [step if step < count else StopIteration for count in counts]


def test_concurrent_calls_share_a_batch_and_get_their_own_results():
    async def scenario() -> None:
        doubler = Doubler()
        assert await asyncio.gather(*[doubler.double(i) for i in range(6)]) == [0, 2, 4, 6, 8, 10]
        assert doubler.batches == [[0, 1, 2, 3], [4, 5]]

    asyncio.run(scenario())


def test_function_without_brackets_and_with_keywords():
    @batch
    async def add(left, right):
        assert isinstance(left, list)
        return [a + b for a, b in zip(left, right, strict=True)]

    async def scenario() -> None:
        results = await asyncio.gather(add(1, right=2), add(3, right=4), add(5, 6))
        assert results == [3, 7, 11]

    asyncio.run(scenario())


def test_instances_have_their_own_queues():
    async def scenario() -> None:
        first, second = Doubler(), Doubler()
        await asyncio.gather(first.double(1), second.double(2), first.double(3))
        assert (first.batches, second.batches) == ([[1, 3]], [[2]])

    asyncio.run(scenario())


def test_queue_works_again_on_another_event_loop():
    doubler = Doubler()
    assert [asyncio.run(doubler.double(i)) for i in range(2)] == [0, 2]


def test_decorated_class_and_its_used_instances_can_be_pickled():
    doubler = Doubler()
    asyncio.run(doubler.double(1))
    copy = cloudpickle.loads(cloudpickle.dumps(doubler))
    assert asyncio.run(copy.double(4)) == 8
    cls = pickle.loads(cloudpickle.dumps(Doubler))
    assert asyncio.run(cls().double(4)) == 8


def test_generator_streams_to_each_caller_until_its_end():
    async def collect(doubler: Doubler, count: int) -> list[int]:
        return [item async for item in doubler.stream(count)]

    async def scenario() -> None:
        doubler = Doubler()
        streams = await asyncio.gather(*[collect(doubler, count) for count in (3, 1, 2)])
        assert streams == [[0, 1, 2], [0], [0, 1]]

    asyncio.run(scenario())


def test_generator_ends_when_all_its_callers_have_left():
    closed = asyncio.Event()

    @batch
    async def endless(items):
        try:
            while True:
                await asyncio.sleep(0)
                yield items
        finally:
            closed.set()

    async def scenario() -> None:
        stream = endless(1)
        assert await anext(stream) == 1
        await stream.aclose()
        await asyncio.wait_for(closed.wait(), 60)

    asyncio.run(scenario())


def test_exception_reaches_every_caller():
    @batch
    async def fail(items):
        raise KeyError(f"no {len(items)}")

    async def scenario() -> None:
        results = await asyncio.gather(*[fail(i) for i in range(3)], return_exceptions=True)
        assert [repr(result) for result in results] == ["KeyError('no 3')"] * 3
        assert len({id(result) for result in results}) == 3  # their tracebacks do not mix

    asyncio.run(scenario())


def test_exception_of_a_generator_reaches_the_open_streams():
    @batch
    async def fail(items):
        yield [item if item else StopIteration for item in items]
        raise KeyError("later")

    async def collect(item: int) -> list[object]:
        found: list[object] = []
        try:
            async for each in fail(item):
                found.append(each)
        except KeyError as error:
            found.append(repr(error))
        return found

    async def scenario() -> None:
        assert await asyncio.gather(collect(1), collect(0)) == [[1, "KeyError('later')"], []]

    asyncio.run(scenario())


@pytest.mark.parametrize("result", [[1], None, "ab", {1: 1, 2: 2}, 5])
def test_wrong_results_are_an_error_for_every_caller(result):
    @batch
    async def wrong(items):
        return result

    async def scenario() -> None:
        results = await asyncio.gather(wrong(1), wrong(2), return_exceptions=True)
        assert all(isinstance(each, RayServeException) for each in results), results
        assert "wrong" in str(results[0])

    asyncio.run(scenario())


def test_cancelled_item_leaves_before_the_batch_starts():
    batches = []

    @batch(max_batch_size=3, batch_wait_timeout_s=60)
    async def double(items):
        batches.append(items)
        return [2 * item for item in items]

    async def scenario() -> None:
        calls = [asyncio.ensure_future(double(i)) for i in range(2)]
        await asyncio.sleep(0)
        calls[1].cancel()
        assert await asyncio.gather(calls[0], double(2), double(3)) == [0, 4, 6]
        assert batches == [[0, 2, 3]]

    asyncio.run(scenario())


def test_batch_is_cancelled_with_its_last_caller():
    ended = asyncio.Event()

    @batch(batch_wait_timeout_s=0)
    async def slow(items):
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def scenario() -> None:
        calls = [asyncio.ensure_future(slow(i)) for i in range(2)]
        await asyncio.sleep(0.05)
        calls[0].cancel()
        await asyncio.sleep(0.01)
        assert not ended.is_set()
        calls[1].cancel()
        await asyncio.wait_for(ended.wait(), 60)
        assert all(isinstance(e, asyncio.CancelledError) for e in await gathered(calls))

    async def gathered(calls):
        return await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(scenario())


def test_batch_that_cancels_itself_is_an_error_and_not_a_hang():
    @batch
    async def quit(items):
        raise asyncio.CancelledError

    async def scenario() -> None:
        results = await asyncio.gather(quit(1), quit(2), return_exceptions=True)
        assert all(isinstance(each, RequestCancelledError) for each in results), results
        assert await asyncio.gather(quit(3), return_exceptions=True)  # the queue goes on

    asyncio.run(scenario())


def test_batch_runs_in_a_context_with_the_model_of_its_items():
    seen: list[tuple[str, list[int]]] = []

    @batch
    async def model_of(items):
        context = request_context.get()
        assert context is not None
        assert context.deadline is None
        seen.append((context.multiplexed_model_id, items))
        return items

    async def call(item: int) -> None:
        model = "ab"[item % 2]
        request_context.set(RequestContext(multiplexed_model_id=model, deadline=1.0))
        await model_of(item)

    async def scenario() -> None:
        await asyncio.gather(*[asyncio.create_task(call(i)) for i in range(4)])

    asyncio.run(scenario())
    assert sorted(seen) == [("a", [0, 2]), ("b", [1, 3])]


def test_setters_change_a_running_queue():
    async def scenario() -> None:
        doubler = Doubler()
        double: Any = doubler.double
        await double(0)
        double.set_max_batch_size(2)
        double.set_batch_wait_timeout_s(0.02)
        await asyncio.gather(*[double(i) for i in range(4)])
        assert doubler.batches == [[0], [0, 1], [2, 3]]
        assert double.get_batch_wait_timeout_s() == 0.02
        double.set_max_batch_size(4)
        for wrong, error in ((0, ValueError), ("2", TypeError), (1.5, TypeError)):
            with pytest.raises(error, match="max_batch_size"):
                double.set_max_batch_size(wrong)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_batch_size": 0}, ValueError),
        ({"max_batch_size": "ten"}, TypeError),
        ({"max_batch_size": True}, TypeError),
        ({"batch_wait_timeout_s": -1}, ValueError),
        ({"batch_wait_timeout_s": "soon"}, TypeError),
        ({"batch_wait_timeout_s": float("inf")}, ValueError),
        ({"max_concurrent_batches": 0}, ValueError),
        ({"batch_size_fn": 3}, TypeError),
    ],
)
def test_impossible_options_are_refused(options, error):
    with pytest.raises(error, match=next(iter(options))):
        batch(**options)


def test_sync_function_is_refused():
    with pytest.raises(TypeError, match="async def"):

        @batch
        def sync(items):
            return items


def test_auto_does_not_make_a_single_caller_wait():
    @batch(batch_wait_timeout_s="auto")
    async def same(items):
        return items

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for i in range(50):
            assert await same(i) == i
        assert loop.time() - began < 0.5  # the default timeout would take 0.5 s

    asyncio.run(scenario())


def test_every_call_ends_in_a_walk_with_errors_and_cancellations():
    """Random calls, cancellations, failing batches and failing size functions."""

    def size(items: list[int]) -> int:
        if any(item % 11 == 0 for item in items):
            raise ValueError("no size")
        return len(items)

    async def walk(seed: int) -> None:
        chance = random.Random(seed)

        @batch(
            max_batch_size=chance.randint(1, 5),
            batch_wait_timeout_s=chance.choice([0, 0.001, "auto"]),
            max_concurrent_batches=chance.randint(1, 3),
            batch_size_fn=chance.choice([None, size]),
        )
        async def work(items):
            await asyncio.sleep(chance.random() * 0.002)
            if chance.random() < 0.2:
                raise RuntimeError("batch")
            if chance.random() < 0.1:
                return items[:-1]
            return items

        calls = []
        for i in range(300):
            calls.append(asyncio.ensure_future(work(i)))
            if chance.random() < 0.2:
                chance.choice(calls).cancel()
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() * 0.002)
        done, pending = await asyncio.wait(calls, timeout=60)
        assert not pending, f"{len(pending)} calls hang (seed {seed})"
        for i, call in enumerate(calls):
            if not call.cancelled() and call.exception() is None:
                assert call.result() == i

    for seed in range(6):
        asyncio.run(walk(seed))


def test_statistics_name_the_method():
    async def scenario() -> None:
        doubler = Doubler()
        await asyncio.gather(*[doubler.double(i) for i in range(6)])
        statistics = batching.statistics_of(doubler)["double"]
        assert (statistics.batches, statistics.items, statistics.queued) == (2, 6, 0)

    asyncio.run(scenario())
