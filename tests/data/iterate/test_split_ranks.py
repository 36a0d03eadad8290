"""Ranks that share a dataset: who gets which rows, epochs, leaving, waiting, errors, continuing.
Ranks are threads here.
"""

import json
import logging
import threading
from dataclasses import replace
from typing import Any

import pytest

import syncline
from syncline.data.iterate import streaming_split as consumer
from syncline.data.iterate.batching import BatchOptions
from syncline.data.iterate.cursor import CursorError
from syncline.data.iterate.split_rendezvous import (
    ConsumerProcess,
    Join,
    Joined,
    SplitError,
    this_process,
)
from syncline.data.iterator import DataIterator
from syncline.testing.waiting import eventually
from tests.data.execution_fake import FakeDataset
from tests.data.iterate.split_threads import QUICK, Ranks, coordinator_of, on_all, split_of, values


@pytest.fixture(autouse=True, scope="module")
def local_mode() -> Any:
    syncline.init(local_mode=True)
    yield
    syncline.shutdown()


def read(_: int, iterator: DataIterator, **options: Any) -> list[int]:
    return values(iterator.iter_batches(**{"batch_size": 4, **options}))


def test_all_rows_come_once_and_batches_go_around() -> None:
    results = on_all(split_of(FakeDataset(block_rows=[7, 9, 11]), 3), read)
    assert sorted(row for own in results.values() for row in own) == list(range(27))
    assert results[1][:8] == [4, 5, 6, 7, 16, 17, 18, 19]


@pytest.mark.parametrize(
    ("equal", "lengths"), [(True, [5, 5]), ("drop", [5, 5]), ("pad", [6, 6]), (False, [7, 4])]
)
def test_the_last_rows_are_shared_as_equal_says(equal: bool | str, lengths: list[int]) -> None:
    results = on_all(split_of(FakeDataset(block_rows=[11]), 2, equal=equal), read)
    assert [len(results[rank]) for rank in range(2)] == lengths
    assert set(results[0] + results[1]) == set(range(10 if equal in (True, "drop") else 11))


def test_a_rank_gets_its_first_rows_with_the_reply_to_its_join() -> None:
    coordinator = coordinator_of(split_of(FakeDataset(block_rows=[11]), 1)[0])
    options = BatchOptions(batch_size=4)
    joined = coordinator.join(Join(rank=0, token="t", process=this_process(), options=options))
    assert isinstance(joined, Joined)
    assert joined.first.shares[0].start == 0
    coordinator.leave(0, "t")


def test_the_number_of_dropped_rows_is_logged_once_per_epoch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    iterators = split_of(FakeDataset(block_rows=[11]), 2, equal=True)
    with caplog.at_level(logging.INFO, logger="syncline"):
        for _ in range(2):
            on_all(iterators, read)
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        "Epoch 0: the last 1 rows were dropped so that all 2 ranks get equally many.",
        "Epoch 1: the last 1 rows were dropped so that all 2 ranks get equally many.",
    ]


