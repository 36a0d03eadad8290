"""Executions with threads and worker processes: crashes, time limits, leaving early, and what a
hundred of them leave behind.
"""

import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import syncline
from syncline.core import api
from syncline.data.columnar.kernels import partition
from syncline.data.context import DataContext
from syncline.data.execute.physical_plan import Chain, ExchangeRows, Stage, Workers
from syncline.data.execute.steps.heads import concatenate
from syncline.data.plan.compute import Resources
from syncline.exceptions import UserCodeException, WorkerCrashedError
from syncline.testing.waiting import eventually
from tests.data.execute.handmade import actors, batch_step, execute, held, ids, mapped, numbers

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True, scope="module")
def engine() -> Iterator[None]:
    syncline.init(num_cpus=2)
    yield
    syncline.shutdown()


def doubled(batch):
    return {"id": batch["id"] * 2}


def is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def data_threads() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("syncline-data") and "warm" not in thread.name
    ]


@pytest.mark.promise
def test_functions_run_in_other_processes_and_blocks_come_in_order():
    def with_pid(batch):
        return {"id": batch["id"], "pid": batch["id"] * 0 + os.getpid()}

    tables = [block.table() for block in execute(numbers(200, 20), mapped(with_pid))]
    whole = pa.concat_tables(tables)
    assert whole["id"].to_pylist() == list(range(200))
    assert os.getpid() not in set(whole["pid"].to_pylist())


def test_torch_uses_as_many_threads_in_a_worker_as_the_function_has_cpus():
    import torch

    def threads(batch):
        return {"id": batch["id"] * 0 + torch.get_num_threads()}

    def chosen(batch):
        if torch.get_num_threads() == 3:
            torch.set_num_threads(2)
        return threads(batch)

    def found(function, executor):
        return {*ids(execute(numbers(20, 4), mapped(function, executor=executor)))}

    assert found(threads, Workers()) == {1}
    assert found(threads, Workers(resources=Resources(num_cpus=3))) == {3}
    assert found(threads, Workers(resources=Resources(num_cpus=0.5))) == {1}
    assert found(chosen, actors(num_cpus=3)) == {2}


def test_blocks_of_workers_stay_in_the_object_store_until_they_are_wanted():
    block = next(execute(numbers(10, 1), mapped(doubled)))
    assert syncline.get(block.reference())["id"].to_pylist() == list(range(0, 20, 2))


def test_held_tables_reach_workers():
    table = pa.table({"id": list(range(100))}).slice(10, 20)
    assert ids(execute(held(table, table), mapped(doubled))) == [*range(20, 60, 2)] * 2


def test_tasks_of_several_blocks_go_on_block_by_block():
    stage = numbers(
        100, 2, executor=Workers(), steps=[batch_step(doubled, batch_size=5)], max_block_rows=5
    )
    blocks = list(execute(stage))
    assert [block.num_rows for block in blocks] == [5] * 20
    assert [block.restart.point[2] for block in blocks[:3]] == [[0, 0], [0, 5], [0, 10]]


def test_an_error_in_a_worker_has_the_user_s_frames():
    def fails(batch):
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there") as caught:
        ids(execute(numbers(10, 2), mapped(fails)))
    assert isinstance(caught.value, UserCodeException)
    assert "in fails" in str(caught.value)
    assert "/syncline/" not in str(caught.value)


@pytest.mark.promise
def test_a_worker_that_dies_is_replaced_and_no_row_is_lost_or_repeated(tmp_path: Path):
    mark = tmp_path / "died"

    def dies_once(batch):
        if batch["id"][0] == 30 and not mark.exists():
            mark.touch()
            os._exit(3)
        return batch

    stage = numbers(
        100, 2, executor=Workers(), steps=[batch_step(dies_once, batch_size=10)], max_block_rows=10
    )
    execution = execute(stage)
    assert ids(execution) == list(range(100))
    assert execution.stats().operators[0].attempts == 3


def test_a_task_whose_worker_always_dies_fails_with_operator_task_and_cause():
    def dies(batch):
        os._exit(3)

    with pytest.raises(
        WorkerCrashedError,
        match=r"MapBatches\(dies\), task 0, failed 4 times .* exited with code 3",
    ):
        ids(execute(numbers(10, 1), mapped(dies)))


def test_a_function_that_hangs_fails_with_its_stack():
    def hangs(batch):
        time.sleep(1000)  # hangs here

    begun = time.monotonic()
    with pytest.raises(
        TimeoutError,
        match=r"MapBatches\(hangs\) failed on rows 0 to 9 of its task "
        r".* has worked for more than timeout_s=0.2",
    ) as caught:
        ids(execute(numbers(10, 1), mapped(hangs, timeout_s=0.2)))
    assert "time.sleep(1000)  # hangs here" in str(caught.value)
    assert time.monotonic() - begun < 100


