"""Tasks that fail, consumers that leave, and what comes after the end."""

import random

import pytest

from syncline.data.execute import physical_plan as s
from syncline.data.execute.messages import (
    Abandoned,
    BlockInfo,
    Cancel,
    Drop,
    Fail,
    Failed,
    Finish,
    Partitioned,
    Produced,
    Taken,
    TaskId,
)
from tests.data.execute.scheduler_simulation import Read, Simulation, random_stages

READ = s.Stage(
    name="read", grouping=s.SourceTasks(payloads=[Read(((number, number),)) for number in range(6)])
)
ERROR = ZeroDivisionError("boom")


def failed(number: int, *, counts: bool = True) -> Failed:
    return Failed(task=TaskId(0, "task", number), error=ERROR, counts_as_errored_block=counts)


def begun(**options: object) -> Simulation:
    run = Simulation(stages=[READ], slots=3, told_last=1.0, **options)
    run.begin()
    return run


def test_a_failure_cancels_and_drops_everything_and_comes_last() -> None:
    run = begun()
    run.go_on(run.tasks[TaskId(0, "task", 0)])
    run.go_on(run.tasks[TaskId(0, "task", 2)])
    del run.tasks[TaskId(0, "task", 1)]
    answer = run.handle(failed(1))
    assert {each.task.number for each in answer if isinstance(each, Cancel)} == {3, 4}
    assert {each.block for each in answer if isinstance(each, Drop)} == {1, 2}
    assert answer[-1] == Fail(error=ERROR)
    run.check_end()


@pytest.mark.parametrize(
    ("most", "errors", "ends"), [(0, 1, Fail), (2, 2, Finish), (2, 3, Fail), (-1, 6, Finish)]
)
def test_so_many_errored_blocks_are_excused(most: int, errors: int, ends: type) -> None:
    timed_out_calls = frozenset(TaskId(0, "task", number) for number in range(errors))
    run = Simulation(stages=[READ], max_errored_blocks=most, timed_out_calls=timed_out_calls).run()
    assert isinstance(run.end, ends)
    if ends is Finish:
        assert run.rows == [number for number in range(errors, 6) for _ in range(2)]
        assert run.scheduler.snapshot().errored_tasks == errors


def test_failures_of_the_machine_are_never_excused() -> None:
    run = begun(max_errored_blocks=-1)
    del run.tasks[TaskId(0, "task", 1)]
    assert run.handle(failed(1, counts=False))[-1] == Fail(error=ERROR)


def test_a_task_may_fail_while_it_waits() -> None:
    source = s.Stage(name="read", grouping=s.SourceTasks(payloads=[Read(((1, 1), (2, 2)))] * 2))
    run = Simulation(stages=[source], slots=1, budget_bytes=10, max_errored_blocks=-1, consumer=0.0)
    run.begin()
    run.go_on(run.tasks[TaskId(0, "task", 0)])
    assert not run.tasks.pop(TaskId(0, "task", 0)).runs
    run.handle(failed(0))
    while run.end is None:
        run.step()
    run.check_end()
    assert run.rows == [1, 1, 1, 1, 2, 2]


def test_excused_failures_leave_no_execution_stuck_and_nothing_behind() -> None:
    for seed in range(400):
        stages = random_stages(seed)
        draw = random.Random(seed)
        kinds = ("task", "task", "sample", "partition")
        timed_out_calls = frozenset(
            TaskId(draw.randrange(len(stages)), draw.choice(kinds), draw.randrange(6))
            for _ in range(6)
        )
        run = Simulation(
            stages=stages,
            seed=seed,
            max_errored_blocks=-1,
            timed_out_calls=timed_out_calls,
            budget_bytes=draw.choice([1, 300]),
        ).run()
        is_unequal = any(isinstance(stage.grouping, s.ZipInputs) for stage in stages)
        assert isinstance(run.end, Finish) or (
            is_unequal and isinstance(run.end, Fail) and isinstance(run.end.error, ValueError)
        )


def test_a_limit_gets_its_rows_although_tasks_fail() -> None:
    source = s.Stage(
        name="read",
        grouping=s.SourceTasks(payloads=[Read(((number, number),), 2) for number in range(9)]),
        keeps_rows=True,
    )
    between = s.Stage(name="map", inputs=(0,), grouping=s.BundleBlocks(), keeps_rows=True)
    limit = s.Stage(name="limit", inputs=(1,), grouping=s.LimitRows(rows=6))
    timed_out_calls = frozenset({TaskId(0, "task", 1), TaskId(1, "task", 0)})
    run = Simulation(
        stages=[source, between, limit],
        slots=4,
        max_errored_blocks=2,
        timed_out_calls=timed_out_calls,
    ).run()
    assert run.rows == [2, 2, 3, 3, 4, 4]


def test_abandoned_executions_cancel_and_drop_everything_and_finish() -> None:
    run = begun()
    run.go_on(run.tasks[TaskId(0, "task", 0)])
    answer = run.handle(Abandoned())
    assert {each.task.number for each in answer if isinstance(each, Cancel)} == {1, 2, 3}
    assert {each.block for each in answer if isinstance(each, Drop)} == {1}
    assert answer[-1] == Finish()
    assert Simulation(stages=[READ]).scheduler.handle(Abandoned()) == [Finish()]


def test_after_the_end_only_blocks_are_dropped() -> None:
    run = begun()
    run.abandon()
    info = BlockInfo(77, 1, 10)
    assert run.scheduler.handle(Produced(task=TaskId(0, "task", 1), info=info, is_last=True)) == [
        Drop(block=77)
    ]
    late = Partitioned(
        task=TaskId(0, "partition", 1), blocks=(info, BlockInfo(78, 1, 10)), parts=()
    )
    assert run.scheduler.handle(late) == [Drop(block=77), Drop(block=78)]
    assert run.scheduler.handle(failed(1)) == []
    assert run.scheduler.handle(Taken()) == []
