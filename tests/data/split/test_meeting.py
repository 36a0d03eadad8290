"""Who has come to a pass, and who keeps the others waiting."""

from syncline.data.iterate.batching import BatchOptions
from syncline.data.iterate.split_rendezvous import Join, Meeting, Process


def join(rank: int, token: str = "") -> Join:
    process = Process(place="here", pid=100 + rank, started_s=0.0)
    return Join(
        rank=rank, token=token or f"pass of {rank}", process=process, options=BatchOptions()
    )


def test_it_is_complete_once_all_ranks_are_there_in_any_order() -> None:
    meeting = Meeting(2)
    meeting.arrive(join(1), 0.0)
    assert meeting.complete() is None
    meeting.arrive(join(0), 5.0)
    assert [each.rank for each in meeting.complete() or []] == [0, 1]
    assert meeting.complete() is None


def test_nobody_is_absent_while_nobody_waits() -> None:
    assert Meeting(2).absent(100.0) == []


def test_a_rank_that_never_came_is_silent_since_the_first_one_waits() -> None:
    meeting = Meeting(3)
    meeting.arrive(join(0), 10.0)
    meeting.arrive(join(0), 15.0)  # asks again
    meeting.arrive(join(2), 20.0)
    (absent,) = meeting.absent(30.0)
    assert (absent.rank, absent.process, absent.silent_s) == (1, None, 20.0)
    assert str(absent) == "rank 1 (has never begun a pass)"


def test_a_rank_that_still_reads_is_not_silent() -> None:
    meeting = Meeting(2)
    for rank in range(2):
        meeting.arrive(join(rank), 0.0)
    meeting.complete()
    meeting.arrive(join(0, "next"), 10.0)
    meeting.sign(1, 25.0)
    (absent,) = meeting.absent(30.0)
    assert absent.silent_s == 5.0
    assert str(absent) == "rank 1 (pid 101)"


def test_who_withdraws_is_waited_for_again() -> None:
    meeting = Meeting(2)
    meeting.arrive(join(0, "a"), 0.0)
    meeting.withdraw("a")
    meeting.arrive(join(1), 1.0)
    assert meeting.complete() is None
    assert [each.rank for each in meeting.absent(2.0)] == [0]


def test_dissolving_gives_the_tokens_of_those_who_waited() -> None:
    meeting = Meeting(3)
    meeting.arrive(join(0, "a"), 0.0)
    meeting.arrive(join(2, "c"), 0.0)
    assert meeting.dissolve() == ["a", "c"]
    assert meeting.absent(1.0) == []
