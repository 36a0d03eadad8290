"""Generators of tasks and actors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syncline
from syncline.testing.conformance.suite import Suite


class Generators(Suite):
    """Generator tasks."""

    def test_streaming_gives_a_reference_per_item_in_order(self) -> None:
        @syncline.remote(num_returns="streaming")
        def count(n: int) -> Iterator[object]:
            for i in range(n):
                yield np.full(10, i)

        assert [int(syncline.get(ref)[0]) for ref in count.remote(5)] == [0, 1, 2, 3, 4]

    def test_generator_function_streams_by_default(self) -> None:
        @syncline.remote
        def count() -> Iterator[int]:
            yield from range(3)

        stream = count.remote()
        assert isinstance(stream, syncline.ObjectRefGenerator)
        assert [syncline.get(ref) for ref in stream] == [0, 1, 2]

    def test_empty_generator_ends_at_once(self) -> None:
        @syncline.remote(num_returns="streaming")
        def nothing() -> Iterator[int]:
            yield from ()

        assert list(nothing.remote()) == []

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
        @syncline.remote(num_returns="dynamic")
        def count(n: int) -> Iterator[int]:
            yield from range(n)

        ref = count.remote(4)
        assert isinstance(ref, syncline.ObjectRef)
        assert [syncline.get(item) for item in syncline.get(ref)] == [0, 1, 2, 3]

    def test_generator_with_a_number_of_results_fills_them(self) -> None:
        @syncline.remote(num_returns=3)
        def three() -> Iterator[int]:
            yield from (7, 8, 9)

        assert syncline.get(three.remote()) == [7, 8, 9]

    def test_items_can_be_arguments_of_tasks(self) -> None:
        @syncline.remote(num_returns="streaming")
        def count() -> Iterator[int]:
            yield from range(4)

        @syncline.remote
        def double(x: int) -> int:
            return 2 * x

        assert syncline.get([double.remote(ref) for ref in count.remote()]) == [0, 2, 4, 6]

    def test_asynchronous_iteration(self) -> None:
        @syncline.remote(num_returns="streaming")
        def count() -> Iterator[int]:
            yield from range(4)

        async def collect() -> list[int]:
            return [await ref async for ref in count.remote()]

        assert asyncio.run(collect()) == [0, 1, 2, 3]

    def test_completed_is_ready_at_the_end(self) -> None:
        @syncline.remote(num_returns="streaming")
        def count() -> Iterator[int]:
            yield from range(2)

        stream = count.remote()
        assert syncline.get(stream.completed(), timeout=60) is None
        assert [syncline.get(ref) for ref in stream] == [0, 1]

    def test_items_outlive_the_generator(self) -> None:
        @syncline.remote(num_returns="streaming")
        def count() -> Iterator[object]:
            for i in range(3):
                yield np.full(50_000, i)

        refs = list(count.remote())
        assert [int(array.sum()) for array in syncline.get(refs)] == [0, 50_000, 100_000]

    def test_generator_can_be_handed_to_a_task(self) -> None:
        @syncline.remote(num_returns="streaming")
        def count() -> Iterator[int]:
            yield from range(4)

        @syncline.remote
        def total(box: list[Any]) -> int:
            return sum(syncline.get(ref) for ref in box[0])

        assert syncline.get(total.remote([count.remote()])) == 6

    def test_dropping_the_generator_early_is_harmless(self, tmp_path: Path) -> None:
        @syncline.remote(num_returns="streaming")
        def count() -> Iterator[int]:
            yield from range(100)

        stream = count.remote()
        assert syncline.get(next(stream)) == 0
        del stream

        @syncline.remote
        def one() -> int:
            return 1

        assert syncline.get(one.remote(), timeout=60) == 1


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

    def test_method_decorated_as_streaming(self) -> None:
        @syncline.remote
        class Counter:
            @syncline.method(num_returns="streaming")
            def count(self) -> Iterator[int]:
                yield from range(2)

        assert [syncline.get(ref) for ref in Counter.remote().count.remote()] == [0, 1]
