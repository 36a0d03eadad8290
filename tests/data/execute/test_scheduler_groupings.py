"""What the scheduler answers to each event, grouping by grouping."""

import pytest

from syncline.data.execute import physical_plan as s
from syncline.data.execute.messages import (
    BlockInfo,
    Cancel,
    Deliver,
    Drop,
    Ended,
    Fail,
    Finish,
    Instruction,
    Launch,
    Partitioned,
    Piece,
    Prepare,
    Prepared,
    Produced,
    Resume,
    Started,
    Taken,
    TaskId,
    TeeBlock,
    TeeEnded,
)
from syncline.data.execute.scheduler import Scheduler


class Held:
    """Stands for a `HeldBlock`."""

    def __init__(self, num_rows: int, size_bytes: int = 10) -> None:
        self.num_rows = num_rows
        self.size_bytes = size_bytes


def listed(count: int = 3) -> s.Stage:
    return s.Stage(
        name="read",
        grouping=s.SourceTasks(payloads=[f"payload {number}" for number in range(count)]),
    )


def passed(*rows: int) -> s.Stage:
    return s.Stage(name="held", grouping=s.SourceBlocks(blocks=[Held(each) for each in rows]))  # type: ignore[misc]


def stage(grouping: s.Grouping, *inputs: int, **options: object) -> s.Stage:
    return s.Stage(name="", grouping=grouping, inputs=inputs, **options)


def begun(
    *stages: s.Stage, slots: float = 1, start: object = None
) -> tuple[Scheduler, list[Instruction]]:
    scheduler = Scheduler(stages, preserve_order=True, max_errored_blocks=0, start=start)
    return scheduler, scheduler.handle(Started(slots=slots, budget_bytes=100_000))


def task(number: int, stage: int = 0) -> TaskId:
    return TaskId(stage, "task", number)


def produced(task: TaskId, block: int, rows: int = 5, *, is_last: bool = True) -> Produced:
    return Produced(task=task, info=BlockInfo(block, rows, 10 * rows), is_last=is_last)


def deliver(
    block: int, start: int, stop: int, point: object, size_bytes: int | None = None
) -> Deliver:
    return Deliver(
        piece=Piece(block, start, stop),
        size_bytes=10 * (stop - start) if size_bytes is None else size_bytes,
        point=point,
    )


def launched_ports(instructions: list[Instruction]) -> list[tuple[tuple[Piece, ...], ...]]:
    return [each.ports for each in instructions if isinstance(each, Launch)]


def run_to_end(
    scheduler: Scheduler, answer: list[Instruction], stage: int
) -> list[tuple[tuple[Piece, ...], ...]]:
    """Ends every task of a stage without a block; the ports of them all."""
    ports = []
    while answer:
        ports += launched_ports(answer)
        answer = [
            more
            for each in answer
            if isinstance(each, Launch)
            for more in scheduler.handle(Ended(task=each.task))
        ]
    return ports


def test_listed_tasks_stream_in_order_and_the_blocks_of_later_ones_wait() -> None:
    scheduler, answer = begun(listed(), slots=2)
    assert answer == [
        Launch(task=task(0), payload="payload 0"),
        Launch(task=task(1), payload="payload 1"),
    ]
    assert scheduler.handle(produced(task(1), 1)) == [Launch(task=task(2), payload="payload 2")]
    assert scheduler.handle(produced(task(0), 2, is_last=False)) == [
        deliver(2, 0, 5, [0, 0]),
        Resume(task=task(0)),
    ]
    assert scheduler.handle(produced(task(0), 3)) == [
        deliver(3, 0, 5, [0, 5]),
        deliver(1, 0, 5, [1, 0]),
    ]
    assert [scheduler.handle(Taken()) for _ in range(3)] == [
        [Drop(block=2)],
        [Drop(block=3)],
        [Drop(block=1)],
    ]
    assert scheduler.handle(Ended(task=task(2))) == [Finish()]


def test_without_order_blocks_go_on_as_they_come_and_have_no_point() -> None:
    scheduler = Scheduler([listed(2)], preserve_order=False, max_errored_blocks=0)
    scheduler.handle(Started(slots=2, budget_bytes=100_000))
    assert scheduler.handle(produced(task(1), 1)) == [deliver(1, 0, 5, None)]
    with pytest.raises(ValueError, match="preserve_order"):
        Scheduler([listed(2)], preserve_order=False, max_errored_blocks=0, start=[0, 0])


