"""Pools of processes: actors that grow, shrink, fail to start and die; processes that stay warm;
the options that engines get.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import syncline
from syncline.data.context import DataContext
from syncline.data.execute.data_worker import TaskCodeKey
from syncline.data.execute.physical_plan import ExecutionLimits, PhysicalPlan, Workers
from syncline.data.execute.task_attempts import is_listed
from syncline.data.execute.task_run import ChainCode, TaskRequest
from syncline.data.execute.worker_handles import WarmWorkers, WorkerHandle, options_of, warm_workers
from syncline.data.execute.worker_pools import ActorExecutor
from syncline.data.plan.compute import Resources
from syncline.exceptions import GetTimeoutError, UserCodeException
from syncline.testing.waiting import eventually
from tests.data.execute.handmade import actors, execute, ids, mapped, numbers


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2, resources={"licence": 1})
    yield
    syncline.shutdown()


processes = [pytest.mark.processes, pytest.mark.usefixtures("engine")]


def marked(function: Callable[..., Any]) -> Callable[..., Any]:
    for mark in processes:
        function = mark(function)
    return function


class Model:
    """Writes down its process when it is constructed; says in which process rows were seen."""

    def __init__(self, directory: Path) -> None:
        (directory / f"{os.getpid()}").touch()

    def __call__(self, batch):
        time.sleep(0.02)
        return {"id": batch["id"], "pid": batch["id"] * 0 + os.getpid()}


def pids(execution) -> set[int]:
    with execution:
        return {pid for block in execution for pid in block.table()["pid"].to_pylist()}


@marked
def test_each_actor_constructs_its_object_once(tmp_path: Path):
    stage = mapped(Model, executor=actors(2), constructor_args=(tmp_path,))
    used = pids(execute(numbers(100, 20), stage))
    assert used <= {int(path.name) for path in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == 2


@marked
def test_actors_end_with_their_execution(tmp_path: Path):
    used = pids(
        execute(numbers(10, 2), mapped(Model, executor=actors(1), constructor_args=(tmp_path,)))
    )
    eventually(
        lambda: not any(os.path.exists(f"/proc/{pid}") for pid in used),
        what="the actors have ended",
    )


@marked
def test_a_pool_grows_while_all_its_actors_are_busy(tmp_path: Path):
    stage = mapped(Model, executor=actors(1, 2), constructor_args=(tmp_path,))
    assert ids(execute(numbers(400, 80), stage)) == list(range(400))
    assert len(list(tmp_path.iterdir())) == 2


@marked
def test_an_actor_that_dies_is_replaced_and_its_task_runs_again(tmp_path: Path):
    class Dies:
        def __call__(self, batch):
            mark = tmp_path / "died"
            if batch["id"][0] == 20 and not mark.exists():
                mark.touch()
                os._exit(1)
            return batch

    assert ids(execute(numbers(50, 5), mapped(Dies, executor=actors(1)))) == list(range(50))


class Refuses:
    """Raises in its constructor as long as there are fewer than so many marks in a directory."""

    def __init__(self, directory: Path, enough: int) -> None:
        attempts = len(list(directory.iterdir()))
        (directory / str(attempts)).touch()
        if attempts < enough:
            raise OSError("no licence")

    def __call__(self, batch):
        return batch


@marked
def test_an_error_of_a_constructor_is_the_program_s(tmp_path: Path):
    stage = mapped(Refuses, executor=actors(1), constructor_args=(tmp_path, 10))
    with pytest.raises(OSError, match="no licence") as caught:
        ids(execute(numbers(10, 2), stage))
    assert isinstance(caught.value, UserCodeException)
    assert str(caught.value).startswith(
        "MapBatches(Refuses) failed before its first call with OSError"
    )
    assert len(list(tmp_path.iterdir())) == 1


@marked
def test_a_constructor_is_tried_again_after_errors_that_the_context_lists(tmp_path: Path):
    context = DataContext(actor_init_retry_on_errors=[OSError], actor_init_max_retries=2)
    stage = mapped(Refuses, executor=actors(1), constructor_args=(tmp_path, 2))
    assert ids(execute(numbers(10, 2), stage, context=context)) == list(range(10))


@marked
def test_a_constructor_that_kills_its_process_is_an_error():
    class Exits:
        def __init__(self):
            os._exit(7)

        def __call__(self, batch):
            return batch

    with pytest.raises(
        RuntimeError, match=r"actors of MapBatches\(Exits\) died 3 times .* exited with code 7"
    ):
        ids(execute(numbers(10, 2), mapped(Exits, executor=actors(1))))


@marked
def test_too_few_actors_in_time_are_an_error():
    class Slow:
        def __init__(self):
            time.sleep(1000)

        def __call__(self, batch):
            return batch

    context = DataContext(wait_for_min_actors_s=1)
    with pytest.raises(GetTimeoutError, match=r"MapBatches\(Slow\) has 0 of at least 1 actors"):
        ids(execute(numbers(10, 2), mapped(Slow, executor=actors(1)), context=context))


LICENSED = Resources(options={"resources": {"licence": 1}})


@marked
def test_tasks_share_the_processes_that_there_are_resources_for():
    def pid(batch):
        return {"pid": batch["id"] * 0 + os.getpid()}

    assert (
        len(pids(execute(numbers(40, 8), mapped(pid, executor=Workers(resources=LICENSED))))) == 1
    )


@marked
def test_what_idle_processes_hold_goes_to_the_next_stage():
    first = mapped(lambda batch: batch, executor=Workers(resources=LICENSED))
    second = mapped(
        lambda batch: batch,
        on=1,
        executor=Workers(resources=Resources(num_cpus=1, options=LICENSED.options)),
    )
    assert ids(execute(numbers(20, 1), first, second)) == list(range(20))


@marked
def test_what_no_machine_has_is_an_error():
    with pytest.raises(ValueError, match="gold"):
        ids(
            execute(
                numbers(4, 2),
                mapped(
                    lambda batch: batch,
                    executor=Workers(resources=Resources(options={"resources": {"gold": 1}})),
                ),
            )
        )


@marked
def test_processes_without_an_execution_serve_the_next_one():
    def pid(batch):
        return {"pid": batch["id"] * 0 + os.getpid()}

    first = pids(execute(numbers(40, 8), mapped(pid)))
    eventually(lambda: len(warm_workers) >= len(first), what="the processes wait")
    assert pids(execute(numbers(40, 8), mapped(pid))) & first


@marked
def test_warm_processes_end_after_a_while():
    pool = WarmWorkers(idle_s=0.05)
    worker = pool.take()
    pid = syncline.get(worker.begin.remote(*_looks_at_pid()))[1]["pid"][0].as_py()
    pool.give(worker)
    del worker
    eventually(lambda: not len(pool), what="the pool is empty")
    eventually(lambda: not os.path.exists(f"/proc/{pid}"), what="the process has ended")


def _looks_at_pid() -> tuple[Any, ...]:
    stage = mapped(lambda batch: {"pid": batch["id"] * 0 + os.getpid()})
    code = ChainCode(name=stage.name, chain=stage.chain, seed=0, epoch=0)
    (block,) = (task() for task in numbers(1, 1).grouping.payloads)
    return (1, 0, "task"), code, tuple(TaskRequest(0)), (((0, 0, 1),),), next(block)


def test_idle_actors_above_the_least_number_are_let_go():
    ended = []

    class Idle(WorkerHandle):
        def __init__(self, since: float) -> None:
            self.idle_since = since
            self.active = None

        def close(self, execution: int) -> None:
            ended.append(self.idle_since)

    class Pool(ActorExecutor):
        """Its processes are never started."""

        def _start_one(self) -> None:
            self._idle.append(Idle(float(len(self._idle))))

    plan = PhysicalPlan(
        stages=(numbers(1, 1),),
        context=DataContext(),
        limits=ExecutionLimits(cpus=1, budget_bytes=1),
        seed=0,
    )
    executor = Pool(
        TaskCodeKey(1, 0, "task"),
        actors(1, 3, first=3),
        None,
        plan,
        lambda call: call(),
        None,
        idle_s=10,
        clock=lambda: 0.0,
    )
    executor.tick(9.0)
    assert ended == []
    executor.tick(11.5)
    assert ended == [0.0, 1.0]
    executor.tick(100.0)
    assert executor.size == 1


def test_engines_are_asked_for_everything_but_cpus():
    resources = Resources(
        num_cpus=3,
        num_gpus=0.5,
        memory=1e9,
        options={"resources": {"disk": 1}, "max_retries": 2, "num_cpus": 4},
    )
    more = options_of(resources, lambda: {"runtime_env": {}})
    assert more == {"num_gpus": 0.5, "memory": 10**9, "resources": {"disk": 1}, "runtime_env": {}}
    assert options_of(Resources(), None) == {}


def test_errors_are_listed_by_class_or_all_at_once():
    assert is_listed(KeyError(), [LookupError])
    assert not is_listed(KeyError(), [ValueError])
    assert is_listed(KeyError(), True)
    assert not is_listed(KeyError(), False)