def test_rows_on_which_a_function_hangs_can_be_left_out():
    def hangs_on_20(batch):
        if batch["id"][0] == 20:
            time.sleep(1000)
        return batch

    stage = mapped(hangs_on_20, timeout_s=0.3, on_error="skip", batch_size=10)
    execution = execute(numbers(40, 1), stage)
    assert ids(execution) == [*range(20), *range(30, 40)]
    (skipped,) = execution.stats().skipped
    assert (skipped.rows.first_row, skipped.rows.rows) == (20, 10)


def never_ends(directory: Path):
    def sleeps(batch):
        (directory / str(os.getpid())).touch()
        time.sleep(1000)

    return sleeps


@pytest.mark.parametrize("way", ["close", "drop"])
def test_leaving_ends_functions_that_run(tmp_path: Path, way: str):
    execution = execute(numbers(10, 4), mapped(never_ends(tmp_path)))
    eventually(lambda: list(tmp_path.iterdir()), what="a function runs")
    if way == "close":
        execution.close()
    del execution
    gc.collect()
    eventually(
        lambda: not any(is_alive(int(path.name)) for path in tmp_path.iterdir()),
        what="the workers have ended",
    )
    eventually(lambda: not data_threads(), what="the threads have ended")


def test_an_iterator_over_an_execution_keeps_it_alive_and_ends_it():
    iterator = (block.num_rows for block in execute(numbers(100, 10), mapped(doubled)))
    gc.collect()
    assert next(iterator) == 10
    del iterator
    gc.collect()
    eventually(lambda: not data_threads(), what="the threads have ended")


@pytest.mark.promise
def test_a_consumer_that_takes_nothing_bounds_what_exists():
    execution = execute(numbers(4_000_000, 100), budget_bytes=4 * 2**20)
    next(execution)
    eventually(lambda: execution.stats().operators[0].blocks >= 5, what="reading has gone ahead")
    time.sleep(0.1)
    assert execution.stats().operators[0].size_bytes <= 6 * 2**20
    execution.close()


def test_next_with_a_timeout_tells_that_there_is_nothing_yet(tmp_path: Path):
    with execute(numbers(10, 1), mapped(never_ends(tmp_path))) as execution:
        assert execution.next(0.05) is None


def test_a_program_that_shuts_syncline_down_gets_an_error_from_its_executions(tmp_path: Path):
    execution = execute(numbers(10, 1), mapped(never_ends(tmp_path)))
    eventually(lambda: list(tmp_path.iterdir()), what="a function runs")
    syncline.shutdown()
    try:
        with pytest.raises(RuntimeError, match="syncline was shut down"):
            next(execution)
    finally:
        syncline.init(num_cpus=2)


def test_an_exchange_in_workers_delivers_every_row_once():
    def by_hash(table, parts, prepared, number):
        return partition.by_hash(table, "id", parts)

    grouping = ExchangeRows(
        partition=(by_hash,), parts=4, default_parts=4, direct_bytes=0, executor=Workers()
    )
    stage = Stage(
        name="Exchange",
        inputs=(0,),
        grouping=grouping,
        chain=Chain(head=concatenate, context=DataContext()),
        executor=Workers(),
    )
    assert sorted(ids(execute(numbers(1000, 10), stage))) == list(range(1000))


def test_what_cannot_be_pickled_is_an_error_of_the_program():
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        ids(execute(numbers(10, 1), mapped(lambda batch: batch if lock else None)))


@pytest.mark.long
def test_a_hundred_executions_leave_nothing_behind():
    def one(number: int) -> None:
        execution = execute(numbers(100, 4), mapped(doubled))
        if number % 2:
            next(execution)
            return
        assert len(ids(execution)) == 100

    def counts() -> tuple[int, int, int]:
        gc.collect()
        objects: Any = api.ensure_engine().statistics()["objects"]
        return (len(os.listdir("/proc/self/fd")), threading.active_count(), objects.objects)

    for number in range(10):
        one(number)
    eventually(lambda: not data_threads(), what="the threads have ended")
    time.sleep(0.5)
    before = counts()
    for number in range(100):
        one(number)
    eventually(lambda: not data_threads(), what="the threads have ended")
    eventually(
        lambda: all(now <= then + 3 for now, then in zip(counts(), before, strict=True)),
        what=f"no more than {before} are left",
    )


def test_warning_names_the_bottleneck_of_a_stalled_execution(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    context = DataContext(execution_no_progress_timeout_s=0.2)
    with (
        caplog.at_level("WARNING", logger="syncline"),
        execute(numbers(10, 1), mapped(never_ends(tmp_path)), context=context),
    ):
        eventually(
            lambda: any("MapBatches(sleeps) is the bottleneck" in text for text in caplog.messages),
            what="a warning",
        )
