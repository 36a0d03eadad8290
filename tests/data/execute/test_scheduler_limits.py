"""Budget, slots, lanes, and who goes first."""

import random
from collections import Counter

import pytest

from syncline.data.execute import physical_plan as s
from syncline.data.execute.messages import Resume, Started, TaskId
from tests.data.execute.scheduler_simulation import Read, Simulation

BLOCK = 100


def read(tasks: int, blocks: int = 1) -> s.Stage:
    return s.Stage(name="read", grouping=s.SourceTasks(payloads=[Read(((1, 2),) * blocks)] * tasks))


def mapped(below: int, executor: s.ExecutorKind | None = None, slots: float = 1.0) -> s.Stage:
    return s.Stage(
        name="map rows",
        inputs=(below,),
        grouping=s.BundleBlocks(),
        executor=executor or s.Threads(),
        slots=slots,
    )


def simulation(*stages: s.Stage, **options: object) -> Simulation:
    return Simulation(stages=stages, block_bytes=BLOCK, told_last=1.0, **options)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("consumer", [0.02, 0.5])
def test_with_blocks_of_the_expected_size_the_budget_is_never_exceeded(
    seed: int, consumer: float
) -> None:
    for stages in ([read(40, 3)], [read(40, 3), mapped(0), mapped(1)]):
        run = simulation(
            *stages, slots=4, budget_bytes=16 * BLOCK, consumer=consumer, seed=seed
        ).run()
        assert run.most_held_bytes <= 16 * BLOCK
        assert len(run.rows) == 240


def test_a_consumer_that_takes_nothing_stops_everything_upstream() -> None:
    run = simulation(read(1000), mapped(0), slots=4, budget_bytes=16 * BLOCK, consumer=0.0)
    run.begin()
    while any(task.runs for task in run.tasks.values()):
        run.step()
    assert 8 <= len(run.alive()) <= 16
    assert len(run.launched) < 40


def test_stages_downstream_have_room_when_those_upstream_have_used_theirs() -> None:
    # Maps never wait for the consumer's sake here: several run at once although reading could fill
    # the budget.
    run = simulation(read(200), mapped(0), slots=4, budget_bytes=16 * BLOCK, consumer=0.9)
    run.begin()
    together = 0
    while run.end is None:
        run.step()
        together = max(together, run.scheduler.snapshot().stages[1].running)
    assert together >= 3


