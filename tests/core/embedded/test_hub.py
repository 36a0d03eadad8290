"""The hub: dispatch of the scheduler's instructions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from syncline.core.embedded import messages as m
from syncline.core.embedded.exit_status import ExitStatus
from syncline.core.embedded.hub import Hub
from syncline.core.embedded.hub_records import Process, Task
from syncline.core.embedded.object_store import Store
from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.scheduler import Scheduler
from syncline.core.embedded.worker_output import WorkerOutput
from syncline.exceptions import TaskCancelledError


class Unhandled(NamedTuple):
    worker: int


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    reactor = Reactor()
    yield Hub(
        scheduler=Scheduler({"CPU": 1}),
        store=Store(directory=tmp_path / "objects", disk_directory=None, limit_bytes=1 << 20),
        output=WorkerOutput(tmp_path, to_driver=False, call_later=reactor.call_later),
        reactor=reactor,
        node={"NodeID": "0"},
    )
    reactor.close()


def test_unknown_instruction_is_an_error(hub: Hub) -> None:
    with pytest.raises(TypeError, match=r"unknown instruction Unhandled\(worker=7\)"):
        hub.apply([Unhandled(7)])  # type: ignore[list-item]


def test_unknown_message_is_an_error(hub: Hub) -> None:
    with pytest.raises(KeyError):
        hub.handle(hub.driver, (999,))


def test_statistics_of_an_empty_hub_count_the_driver_only(hub: Hub) -> None:
    statistics = hub.statistics
    assert (statistics.processes, statistics.tasks, statistics.actors) == (1, 0, 0)


RUNNING, BEHIND = 10, 11


def _worker_with_two_tasks(hub: Hub) -> Process:
    spec = m.TaskSpec(
        function_id=1, name="f", mode=m.ONE, num_returns=1, resources=(("CPU", 1),), group=None,
        environment="", max_retries=3, retry_on=None, max_calls=0, captures=False,
    )  # fmt: skip
    worker = hub.processes[7] = Process(7, None, environment="", ready=True)
    hub.code[1] = b""
    hub.tasks.register_definition(2, spec)
    hub.scheduler.set_depth(hub.tasks.definitions[2].shape, 2)
    hub.apply(hub.scheduler.worker_ready(7, ""))
    for task_id in (RUNNING, BEHIND):
        hub.handle(hub.driver, (m.SUBMIT, task_id, 2, m.NONE_VALUE, (), (), (), 0))
    assert list(worker.tasks) == [RUNNING, BEHIND]
    return worker


def _is_cancelled(hub: Hub, task_id: int) -> bool:
    value = hub.objects.entries[task_id].value
    return value is not None and isinstance(m.load_outcome(value)[1], TaskCancelledError)


def test_task_that_its_worker_returns_while_it_is_cancelled_does_not_run_again(hub: Hub) -> None:
    worker = _worker_with_two_tasks(hub)
    hub.tasks.cancel(BEHIND, force=False, recursive=False)
    hub.tasks.on_returned(worker, (m.RETURNED, [BEHIND]))
    assert _is_cancelled(hub, BEHIND)
    hub.handle(worker, (m.DONE, RUNNING, [m.NONE_VALUE], None, False, 0.0, 1.0))
    assert not worker.tasks


def test_cancelled_task_of_a_worker_that_died_does_not_run_again(hub: Hub) -> None:
    worker = _worker_with_two_tasks(hub)
    hub.tasks.cancel(BEHIND, force=False, recursive=False)
    other = hub.processes[8] = Process(8, None, environment="", ready=True)
    hub.apply(hub.scheduler.worker_ready(8, ""))
    hub.tasks.on_worker_lost(worker, ExitStatus(cause="was killed"))
    assert list(other.tasks) == [RUNNING]
    assert _is_cancelled(hub, BEHIND)


def test_calls_that_end_after_their_actor_has_left_are_ignored(hub: Hub) -> None:
    hub.workers = SimpleNamespace(kill=lambda number: None)  # type: ignore[assignment]
    process = hub.processes[7] = Process(7, None, environment="", ready=True, actor_id=5)
    process.tasks[10] = Task(10, m.NONE_VALUE, (), (), (10,), 1, 0, actor_id=5)
    hub.handle(process, (m.RETIRE, "exit_actor"))
    hub.handle(process, (m.DONE, 10, [m.NONE_VALUE], None, False, 0.0, 1.0))
    assert process.stop_reason


@pytest.mark.parametrize("detached", [False, True])
def test_actors_that_ended_are_forgotten_with_their_last_handle(hub: Hub, detached: bool) -> None:
    spec = m.ActorSpec(
        class_id=1, class_name="A", placement=(), resources=(), group=None,
        captures=False, environment="", name="a", namespace="", detached=detached,
        get_if_exists=False,
        max_restarts=0, max_task_retries=0, max_concurrency=1, max_pending_calls=-1,
        concurrency_groups=(), is_async=False, record=b"", methods=(),
    )  # fmt: skip
    hub.workers = SimpleNamespace(kill=lambda number: None)  # type: ignore[assignment]
    hub.processes[7] = Process(7, None, environment="", ready=True)
    hub.code[1] = b""
    hub.apply(hub.scheduler.worker_ready(7, ""))
    hub.actors.create(hub.driver, 5, spec, m.NONE_VALUE, (), ())
    hub.actors.kill(5, no_restart=True)
    assert list(hub.actors.actors) == [5]
    hub.objects.release([5])
    assert not hub.actors.actors
    assert 5 not in hub.objects.entries
