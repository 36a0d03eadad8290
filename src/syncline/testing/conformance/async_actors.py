"""Actors with coroutine methods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import syncline
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import double, get
from syncline.testing.waiting import eventually


@syncline.remote
class Gate:
    """A method that waits for another call."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.inside = 0
        self.peak = 0
        self.cancelled = False

    async def wait(self) -> str:
        self.inside += 1
        try:
            await self.event.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "through"

    async def open(self) -> None:
        self.event.set()

    async def count(self) -> int:
        return self.inside

    async def was_cancelled(self) -> bool:
        return self.cancelled

    async def step(self) -> int:
        self.inside += 1
        self.peak = max(self.peak, self.inside)
        await asyncio.sleep(0.002)
        self.inside -= 1
        return self.peak

    def plain(self, x: int) -> int:
        return x + 1

    async def fail(self) -> None:
        raise ValueError("async")


class AsyncActors(Suite):
    """Concurrent calls on an event loop."""

    def test_calls_overlap(self) -> None:
        gate = Gate.remote()
        waiting = [gate.wait.remote() for _ in range(20)]
        get(gate.open.remote())
        assert get(waiting) == ["through"] * 20

    def test_ordinary_methods_work_beside_coroutines(self) -> None:
        assert get(Gate.remote().plain.remote(1)) == 2

    def test_constructor_may_start_coroutines(self) -> None:
        @syncline.remote
        class Ticking:
            def __init__(self) -> None:
                self.ticks = 0
                self.task = asyncio.create_task(self.tick())
                self.is_same = asyncio.get_event_loop() is asyncio.get_running_loop()

            async def tick(self) -> None:
                while True:
                    self.ticks += 1
                    await asyncio.sleep(0.001)

            async def count(self) -> int:
                return self.ticks if self.is_same else 0

        ticking = Ticking.remote()
        eventually(lambda: get(ticking.count.remote()) > 2)

    def test_error_of_a_coroutine_is_raised_by_get(self) -> None:
        with pytest.raises(ValueError, match="async"):
            get(Gate.remote().fail.remote())

    def test_max_concurrency_bounds_the_calls_at_once(self) -> None:
        gate = Gate.options(max_concurrency=2).remote()
        assert max(get([gate.step.remote() for _ in range(10)])) == 2

    def test_wait_and_timeout_of_a_call_that_waits(self) -> None:
        gate = Gate.remote()
        ref = gate.wait.remote()
        assert syncline.wait([ref], timeout=0.01) == ([], [ref])
        with pytest.raises(syncline.exceptions.GetTimeoutError):
            syncline.get(ref, timeout=0.01)
        gate.open.remote()
        assert get(ref) == "through"

    def test_coroutine_can_await_references(self) -> None:
        @syncline.remote
        class Asker:
            async def ask(self, x: int) -> object:
                return await double.remote(x)

            async def ask_other(self, other: Any) -> object:
                return await asyncio.gather(other.plain.remote(1), other.plain.remote(2))

        asker = Asker.remote()
        assert get([asker.ask.remote(2), asker.ask.remote(3)]) == [4, 6]
        assert get(asker.ask_other.remote(Gate.remote())) == [2, 3]

    def test_call_can_depend_on_a_call_that_has_not_ended(self) -> None:
        @syncline.remote
        def shout(text: str) -> str:
            return text.upper()

        gate = Gate.remote()
        louder = shout.remote(gate.wait.remote())
        get(gate.open.remote())
        assert get(louder) == "THROUGH"

    def test_concurrency_groups_have_limits_of_their_own(self) -> None:
        @syncline.remote(concurrency_groups={"io": 1, "compute": 2})
        class Grouped:
            def __init__(self) -> None:
                self.is_open = False

            @syncline.method(concurrency_group="io")
            async def wait(self) -> bool:
                while not self.is_open:
                    await asyncio.sleep(0.005)
                return True

            @syncline.method(concurrency_group="compute")
            async def release(self) -> None:
                self.is_open = True

            async def free(self) -> str:
                return "free"

        grouped = Grouped.remote()
        waiting = [grouped.wait.remote() for _ in range(3)]
        assert get(grouped.free.options(concurrency_group="compute").remote()) == "free"
        get(grouped.release.remote())
        assert get(waiting) == [True] * 3

    def test_killed_async_actor_fails_its_pending_calls(self) -> None:
        gate = Gate.remote()
        waiting = gate.wait.remote()
        get(gate.count.remote())
        syncline.kill(gate)
        with pytest.raises(syncline.exceptions.RayActorError):
            get(waiting)

    def test_cancelled_call_gets_cancelled_error(self) -> None:
        gate = Gate.remote()
        waiting = gate.wait.remote()
        get(gate.count.remote())
        syncline.cancel(waiting)
        with pytest.raises(syncline.exceptions.TaskCancelledError):
            get(waiting)
        other = gate.wait.remote()
        gate.open.remote()
        assert get(other) == "through"
        assert get(gate.was_cancelled.remote()) is True