def test_blocks_larger_than_the_budget_go_through_one_at_a_time() -> None:
    run = simulation(read(5, 2), mapped(0), slots=4, budget_bytes=BLOCK // 2).run()
    assert len(run.rows) == 20
    assert run.most_running <= 4
    assert (
        run.most_held_bytes <= 5 * BLOCK
    )  # the four first tasks, started before a size was known, and one that goes on


SORTED = s.ExchangeRows(
    partition=(max,), parts=4, default_parts=1, direct_bytes=0, sample=max, prepare=max
)


@pytest.mark.parametrize("grouping", [SORTED, s.RepartitionRows(parts=50), s.ShuffleBlocks(seed=1)])
def test_what_needs_all_of_its_input_takes_more_than_the_budget(grouping: s.Grouping) -> None:
    run = simulation(
        read(100),
        s.Stage(name="all", inputs=(0,), grouping=grouping),
        mapped(1),
        slots=4,
        budget_bytes=8 * BLOCK,
    ).run()
    assert len(run.rows) == 200
    assert run.most_held_bytes <= 8 * BLOCK


def test_shuffled_blocks_come_out_only_as_far_as_there_is_room() -> None:
    run = simulation(
        read(100),
        s.Stage(name="shuffle", inputs=(0,), grouping=s.ShuffleBlocks(seed=1)),
        budget_bytes=8 * BLOCK,
        consumer=0.0,
    )
    run.begin()
    while any(task.runs for task in run.tasks.values()):
        run.step()
    assert len(run.untaken) == 8


def test_stages_upstream_use_half_of_the_budget() -> None:
    run = simulation(read(100), mapped(0, s.Threads(size=1)), slots=4, budget_bytes=16 * BLOCK)
    go_on_alone(run, 0)
    assert len(run.alive()) == 7  # and one that the map is about to make


def test_a_branch_that_is_not_needed_yet_uses_less() -> None:
    first = s.Stage(
        name="slow",
        grouping=s.SourceTasks(payloads=[Read(((1,),))] * 9),
        executor=s.Threads(size=1),
    )
    run = simulation(
        first,
        read(100),
        s.Stage(name="union", inputs=(0, 1), grouping=s.UnionInputs()),
        slots=4,
        budget_bytes=16 * BLOCK,
    )
    go_on_alone(run, 1)
    assert (
        len(run.alive()) == 5
    )  # with what the first one is about to make three eighths of the budget


def go_on_alone(run: Simulation, stage: int) -> None:
    """Lets the tasks of one stage go on as far as they can, while all others are slow and the
    consumer takes nothing.
    """
    run.begin()
    while tasks := [
        task for task_id, task in run.tasks.items() if task.runs and task_id.stage == stage
    ]:
        run.go_on(tasks[0])


def test_rows_side_by_side_are_in_order_even_where_order_is_not_asked_for() -> None:
    numbered = s.SourceTasks(payloads=[Read(((number, number),)) for number in range(20)])
    stages = [
        s.Stage(name="read", grouping=numbered),
        s.Stage(name="read", grouping=numbered),
        mapped(1),
    ]
    run = simulation(
        *stages,
        s.Stage(name="zip", inputs=(0, 2), grouping=s.ZipInputs()),
        slots=4,
        preserve_order=False,
    ).run()
    assert sorted(run.rows) == [(number, number) for number in range(20) for _ in range(2)]


@pytest.mark.parametrize("slow", [0, 1])
def test_a_slow_branch_is_waited_for_and_the_other_does_not_take_its_room(slow: int) -> None:
    for grouping in (
        s.UnionInputs(),
        s.ZipInputs(),
        s.MixInputs(weights=(1.0, 1.0), until_shortest=False),
    ):
        run = simulation(
            read(60),
            read(60),
            s.Stage(name="both", inputs=(0, 1), grouping=grouping),
            slots=2,
            budget_bytes=16 * BLOCK,
        )
        run.begin()
        while run.end is None:
            quick = [
                task for task_id, task in run.tasks.items() if task.runs and task_id.stage != slow
            ]
            if quick and random.Random(len(run.launched)).random() < 0.9:
                run.go_on(quick[0])
            else:
                run.step()
        run.check_end()
        assert run.most_held_bytes <= 16 * BLOCK


def test_waiting_tasks_give_their_slot_back() -> None:
    run = simulation(read(3, 2), slots=1, budget_bytes=BLOCK, consumer=0.0)
    run.begin()
    run.step()
    counts = run.scheduler.snapshot()
    assert (counts.used_slots, counts.stages[0].running, counts.stages[0].waiting) == (0, 0, 1)


def test_slots_are_counted_as_stages_ask() -> None:
    answers = {}
    for slots in (0.5, 1.0, 3.0, 5.0):
        run = simulation(
            s.Stage(
                name="read", grouping=s.SourceTasks(payloads=[Read(((1,),))] * 99), slots=slots
            ),
            slots=4,
        )
        run.begin()
        answers[slots] = len(run.tasks)
    assert answers == {0.5: 8, 1.0: 4, 3.0: 1, 5.0: 1}


def test_without_any_slot_one_task_runs_beyond_them() -> None:
    run = simulation(read(3), slots=0)
    run.begin()
    assert [each.beyond_slots for each in run.launched] == [True]


@pytest.mark.parametrize(
    ("executor", "most"),
    [
        (s.Threads(size=2), 2),
        (s.Workers(size=3), 3),
        (s.Actors(min_size=1, max_size=2, initial_size=1, in_flight=2), 4),
        (s.Actors(min_size=1, max_size=None, initial_size=1), 8),
    ],
)
def test_lanes_limit_the_tasks_at_once(executor: s.ExecutorKind, most: int) -> None:
    run = simulation(
        s.Stage(
            name="read", grouping=s.SourceTasks(payloads=[Read(((1,),))] * 30), executor=executor
        ),
        slots=8,
        budget_bytes=10**9,
    ).run()
    assert run.most_running == most


def test_a_task_that_waits_keeps_its_actor() -> None:
    executor = s.Actors(min_size=1, max_size=2, initial_size=1)
    source = s.Stage(
        name="read",
        grouping=s.SourceTasks(payloads=[Read(((1,), (2,), (3,)))] * 9),
        executor=executor,
    )
    run = simulation(source, slots=8, budget_bytes=3 * BLOCK, consumer=0.0)
    run.begin()
    while any(task.runs for task in run.tasks.values()):
        run.step()
        assert len(run.tasks) <= 2


def test_the_stage_nearest_to_the_consumer_goes_first() -> None:
    run = simulation(read(9), mapped(0), mapped(1), slots=1)
    run.run()
    assert [each.task for each in run.launched[:6]] == [
        TaskId(stage, "task", number) for number in range(2) for stage in range(3)
    ]


def test_the_earliest_task_is_resumed_before_others_and_before_new_ones_start() -> None:
    run = simulation(read(9, 3), slots=2, budget_bytes=20 * BLOCK, consumer=0.0)
    run.begin()
    first, second = TaskId(0, "task", 0), TaskId(0, "task", 1)
    run.handle(Started(slots=0, budget_bytes=20 * BLOCK))
    for each in (second, first):
        run.go_on(run.tasks[each])
    assert run.scheduler.snapshot().stages[0].waiting == 2
    assert run.handle(Started(slots=1, budget_bytes=20 * BLOCK)) == [Resume(task=first)]
    assert run.handle(Started(slots=2, budget_bytes=20 * BLOCK)) == [Resume(task=second)]


def test_producers_of_needed_branches_share_the_slots() -> None:
    stages = (read(50), read(50), s.Stage(name="zip", inputs=(0, 1), grouping=s.ZipInputs()))
    run = simulation(*stages, slots=4)
    run.begin()
    assert Counter(each.task.stage for each in run.launched) == {0: 2, 1: 2}


def test_the_branch_that_is_needed_now_comes_first() -> None:
    run = simulation(
        read(50), read(50), s.Stage(name="union", inputs=(0, 1), grouping=s.UnionInputs()), slots=4
    )
    run.begin()
    assert {each.task.stage for each in run.launched} == {0}


def test_counts_say_where_everything_is() -> None:
    run = simulation(read(4), mapped(0, slots=2.0), slots=2)
    run.begin()
    run.go_on(run.tasks[TaskId(0, "task", 0)])
    counts = run.scheduler.snapshot()
    source, maps = counts.stages
    assert (
        source.running,
        source.total,
        source.output_rows,
        source.output_bytes,
        source.held_bytes,
    ) == (2, 4, 2, 100, 100)
    assert (maps.queued_rows, maps.running, maps.total) == (2, 0, None)
    assert (counts.held_bytes, counts.used_slots, counts.delivered_blocks) == (100, 2.0, 0)
    run = simulation(read(4), mapped(0)).run()
    assert [
        (each.queued_rows, each.held_bytes, each.total, each.ended)
        for each in run.scheduler.snapshot().stages
    ] == [(0, 0, 4, True), (0, 0, 4, True)]
