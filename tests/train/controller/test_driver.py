"""Driver of the state machine: threads, failed instructions, and unpickling of user code."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from syncline.core.error_frames import pack_error
from syncline.train.backend import Worker
from syncline.train.controller import driver, events, state
from syncline.train.controller.attempt import WorkerFailure
from syncline.train.controller.driver import TrainController
from syncline.train.controller.transitions import State
from syncline.train.workers.messages import Failed

WORKER = Worker(
    rank=0,
    node_id="n",
    node_ip="127.0.0.1",
    hostname="h",
    pid=1,
    local_rank=0,
    local_world_size=1,
    node_rank=0,
    gpu_ids=[],
)


class FakeMachine:
    """Returns prepared instructions and keeps the events."""

    state = State.RUNNING

    def __init__(self, *instructions: events.Instruction) -> None:
        self.instructions = list(instructions)
        self.events: list[events.Event] = []

    def handle(self, event: events.Event) -> list[events.Instruction]:
        self.events.append(event)
        return self.instructions


def controller(machine: FakeMachine, **handlers: Any) -> Any:
    """Return a driver with a fake machine and handlers by the name of their instruction."""
    made: Any = object.__new__(TrainController)
    made._machine = machine
    made._console = SimpleNamespace(instruction_started=lambda instruction, state: None)
    made._queue = queue.SimpleQueue()
    made._handlers = {
        getattr(events, name): lambda self, instruction, call=call: call(instruction)
        for name, call in handlers.items()
    }
    made._attempt, made._group, made._batches = 1, None, {}
    return made


def test_ranks_by_node_survive_a_group_that_stops_on_another_thread() -> None:
    class Stopping(TrainController):
        reads: Iterator[object] = iter([SimpleNamespace(workers=[WORKER])])

        @property
        def _group(self) -> Any:  # type: ignore[override]
            return next(self.reads, None)  # the loop sets it to None after the first read

    assert object.__new__(Stopping)._ranks_by_node() == {"n": (0,)}


def test_after_a_failed_instruction_the_rest_is_skipped_except_for_the_end_of_the_group() -> None:
    executed: list[str] = []

    def fail(instruction: object) -> None:
        raise OSError("no space")

    machine = FakeMachine(
        events.Warn(text="fails"),
        events.Reserve(),
        events.StopGroup(attempt=1, graceful=False),
        events.End(outcome="errored"),
    )
    made = controller(
        machine,
        Warn=fail,
        Reserve=lambda do: executed.append("Reserve"),
        StopGroup=lambda do: executed.append("StopGroup"),
        End=lambda do: executed.append("End"),
    )
    made._handle(events.Interrupted())
    assert executed == ["StopGroup", "End"]
    failure = made._queue.get_nowait()
    assert isinstance(failure, events.ControllerFailed)
    assert failure.retriable


def test_the_driver_unpickles_the_exception_of_a_rank_and_the_state_machine_does_not() -> None:
    machine = FakeMachine()
    made = controller(machine)
    message = Failed(exception=pack_error(KeyError("mine")), traceback="Traceback")
    made._handle_batch(driver._Batch(attempt=1, rank=3, messages=[message]))
    (event,) = machine.events
    assert isinstance(event, events.RankFailed)
    assert (event.rank, type(event.failure)) == (3, WorkerFailure)
    assert isinstance(event.failure.exception, KeyError)
    assert not hasattr(state, "unpack_error")