def test_tasks_that_are_done_or_before_the_start_are_left_out() -> None:
    stages = stage(s.SourceTasks(payloads="abcd", done=frozenset({0, 2})))
    assert begun(stages, slots=9)[1] == [
        Launch(task=task(1), payload="b"),
        Launch(task=task(3), payload="d"),
    ]
    assert begun(listed(), slots=9, start=[1, 7])[1] == [
        Launch(task=task(1), payload="payload 1", skip_rows=7),
        Launch(task=task(2), payload="payload 2"),
    ]
    assert begun(listed(0))[1] == [Finish()]


def test_held_blocks_are_delivered_under_negative_numbers() -> None:
    scheduler, answer = begun(passed(2, 3), passed(4), stage(s.UnionInputs(), 0, 1))
    assert answer == [
        deliver(-3, 0, 2, [0, [0, 0]], 10),
        deliver(-2, 0, 3, [0, [1, 0]], 10),
        deliver(-1, 0, 4, [1, [0, 0]], 10),
    ]
    assert [scheduler.handle(Taken()) for _ in range(3)] == [
        [Drop(block=-3)],
        [Drop(block=-2)],
        [Drop(block=-1), Finish()],
    ]
    assert begun(passed(2, 3), start=[1, 2])[1] == [deliver(-1, 2, 3, [1, 2], 4)]


def test_bundles_are_whole_blocks_and_empty_ones_go_along_with_the_next() -> None:
    scheduler, answer = begun(passed(2, 3, 0, 9, 1), stage(s.BundleBlocks(min_rows=4), 0))
    assert run_to_end(scheduler, answer, 1) == [
        ((Piece(-5, 0, 2), Piece(-4, 0, 3)),),
        ((Piece(-3, 0, 0), Piece(-2, 0, 9)),),
        ((Piece(-1, 0, 1),),),
    ]


def test_blocks_without_rows_make_one_task_for_the_columns_but_none_after_others() -> None:
    scheduler, answer = begun(passed(0, 0), stage(s.BundleBlocks(), 0))
    assert run_to_end(scheduler, answer, 1) == [((Piece(-2, 0, 0), Piece(-1, 0, 0)),)]
    scheduler, answer = begun(passed(1, 0), stage(s.BundleBlocks(), 0))
    assert run_to_end(scheduler, answer, 1) == [((Piece(-2, 0, 1),),)]
    assert begun(passed(), stage(s.BundleBlocks(), 0))[1] == [Finish()]


def test_the_input_of_a_task_is_dropped_when_it_ends_and_its_blocks_know_where_they_come_from() -> (
    None
):
    scheduler, answer = begun(listed(1), stage(s.BundleBlocks(), 0))
    assert scheduler.handle(produced(task(0), 1)) == [
        Launch(task=task(0, 1), ports=((Piece(1, 0, 5),),))
    ]
    assert scheduler.handle(produced(task(0, 1), 2, is_last=False)) == [
        deliver(2, 0, 5, [[0, [0, 0]], 0]),
        Resume(task=task(0, 1)),
    ]
    assert scheduler.handle(produced(task(0, 1), 3)) == [
        Drop(block=1),
        deliver(3, 0, 5, [[0, [0, 0]], 5]),
    ]


def test_strict_cuts_have_exactly_so_many_rows_across_blocks() -> None:
    scheduler, answer = begun(passed(5, 4), stage(s.RebatchRows(rows=3, strict=True), 0))
    assert run_to_end(scheduler, answer, 1) == [
        ((Piece(-2, 0, 3),),),
        ((Piece(-2, 3, 5), Piece(-1, 0, 1)),),
        ((Piece(-1, 1, 4),),),
    ]


def test_loose_cuts_never_cross_blocks() -> None:
    scheduler, answer = begun(passed(5, 4), stage(s.RebatchRows(rows=3, strict=False), 0))
    assert run_to_end(scheduler, answer, 1) == [
        ((Piece(-2, 0, 3),),),
        ((Piece(-2, 3, 5),),),
        ((Piece(-1, 0, 3),),),
        ((Piece(-1, 3, 4),),),
    ]


def test_a_block_that_several_tasks_share_is_dropped_with_the_last_of_them() -> None:
    scheduler, _ = begun(listed(1), stage(s.RebatchRows(rows=3, strict=False), 0), slots=2)
    scheduler.handle(produced(task(0), 1))
    assert scheduler.handle(Ended(task=task(1, 1))) == []
    assert scheduler.handle(Ended(task=task(0, 1))) == [Drop(block=1), Finish()]


