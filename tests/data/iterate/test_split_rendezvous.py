"""Who has come to a pass, and who keeps the others waiting."""

from syncline.data.iterate.batching import BatchOptions
from syncline.data.iterate.split_rendezvous import ConsumerProcess, Join, Rendezvous


def join(rank: int, token: str = "") -> Join:
    process = ConsumerProcess(host_id="here", pid=100 + rank, started_s=0.0)
    return Join(
        rank=rank, token=token or f"pass of {rank}", process=process, options=BatchOptions()
    )


def test_it_is_complete_once_all_ranks_are_there_in_any_order() -> None:
    rendezvous = Rendezvous(2)
    rendezvous.arrive(join(1), 0.0)
    assert rendezvous.complete() is None
    rendezvous.arrive(join(0), 5.0)
    assert [each.rank for each in rendezvous.complete() or []] == [0, 1]
    assert rendezvous.complete() is None


def test_nobody_is_absent_while_nobody_waits() -> None:
    assert Rendezvous(2).absent(100.0) == []


def test_a_rank_that_never_came_is_silent_since_the_first_one_waits() -> None:
    rendezvous = Rendezvous(3)
    rendezvous.arrive(join(0), 10.0)
    rendezvous.arrive(join(0), 15.0)  # asks again
    rendezvous.arrive(join(2), 20.0)
    (absent,) = rendezvous.absent(30.0)
    assert (absent.rank, absent.process, absent.silent_s) == (1, None, 20.0)
    assert str(absent) == "rank 1 (has never begun a pass)"


def test_a_rank_that_still_reads_is_not_silent() -> None:
    rendezvous = Rendezvous(2)
    for rank in range(2):
        rendezvous.arrive(join(rank), 0.0)
    rendezvous.complete()
    rendezvous.arrive(join(0, "next"), 10.0)
    rendezvous.mark_seen(1, 25.0)
    (absent,) = rendezvous.absent(30.0)
    assert absent.silent_s == 5.0
    assert str(absent) == "rank 1 (pid 101)"


def test_who_withdraws_is_waited_for_again() -> None:
    rendezvous = Rendezvous(2)
    rendezvous.arrive(join(0, "a"), 0.0)
    rendezvous.cancel("a")
    rendezvous.arrive(join(1), 1.0)
    assert rendezvous.complete() is None
    assert [each.rank for each in rendezvous.absent(2.0)] == [0]


def test_dissolving_gives_the_tokens_of_those_who_waited() -> None:
    rendezvous = Rendezvous(3)
    rendezvous.arrive(join(0, "a"), 0.0)
    rendezvous.arrive(join(2, "c"), 0.0)
    assert rendezvous.clear() == ["a", "c"]
    assert rendezvous.absent(1.0) == []