def test_each_epoch_is_one_execution_for_all_ranks_in_another_order() -> None:
    dataset = FakeDataset(block_rows=[4] * 10, shuffled=True)
    iterators = split_of(dataset, 2)
    epochs = [on_all(iterators, read) for _ in range(3)]
    assert [run["epoch"] for run in dataset.runs] == [0, 1, 2]
    assert all(sorted(epoch[0] + epoch[1]) == list(range(40)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_ranks_without_batch_size_take_turns_by_the_rows_of_a_block() -> None:
    results = on_all(
        split_of(FakeDataset(block_rows=[5] * 4), 2),
        lambda _, it: [row["v"] for row in it.iter_rows()],
    )
    assert results == {
        0: [0, 1, 2, 3, 4, 10, 11, 12, 13, 14],
        1: [5, 6, 7, 8, 9, 15, 16, 17, 18, 19],
    }


def test_a_dataset_without_rows_ends_for_all() -> None:
    assert on_all(split_of(FakeDataset(block_rows=[0]), 2), lambda _, it: list(it.iter_rows())) == {
        0: [],
        1: [],
    }


def test_a_rank_that_leaves_early_does_not_hold_up_the_others_and_all_meet_again() -> None:
    iterators = split_of(FakeDataset(block_rows=[10] * 20), 2)

    def loop(rank: int, iterator: DataIterator) -> list[int]:
        counts = []
        for _ in range(3):
            rows = 0
            for batch in iterator.iter_batches(batch_size=5):
                rows += len(batch["v"])
                if rank == 0:
                    break
            counts.append(rows)
        return counts

    assert on_all(iterators, loop) == {0: [5, 5, 5], 1: [100, 100, 100]}


def test_when_all_have_left_the_execution_is_closed_and_nothing_is_held() -> None:
    dataset = FakeDataset(block_rows=[10] * 1000)
    executions: list[Any] = []
    run = dataset.run
    dataset.run = lambda *args, **kwargs: executions.append(run(*args, **kwargs)) or executions[-1]  # type: ignore[method-assign]
    iterators = split_of(dataset, 2)
    on_all(iterators, lambda _, it: next(iter(it.iter_batches(batch_size=5))))
    eventually(executions[0].closed.is_set)


def test_a_rank_that_comes_late_is_waited_for_and_named(caplog: pytest.LogCaptureFixture) -> None:
    iterators = split_of(FakeDataset(block_rows=[8]), 2)
    ranks = Ranks()
    ranks.start(0, lambda: read(0, iterators[0]))
    eventually(
        lambda: any(
            "rank 1 (has never begun a pass)" in record.getMessage() for record in caplog.records
        )
    )
    ranks.start(1, lambda: read(1, iterators[1]))
    assert ranks.join().results == {0: [0, 1, 2, 3], 1: [4, 5, 6, 7]}
    assert sum("has waited for" in record.getMessage() for record in caplog.records) == 1


def test_a_rank_that_never_comes_ends_the_waiting_of_the_others() -> None:
    iterators = split_of(FakeDataset(block_rows=[8]), 3, timeouts=replace(QUICK, give_up_s=0.3))
    ranks = Ranks()
    for rank in (0, 1):
        ranks.start(rank, lambda rank=rank: read(rank, iterators[rank]))  # type: ignore[misc]
    ranks.join()
    assert all(
        isinstance(error, SplitError) and "rank 2 (has never begun" in str(error)
        for error in ranks.errors.values()
    )
    assert len(ranks.errors) == 2


def test_a_second_loop_of_a_rank_ends_its_first() -> None:
    iterators = split_of(FakeDataset(block_rows=[8] * 50), 1)
    first = iter(iterators[0].iter_batches(batch_size=4, prefetch_batches=0))
    next(first)
    assert read(0, iterators[0]) == list(range(400))
    with pytest.raises(SplitError, match="another pass"):
        list(first)


def test_an_error_of_the_pipeline_reaches_every_rank() -> None:
    iterators = split_of(FakeDataset(block_rows=[8] * 5, fails_at=3), 2)
    ranks = Ranks()
    for rank in range(2):
        ranks.start(rank, lambda rank=rank: read(rank, iterators[rank]))  # type: ignore[misc]
    ranks.join()
    assert {rank: (type(error), str(error)) for rank, error in ranks.errors.items()} == {
        0: (ValueError, "block 3 is broken"),
        1: (ValueError, "block 3 is broken"),
    }


def test_after_a_failed_pass_the_ranks_can_begin_another() -> None:
    dataset = FakeDataset(block_rows=[8] * 2, fails_at=1)
    iterators = split_of(dataset, 2)
    with pytest.raises(ValueError, match="broken"):
        on_all(iterators, read)
    dataset.fails_at = None
    results = on_all(iterators, read)
    assert sorted(results[0] + results[1]) == list(range(16))


@pytest.mark.parametrize("shuffle", [None, 8])
def test_states_of_all_ranks_continue_the_pass_exactly(shuffle: int | None) -> None:
    dataset = FakeDataset(block_rows=[9, 4, 30, 17], shuffled=True)
    options = {"local_shuffle_buffer_size": shuffle}
    states: dict[int, Any] = {}

    def saved_after(rank: int, iterator: DataIterator) -> list[int]:
        got = []
        for number, batch in enumerate(iterator.iter_batches(batch_size=4, **options)):
            got.append(batch["v"].tolist())
            if number == 2 + rank:
                states[rank] = json.loads(json.dumps(iterator.state_dict()))
        return [value for batch in got[3 + rank :] for value in batch]

    expected = on_all(split_of(dataset, 2), saved_after)

    def recompute(load: Any) -> dict[int, Any]:
        iterators = split_of(dataset, 2)
        for rank, iterator in enumerate(iterators):
            iterator.load_state_dict(load(rank))
        return on_all(iterators, lambda rank, it: read(rank, it, **options))

    assert recompute(lambda _: [states[1], states[0]]) == expected
    assert recompute(lambda rank: states[rank]) == expected


@pytest.mark.parametrize("world_size", [1, 3])
def test_another_number_of_ranks_gets_the_rows_that_remain_in_order(world_size: int) -> None:
    dataset = FakeDataset(block_rows=[9, 4, 30, 17])
    iterators = split_of(dataset, 2)

    def some(rank: int, iterator: DataIterator) -> list[int]:
        batches = iter(iterator.iter_batches(batch_size=4))
        return values(next(batches) for _ in range(2 + rank))

    before = on_all(iterators, some)
    states = [iterator.state_dict() for iterator in iterators]
    others = split_of(dataset, world_size)
    for iterator in others:
        iterator.load_state_dict(states)
    after = on_all(others, read)
    remaining = sorted(set(range(60)) - set(before[0]) - set(before[1]))
    assert sorted(row for own in after.values() for row in own) == remaining
    assert after[0][:4] == remaining[:4]


def test_states_of_some_ranks_only_are_refused_at_all_ranks() -> None:
    dataset = FakeDataset(block_rows=[40])
    iterators = split_of(dataset, 2)
    on_all(iterators, lambda _, it: next(iter(it.iter_batches(batch_size=4))))
    others = split_of(dataset, 2)
    others[0].load_state_dict(iterators[0].state_dict())
    ranks = Ranks()
    for rank in range(2):
        ranks.start(rank, lambda rank=rank: read(rank, others[rank]))  # type: ignore[misc]
    ranks.join()
    assert [type(error) for error in ranks.errors.values()] == [CursorError, CursorError]


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator cannot see the processes of the ranks."""
    monkeypatch.setattr(
        consumer, "this_process", lambda: ConsumerProcess(host_id="elsewhere", pid=7, started_s=0.0)
    )
    monkeypatch.setattr(consumer, "HEARTBEAT_S", 0.02)


def test_a_rank_that_cannot_be_seen_says_that_it_lives_while_it_reads(
    far: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (iterator,) = split_of(FakeDataset(block_rows=[8]), 1)
    coordinator, stop = coordinator_of(iterator), []
    monkeypatch.setattr(coordinator, "heartbeat", lambda rank, token: stop.append(rank))
    for number, _ in enumerate(iterator.iter_batches(batch_size=4)):
        eventually(lambda wanted=3 * number + 3: len(stop) >= wanted)  # type: ignore[misc]
    eventually(lambda: all(thread.name != "syncline-beat" for thread in threading.enumerate()))


def test_a_rank_that_cannot_be_seen_and_is_silent_ends_the_pass_for_all(
    far: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "HEARTBEAT_S", 1000.0)
    iterators = split_of(
        FakeDataset(block_rows=[5] * 2000), 2, timeouts=replace(QUICK, silent_s=0.2)
    )
    ranks = Ranks()

    def read_twice() -> None:
        for _ in range(2):
            read(0, iterators[0], batch_size=5)

    def read_after_a_pause() -> None:
        for _ in iterators[1].iter_batches(batch_size=5):
            eventually(lambda: 0 in ranks.errors)

    ranks.start(0, read_twice)
    ranks.start(1, read_after_a_pause)
    ranks.join()
    assert [str(ranks.errors[rank]).partition(",")[0] for rank in range(2)] == [
        "The process of rank 1 (pid 7) has died in epoch 0"
    ] * 2


def test_materializing_keeps_a_ranks_rows() -> None:
    kept = on_all(split_of(FakeDataset(block_rows=[5, 5, 5]), 2), lambda _, it: it.materialize())
    rows = {rank: sum(block.num_rows for block in one.blocks) for rank, one in kept.items()}
    assert rows == {0: 10, 1: 5}


def test_many_epochs_leave_no_threads() -> None:
    iterators = split_of(FakeDataset(block_rows=[6] * 4), 2)
    on_all(iterators, read)
    before = threading.active_count()
    for _ in range(30):
        on_all(iterators, read)
    eventually(lambda: threading.active_count() <= before)


def test_schema_and_statistics_come_from_the_coordinator() -> None:
    iterators = split_of(FakeDataset(block_rows=[6] * 4), 2)
    on_all(iterators, read)
    assert iterators[1].schema().names == ["v"]
    eventually(lambda: "fake statistics" in iterators[0].stats())
    assert repr(iterators[1]) == "DataIterator(rank 1 of 2)"