def test_even_cuts_wait_for_all_and_a_task_without_rows_gets_the_columns() -> None:
    scheduler, answer = begun(passed(5, 2), stage(s.RepartitionRows(parts=3), 0))
    assert run_to_end(scheduler, answer, 1) == [
        ((Piece(-2, 0, 2),),),
        ((Piece(-2, 2, 4),),),
        ((Piece(-2, 4, 5), Piece(-1, 0, 2)),),
    ]
    scheduler, answer = begun(passed(1), stage(s.RepartitionRows(parts=3), 0))
    assert run_to_end(scheduler, answer, 1) == [
        ((Piece(-1, 0, 0),),),
        ((Piece(-1, 0, 0),),),
        ((Piece(-1, 0, 1),),),
    ]
    assert begun(passed(5, 2), stage(s.RepartitionRows(parts=3), 0), start=[2, 1])[1][-1] == Launch(
        task=task(2, 1), ports=((Piece(-2, 4, 5), Piece(-1, 0, 2)),), skip_rows=1
    )


def test_first_cuts_the_last_block_and_cancels_what_is_upstream_at_once() -> None:
    scheduler, _ = begun(listed(3), stage(s.LimitRows(rows=7), 0), slots=3)
    assert scheduler.handle(produced(task(1), 1)) == []
    answer = scheduler.handle(produced(task(0), 2))
    assert answer == [
        deliver(2, 0, 5, [0, [0, 0]]),
        deliver(1, 0, 2, [5, [1, 0]]),
        Cancel(task=task(2)),
    ]
    assert scheduler.handle(produced(task(2), 3)) == [Drop(block=3)]
    assert [scheduler.handle(Taken()) for _ in range(2)] == [
        [Drop(block=2)],
        [Drop(block=1), Finish()],
    ]
    assert begun(listed(), stage(s.LimitRows(rows=0), 0))[1] == [Finish()]


def test_first_starts_no_more_tasks_than_known_rows_take() -> None:
    source = stage(s.SourceTasks(payloads=[Held(4)] * 9), keeps_rows=True)
    keeps, changes = (stage(s.BundleBlocks(), 0, keeps_rows=keeps) for keeps in (True, False))
    for between, starts in ((keeps, 3), (changes, 9)):
        _, answer = begun(source, between, stage(s.LimitRows(rows=10), 1), slots=9)
        assert len(answer) == starts, between
    scheduler, _ = begun(source, keeps, stage(s.LimitRows(rows=10), 1), slots=9)
    for number in range(3):  # fewer rows than promised: more tasks are needed
        scheduler.handle(produced(task(number), number, rows=2))
    assert scheduler.snapshot().stages[0].running == 1


def test_a_limit_after_a_restart_counts_the_rows_that_a_task_makes_again() -> None:
    source = stage(s.SourceTasks(payloads=[Held(4)] * 9), keeps_rows=True)
    stages = (source, stage(s.BundleBlocks(), 0, keeps_rows=True), stage(s.LimitRows(rows=10), 1))
    assert len(begun(*stages, slots=9, start=[0, [[0, [0, 0]], 0]])[1]) == 3
    assert len(begun(*stages, slots=9, start=[0, [[0, [0, 0]], 3]])[1]) == 4


def test_a_limit_looks_beyond_bundles_that_are_not_full() -> None:
    source = stage(s.SourceTasks(payloads=[Held(2)] * 9), keeps_rows=True)
    _, answer = begun(
        source,
        stage(s.BundleBlocks(min_rows=5), 0, keeps_rows=True),
        stage(s.LimitRows(rows=1), 1),
        slots=9,
    )
    assert len(answer) == 3


def test_what_is_kept_passes_in_order_and_its_end_is_told() -> None:
    keeping = s.TeeBlocks(writer=object())
    scheduler, _ = begun(listed(2), stage(keeping, 0), slots=2)
    assert scheduler.handle(produced(task(1), 1)) == []
    kept = [TeeBlock(stage=1, piece=Piece(number, 0, 5)) for number in (2, 1)]
    answer = scheduler.handle(produced(task(0), 2))
    assert answer == [
        kept[0],
        deliver(2, 0, 5, [0, 0]),
        kept[1],
        deliver(1, 0, 5, [1, 0]),
        TeeEnded(stage=1),
    ]
    scheduler, _ = begun(listed(2), stage(keeping, 0), stage(s.LimitRows(rows=5), 1), slots=2)
    assert TeeEnded(stage=1) not in scheduler.handle(produced(task(0), 1))
    _, answer = begun(listed(2), stage(s.TeeBlocks(writer=None), 0), slots=2, start=[1, 3])
    assert [each.skip_rows for each in answer] == [3]


