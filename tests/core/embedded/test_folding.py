"""Folding: other workers' same lines are counted, for a moment."""

from syncline.core.embedded.folding import MOST_LINES, WINDOW_S, Folding


def test_the_first_of_a_line_is_no_repeat_and_others_are():
    folding = Folding()
    assert not folding.is_repeat("x", 1, "(a) ", 0.0)
    assert folding.is_repeat("x", 2, "(b) ", 0.1)
    assert folding.is_repeat("x", 3, "(c) ", 0.1)
    assert folding.next_moment == WINDOW_S
    assert folding.expire(WINDOW_S / 2) == []
    assert folding.expire(WINDOW_S) == ["(c) x [repeated 2x across workers]\n"]
    assert folding.next_moment is None
    assert folding.total == 2


def test_a_single_repeat_is_told_as_it_is():
    folding = Folding()
    folding.is_repeat("x", 1, "(a) ", 0.0)
    assert folding.is_repeat("x", 2, "(b) ", 0.0)
    assert folding.expire(1.0) == ["(b) x\n"]


def test_the_same_worker_repeats_itself_freely():
    folding = Folding()
    assert not any(folding.is_repeat("x", 1, "(a) ", 0.0) for _ in range(3))
    assert folding.next_moment is None
    assert folding.expire(1.0) == []


def test_after_its_window_a_line_is_new():
    folding = Folding()
    folding.is_repeat("x", 1, "(a) ", 0.0)
    folding.expire(1.0)
    assert not folding.is_repeat("x", 2, "(b) ", 1.0)


def test_memory_is_bounded_in_a_flood():
    folding = Folding()
    for index in range(3 * MOST_LINES):
        folding.is_repeat(str(index), 1, "(a) ", 0.0)
    assert folding.expire(0.0) == []
    assert not folding.is_repeat("0", 2, "(b) ", 0.0)  # forgotten
    assert folding.is_repeat(str(3 * MOST_LINES - 1), 2, "(b) ", 0.0)


def test_flush_tells_at_once():
    folding = Folding()
    folding.is_repeat("x", 1, "(a) ", 0.0)
    folding.is_repeat("x", 2, "(b) ", 0.0)
    assert folding.flush() == ["(b) x\n"]
    assert folding.flush() == []
