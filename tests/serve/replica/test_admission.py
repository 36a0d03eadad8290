import random

import pytest

from syncline.serve.replica.admission import Admission


def test_calls_beyond_the_limit_are_refused():
    admission: Admission[str] = Admission(2)
    assert [admission.admit("a") for _ in range(3)] == [True, True, False]
    assert admission.statistics().ongoing == 2
    assert admission.statistics().refused == 1


def test_refused_callers_are_told_once_in_their_order():
    admission: Admission[str] = Admission(1)
    assert admission.admit("a")
    for caller in ("b", "c", "b"):
        assert not admission.admit(caller)
    assert admission.release() == ("b", "c")
    assert admission.admit("c")
    assert admission.release() == ()


def test_nobody_is_told_while_the_limit_is_exceeded():
    admission: Admission[str] = Admission(3)
    for _ in range(3):
        admission.admit("a")
    admission.admit("b")
    assert admission.resize(1) == ()
    assert admission.release() == ()
    assert admission.release() == ()
    assert admission.release() == ("b",)


def test_higher_limit_tells_the_waiting():
    admission: Admission[str] = Admission(1)
    admission.admit("a")
    admission.admit("b")
    assert admission.resize(2) == ("b",)


def test_draining_refuses_and_tells_nobody():
    admission: Admission[str] = Admission(1)
    admission.admit("a")
    admission.admit("b")
    admission.drain()
    assert not admission.admit("c")
    assert admission.release() == ()
    assert admission.resize(5) == ()
    assert not admission.admit("c")
    assert admission.statistics().is_draining


def test_lost_caller_is_not_told():
    admission: Admission[str] = Admission(1)
    admission.admit("a")
    admission.admit("b")
    admission.forget("b")
    assert admission.release() == ()


def test_limit_below_one_is_refused():
    with pytest.raises(ValueError, match="max_ongoing_requests=0"):
        Admission(0)


def test_random_walk_keeps_the_limit_and_forgets_no_caller():
    chance = random.Random(3)
    admission: Admission[int] = Admission(3)
    limit, ongoing, waiting = 3, 0, set[int]()
    for _ in range(20_000):
        step = chance.random()
        if step < 0.5:
            caller = chance.randrange(8)
            admitted = admission.admit(caller)
            assert admitted == (ongoing < limit)
            ongoing += admitted
            if not admitted:
                waiting.add(caller)
        elif step < 0.9 and ongoing:
            ongoing -= 1
            waiting -= set(admission.release())
        elif step < 0.95:
            limit = chance.randint(1, 6)
            waiting -= set(admission.resize(limit))
        else:
            caller = chance.randrange(8)
            admission.forget(caller)
            waiting.discard(caller)
        assert admission.ongoing == ongoing
        if ongoing < limit:  # a free slot and a caller that still waits for it: it would hang
            assert not waiting