def test_chained_inputs_come_one_after_the_other() -> None:
    scheduler, _ = begun(listed(1), listed(1), stage(s.UnionInputs(), 0, 1), slots=2)
    assert scheduler.handle(produced(task(0, 1), 1)) == []
    assert scheduler.handle(produced(task(0, 0), 2)) == [
        deliver(2, 0, 5, [0, [0, 0]]),
        deliver(1, 0, 5, [1, [0, 0]]),
    ]
    assert begun(listed(1), listed(1), stage(s.UnionInputs(), 0, 1), slots=2, start=[1, [0, 3]])[
        1
    ] == [Launch(task=task(0, 1), payload="payload 0", skip_rows=3)]


def test_shuffled_blocks_come_in_the_order_of_the_seed_once_all_are_there() -> None:
    orders = []
    for seed in (1, 1, 2):
        _, answer = begun(passed(*range(1, 9)), stage(s.ShuffleBlocks(seed=seed), 0))
        orders.append([each.piece.block for each in answer if isinstance(each, Deliver)])
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list(range(-8, 0))
    scheduler, _ = begun(listed(2), stage(s.ShuffleBlocks(seed=1), 0), slots=2)
    assert scheduler.handle(produced(task(0), 1)) == []


def test_aligned_tasks_end_at_the_next_block_boundary_of_any_input() -> None:
    scheduler, answer = begun(passed(5, 3), passed(2, 6), stage(s.ZipInputs(), 0, 1))
    assert run_to_end(scheduler, answer, 2) == [
        ((Piece(-4, 0, 2),), (Piece(-2, 0, 2),)),
        ((Piece(-4, 2, 5),), (Piece(-1, 0, 3),)),
        ((Piece(-3, 0, 3),), (Piece(-1, 3, 6),)),
    ]


def test_aligned_inputs_that_end_apart_fail_with_both_counts() -> None:
    scheduler, _ = begun(listed(1), listed(1), stage(s.ZipInputs(), 0, 1), slots=2)
    scheduler.handle(produced(task(0, 0), 1, rows=5))
    answer = scheduler.handle(produced(task(0, 1), 2, rows=4))
    assert isinstance(answer[-1], Fail)
    assert isinstance(answer[-1].error, ValueError)
    assert "input 1 has 4 rows and input 0 has 5" in str(answer[-1].error)
    assert {each.block for each in answer if isinstance(each, Drop)} == {1, 2}
    _, answer = begun(
        passed(5, 3), passed(5), stage(s.ZipInputs(), 0, 1), start=[[1, [[0, 4], [0, 4]], 4], 0]
    )
    assert "input 1 has 5 rows and input 0 has 8" in str(answer[-1])


def test_aligned_inputs_without_rows_make_one_task_for_the_columns() -> None:
    scheduler, answer = begun(passed(0, 0), passed(0), stage(s.ZipInputs(), 0, 1))
    assert run_to_end(scheduler, answer, 2) == [((Piece(-3, 0, 0),), (Piece(-1, 0, 0),))]


@pytest.mark.parametrize(
    ("until_shortest", "order"), [(True, [-6, -2, -5, -1, -4]), (False, [-6, -2, -5, -1, -4, -3])]
)
def test_interleaved_blocks_follow_the_weights(until_shortest: bool, order: list[int]) -> None:
    # 2 rows against 1: after each block the input goes on that lags furthest behind.
    stages = (
        passed(2, 2, 2, 2),
        passed(1, 1),
        stage(s.MixInputs(weights=(2.0, 1.0), until_shortest=until_shortest), 0, 1),
    )
    _, answer = begun(*stages)
    assert [each.piece.block for each in answer if isinstance(each, Deliver)] == order


def exchanged(ports: int = 1, **options: object) -> s.ExchangeRows:
    settings = {"parts": None, "default_parts": 2, "direct_bytes": 0, **options}
    return s.ExchangeRows(partition=(max,) * ports, **settings)


def test_a_small_input_goes_to_one_task_without_partitioning() -> None:
    scheduler, answer = begun(passed(2, 3), stage(exchanged(direct_bytes=20), 0))
    assert run_to_end(scheduler, answer, 1) == [((Piece(-2, 0, 2), Piece(-1, 0, 3)),)]


