"""Admission, ledger and order of calls at the sockets of a replica."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from syncline.serve.replica import ledger
from syncline.serve.replica.ledger import LEAST_SLOTS
from syncline.serve.wire.connection import LoopConnection
from syncline.serve.wire.frames import Kind
from tests.serve.replica.harness import run, staged


class Gate:
    """Handlers that wait until the test opens the gate."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.running = 0
        self.most = 0

    async def __call__(self, request: Any = None) -> str:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        return "done"

    async def has_running(self, number: int) -> None:
        async def poll() -> None:
            while self.running < number:
                await asyncio.sleep(0.001)

        await asyncio.wait_for(poll(), 60)


def gated(gate: Gate) -> Any:
    async def handler(request: Request):
        return await gate()

    return handler


def test_calls_beyond_the_limit_are_busy_until_a_slot_is_free(tmp_path):
    async def scenario() -> None:
        gate = Gate()
        async with staged(tmp_path, gated(gate), options={"max_ongoing_requests": 2}) as stage:
            first, second = await stage.connect(), await stage.connect()
            calls = [first.http(), first.http()]
            await gate.has_running(2)
            refused = second.http()
            assert (await refused.end()) == [(Kind.BUSY, b"")]
            assert not second.freed.is_set()
            gate.open.set()
            for call in calls:
                assert (await call.response()).status == 200
            await asyncio.wait_for(second.freed.wait(), 60)
            assert not first.freed.is_set()
            assert (await second.http().response()).status == 200
            assert gate.most == 2

    run(scenario)


def test_ledger_has_the_calls_that_have_begun(tmp_path):
    async def scenario() -> None:
        gate = Gate()
        async with staged(tmp_path, gated(gate), options={"max_ongoing_requests": 2}) as stage:
            caller = await stage.connect()
            calls = [caller.http() for _ in range(3)]
            assert (await calls[2].end())[-1][0] == Kind.BUSY
            path = stage.config.ledger_path
            assert ledger.read(path) == {calls[0].call_id, calls[1].call_id}
            gate.open.set()
            await calls[0].response()

    run(scenario)


def test_slots_of_the_ledger_are_used_again(tmp_path):
    async def handler(request: Request):
        return 1

    async def scenario() -> None:
        async with staged(tmp_path, handler, options={"max_ongoing_requests": 50}) as stage:
            caller = await stage.connect()
            for _ in range(3 * LEAST_SLOTS // 50):
                for call in [caller.http() for _ in range(50)]:
                    await call.response()
            begun = ledger.read(stage.config.ledger_path)
            assert begun is not None
            assert len(begun) <= LEAST_SLOTS

    run(scenario)


def test_caller_that_does_not_read_its_answers_keeps_its_calls_in_the_ledger(tmp_path):
    """A call whose answer is not in the socket would be lost with the replica."""

    async def handler(request: Request):
        return "x" * 500_000

    async def scenario() -> None:
        async with staged(tmp_path, handler, options={"max_ongoing_requests": 1000}) as stage:
            reads, other = await stage.connect(), await stage.connect()
            transport = reads.connection._transport
            assert transport is not None
            transport.pause_reading()
            calls = [reads.http() for _ in range(20)]
            for _ in range(LEAST_SLOTS + 10):
                await other.http().end()
            begun = ledger.read(stage.config.ledger_path)
            assert begun is not None
            assert {call.call_id for call in calls} <= begun
            transport.resume_reading()
            for call in calls:
                assert (await call.response()).status == 200

    run(scenario)


def test_frames_of_unknown_calls_are_ignored(tmp_path):
    async def handler(request: Request):
        return 1

    async def scenario() -> None:
        async with staged(tmp_path, handler) as stage:
            caller = await stage.connect()
            for kind in (Kind.BODY, Kind.CANCEL, Kind.WINDOW):
                caller.connection.send(kind, 77, b"\x01\x00\x00\x00")
            assert (await caller.http().response()).status == 200

    run(scenario)


def test_higher_limit_is_used_at_once(tmp_path):
    async def scenario() -> None:
        gate = Gate()
        async with staged(tmp_path, gated(gate), options={"max_ongoing_requests": 1}) as stage:
            caller = await stage.connect()
            call = caller.http()
            assert (await caller.http().end())[-1][0] == Kind.BUSY
            stage.replica.dispatcher.resize(2)
            await asyncio.wait_for(caller.freed.wait(), 60)
            second = caller.http()
            gate.open.set()
            assert (await call.response()).status == 200
            assert (await second.response()).status == 200

    run(scenario)


@pytest.mark.parametrize("count", [500])
def test_counts_return_to_zero_after_a_walk_of_all_outcomes(tmp_path, count):
    class Walk:
        async def __call__(self, request: Request):
            what = request.url.path
            if what == "/fail":
                raise ValueError("no")
            if what == "/slow":
                await asyncio.sleep(60)
            await asyncio.sleep(0)
            return what

        def sync(self, value: int) -> int:
            return value

        async def words(self, count: int):
            for i in range(count):
                yield i

    async def scenario() -> None:
        async with staged(tmp_path, Walk, options={"max_ongoing_requests": 1000}) as stage:
            caller = await stage.connect()
            calls = []
            for i in range(count):
                what = i % 6
                if what < 2:
                    calls.append(caller.http((b"/", b"/fail")[what]))
                elif what == 2:
                    calls.append(caller.http(b"/slow"))
                    calls[-1].send(Kind.CANCEL)
                elif what == 3:
                    calls.append(caller.call("sync", i))
                elif what == 4:
                    calls.append(caller.stream("words", i))
                else:
                    calls.append(caller.call_with({"timeout_s": 0.001}, "sync", i))
            for call in calls:
                await call.end()
            statistics = stage.replica.dispatcher.statistics()
            assert statistics.admission.ongoing == statistics.running == 0
            assert statistics.answered == count

    run(scenario)


def test_the_time_in_the_replica_ends_before_the_answer_is_sent(tmp_path, monkeypatch):
    async def handler(request: Request):
        return "done"

    async def scenario() -> None:
        counted: list[int] = []
        send = LoopConnection.send

        def sending(connection: Any, kind: int, call_id: int = 0, *parts: Any) -> None:
            if kind == Kind.RESPONSE:
                counted.append(len(stage.replica.dispatcher.times.handled))
            send(connection, kind, call_id, *parts)

        async with staged(tmp_path, handler) as stage:
            monkeypatch.setattr(LoopConnection, "send", sending)
            assert (await (await stage.connect()).http().response()).status == 200
        assert counted == [1]

    run(scenario)
