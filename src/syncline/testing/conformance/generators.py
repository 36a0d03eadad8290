"""Generators of tasks and actors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import count, count_attempt, double, get, one


@syncline.remote
def breaks(n: int) -> Iterator[int]:
    """Yield the numbers from 0 to `n` - 1, then fail."""
    yield from range(n)
    raise KeyError("in the middle")


class Generators(Suite):
    """Generator tasks."""

    def test_streaming_gives_a_reference_per_item_in_order(self) -> None:
        stream = count.options(num_returns="streaming").remote(5)
        assert [get(ref) for ref in stream] == [0, 1, 2, 3, 4]

    def test_generator_function_streams_by_default(self) -> None:
        stream = count.remote(3)
        assert isinstance(stream, syncline.ObjectRefGenerator)
        assert [syncline.get(ref) for ref in stream] == [0, 1, 2]

    def test_empty_generator_ends_at_once(self) -> None:
        assert list(count.remote(0)) == []

    def test_error_inside_is_the_last_reference(self) -> None:
        @syncline.remote(num_returns="streaming")
        def breaks() -> Iterator[int]:
            yield 1
            raise KeyError("in the middle")

        refs = list(breaks.remote())
        assert len(refs) == 2
        assert syncline.get(refs[0]) == 1
        with pytest.raises(KeyError, match="in the middle"):
            syncline.get(refs[1])

    def test_dynamic_gives_one_reference_to_references(self) -> None:
        ref = count.options(num_returns="dynamic").remote(4)
        assert isinstance(ref, syncline.ObjectRef)
        assert [syncline.get(item) for item in syncline.get(ref)] == [0, 1, 2, 3]

    def test_generator_with_a_number_of_results_fills_them(self) -> None:
        assert get(count.options(num_returns=3).remote(3)) == [0, 1, 2]

    def test_generator_with_one_result_gives_its_value(self) -> None:
        assert get(count.options(num_returns=1).remote(1)) == 0

    def test_values_before_an_error_stay_readable(self) -> None:
        a, b, c = breaks.options(num_returns=3).remote(1)
        assert get(a) == 0
        for ref in (b, c):
            with pytest.raises(KeyError, match="in the middle"):
                get(ref)
        values, error = get(breaks.options(num_returns="dynamic").remote(1))
        assert get(values) == 0
        with pytest.raises(KeyError, match="in the middle"):
            get(error)

    def test_values_before_a_miscount_stay_readable(self) -> None:
        a, b, c = count.options(num_returns=3).remote(2)
        assert get([a, b]) == [0, 1]
        with pytest.raises(ValueError, match="3"):
            get(c)
        assert get(count.options(num_returns=2).remote(3)) == [0, 1]

    @pytest.mark.parametrize("num_returns", ["dynamic", "streaming"])
    def test_retry_of_an_exception_repeats_the_values(
        self, tmp_path: Path, num_returns: Any
    ) -> None:
        self._check_retries(tmp_path, num_returns)

    def test_retry_of_an_exception_repeats_a_number_of_values(self, tmp_path: Path) -> None:
        self._check_retries(tmp_path, 3)

    def _check_retries(self, tmp_path: Path, num_returns: Any) -> None:
        log = str(tmp_path / "attempts")

        @syncline.remote(num_returns=num_returns, max_retries=2, retry_exceptions=[KeyError])
        def flaky() -> Iterator[object]:
            attempt = count_attempt(log)
            for i in range(3):
                if i == attempt:
                    raise KeyError("not yet")
                yield np.full(50_000, i)

        made = flaky.remote()
        refs = get(made) if num_returns == "dynamic" else made
        assert [int(get(ref)[0]) for ref in refs] == [0, 1, 2]
        assert len(Path(log).read_text()) == 3

    def test_wait_for_the_next_item_of_a_generator(self, tmp_path: Path) -> None:
        mark = tmp_path / "go"

        @syncline.remote
        def numbers() -> Iterator[int]:
            yield 0
            while not mark.exists():
                time.sleep(0.005)
            yield 1

        stream, value = numbers.remote(), one.remote()
        assert not stream.is_finished()
        get(value)
        assert syncline.wait([stream, value], num_returns=2) == ([stream, value], [])
        assert get(next(stream)) == 0
        mark.touch()
        assert syncline.wait([stream], timeout=60) == ([stream], [])
        assert [get(ref) for ref in stream] == [1]
        assert syncline.wait([stream], timeout=60) == ([stream], [])
        assert stream.next_ready()
        assert list(stream) == []
        assert stream.is_finished()

    def test_generator_waits_while_enough_items_are_not_consumed(self, tmp_path: Path) -> None:
        log = tmp_path / "made"

        @syncline.remote(num_returns="streaming", _generator_backpressure_num_objects=2)
        def numbers() -> Iterator[int]:
            for i in range(8):
                count_attempt(log)
                yield i

        stream = numbers.remote()
        assert get(next(stream)) == 0
        get([one.remote() for _ in range(20)])
        assert len(log.read_text()) <= 4
        assert [get(ref) for ref in stream] == list(range(1, 8))

    def test_items_can_be_arguments_of_tasks(self) -> None:
        assert get([double.remote(ref) for ref in count.remote(4)]) == [0, 2, 4, 6]

    def test_asynchronous_iteration(self) -> None:
        async def collect() -> list[int]:
            return [await ref async for ref in count.remote(4)]

        assert asyncio.run(collect()) == [0, 1, 2, 3]

    def test_completed_is_ready_at_the_end(self) -> None:
        stream = count.remote(2)
        assert get(stream.completed()) is None
        assert [syncline.get(ref) for ref in stream] == [0, 1]

    def test_items_outlive_the_generator(self) -> None:
        @syncline.remote(num_returns="streaming")
        def arrays() -> Iterator[object]:
            for i in range(3):
                yield np.full(50_000, i)

        refs = list(arrays.remote())
        assert [int(array.sum()) for array in syncline.get(refs)] == [0, 50_000, 100_000]

    def test_generator_can_be_handed_to_a_task(self) -> None:
        @syncline.remote
        def total(box: list[Any]) -> int:
            return sum(syncline.get(ref) for ref in box[0])

        assert get(total.remote([count.remote(4)])) == 6

    def test_dropping_the_generator_early_is_harmless(self) -> None:
        stream = count.remote(100)
        assert get(next(stream)) == 0
        del stream
        assert get(one.remote()) == 1


class ActorGenerators(Suite):
    """Generator methods."""

    def test_generator_method_streams(self) -> None:
        @syncline.remote
        class Counter:
            def count(self, n: int) -> Iterator[int]:
                yield from range(n)

        stream = Counter.remote().count.options(num_returns="streaming").remote(3)
        assert [syncline.get(ref) for ref in stream] == [0, 1, 2]

    def test_asynchronous_generator_method_streams(self) -> None:
        @syncline.remote
        class Counter:
            async def count(self, n: int) -> AsyncIterator[int]:
                for i in range(n):
                    await asyncio.sleep(0)
                    yield i

        stream = Counter.remote().count.options(num_returns="streaming").remote(3)
        assert [syncline.get(ref) for ref in stream] == [0, 1, 2]

    def test_error_in_an_asynchronous_generator_is_the_last_reference(self) -> None:
        @syncline.remote
        class Counter:
            async def count(self) -> AsyncIterator[int]:
                yield 1
                raise ValueError("enough")

        refs = list(Counter.remote().count.options(num_returns="streaming").remote())
        assert syncline.get(refs[0]) == 1
        with pytest.raises(ValueError, match="enough"):
            syncline.get(refs[1])

    def test_generator_method_with_a_number_of_results(self) -> None:
        @syncline.remote
        class Counter:
            def count(self, n: int) -> Iterator[int]:
                yield from range(n)
                raise KeyError("in the middle")

        @syncline.remote
        class AsyncCounter:
            async def count(self, n: int) -> AsyncIterator[int]:
                for i in range(n):
                    yield i
                raise KeyError("in the middle")

        for counter in (Counter.remote(), AsyncCounter.remote()):
            a, b, c = counter.count.options(num_returns=3).remote(2)
            assert get([a, b]) == [0, 1]
            with pytest.raises(KeyError, match="in the middle"):
                get(c)

    def test_method_decorated_as_streaming(self) -> None:
        @syncline.remote
        class Counter:
            @syncline.method(num_returns="streaming")
            def count(self) -> Iterator[int]:
                yield from range(2)

        assert [syncline.get(ref) for ref in Counter.remote().count.remote()] == [0, 1]