def test_blocks_are_partitioned_as_they_come_and_pieces_go_to_a_task_per_partition() -> None:
    scheduler, _ = begun(listed(2), stage(exchanged(direct_bytes=60), 0), slots=2)
    assert scheduler.handle(produced(task(0), 1)) == []
    first, second = TaskId(1, "partition", 0), TaskId(1, "partition", 1)
    assert scheduler.handle(produced(task(1), 2)) == [
        Launch(task=first, ports=((Piece(1, 0, 5),),), parts=2),
        Launch(task=second, ports=((Piece(2, 0, 5),),), parts=2),
    ]
    parts = (Piece(3, 0, 2), Piece(3, 2, 5))
    assert scheduler.handle(
        Partitioned(task=second, blocks=(BlockInfo(3, 5, 50),), parts=parts)
    ) == [Drop(block=2)]
    parts_of_first = (None, Piece(4, 0, 5))
    assert scheduler.handle(
        Partitioned(task=first, blocks=(BlockInfo(4, 5, 50),), parts=parts_of_first)
    ) == [
        Drop(block=1),
        Launch(task=task(0, 1), ports=((Piece(3, 0, 2),),)),
        Launch(task=task(1, 1), ports=((Piece(4, 0, 5), Piece(3, 2, 5)),)),
    ]
    assert scheduler.handle(Ended(task=task(0, 1))) == []
    assert scheduler.handle(Ended(task=task(1, 1))) == [Drop(block=4), Drop(block=3), Finish()]


def test_blocks_are_sampled_and_prepared_for_before_they_are_partitioned() -> None:
    scheduler, answer = begun(
        passed(2, 3), stage(exchanged(parts=4, sample=max, prepare=max), 0), slots=2
    )
    first, second = TaskId(1, "sample", 0), TaskId(1, "sample", 1)
    assert answer == [
        Launch(task=first, ports=((Piece(-2, 0, 2),),)),
        Launch(task=second, ports=((Piece(-1, 0, 3),),)),
    ]
    assert scheduler.handle(Ended(task=second)) == []
    assert scheduler.handle(Ended(task=first)) == [Prepare(stage=1, parts=4)]
    answer = scheduler.handle(Prepared(stage=1))
    assert [each.task for each in answer if isinstance(each, Launch)] == [
        TaskId(1, "partition", 0),
        TaskId(1, "partition", 1),
    ]


def test_an_exchange_of_several_inputs_numbers_blocks_in_turns_and_decides_once_for_all() -> None:
    scheduler, answer = begun(
        passed(2, 3), passed(4), stage(exchanged(2, direct_bytes=25), 0, 1), slots=9
    )
    launches = [each for each in answer if isinstance(each, Launch)]
    assert {(each.task.number, each.port, each.ports[0][0].block) for each in launches} == {
        (0, 0, -3),
        (2, 0, -2),
        (1, 1, -1),
    }


def test_partitions_without_rows_of_an_input_get_its_columns() -> None:
    scheduler, answer = begun(passed(2), passed(0), stage(exchanged(2), 0, 1))
    (launch,) = [each for each in answer if isinstance(each, Launch)]
    parts = (None, Piece(1, 0, 2))
    answer = scheduler.handle(
        Partitioned(task=launch.task, blocks=(BlockInfo(1, 2, 20),), parts=parts)
    )
    assert run_to_end(scheduler, answer, 2) == [
        ((Piece(1, 0, 0),), (Piece(-1, 0, 0),)),
        ((Piece(1, 0, 2),), (Piece(-1, 0, 0),)),
    ]


def test_an_empty_exchange_has_one_task_with_empty_ports() -> None:
    assert begun(passed(), passed(), stage(exchanged(2, parts=5), 0, 1))[1] == [
        Launch(task=task(0, 2), ports=((), ()))
    ]


def test_an_exchange_starts_again_at_a_partition_and_drops_the_pieces_before_it() -> None:
    scheduler, answer = begun(passed(2), stage(exchanged(), 0), start=[1, 3])
    (launch,) = [each for each in answer if isinstance(each, Launch)]
    event = Partitioned(
        task=launch.task,
        blocks=(BlockInfo(1, 1, 10), BlockInfo(2, 1, 10)),
        parts=(Piece(1, 0, 1), Piece(2, 0, 1)),
    )
    assert scheduler.handle(event) == [
        Drop(block=1),
        Drop(block=-1),
        Launch(task=task(1, 1), ports=((Piece(2, 0, 1),),), skip_rows=3),
    ]


def test_every_stage_is_read_once() -> None:
    with pytest.raises(AssertionError, match="every use needs stages of its own"):
        begun(listed(), stage(s.UnionInputs(), 0, 0))
