"""Equal lines of several workers are counted within a window of time."""

from syncline.core.embedded.line_deduplicator import MOST_LINES, WINDOW_S, LineDeduplicator


def test_the_first_line_is_no_repeat_and_later_ones_are():
    deduplicator = LineDeduplicator()
    assert not deduplicator.is_repeat("x", 1, "(a) ", 0.0)
    assert deduplicator.is_repeat("x", 2, "(b) ", 0.1)
    assert deduplicator.is_repeat("x", 3, "(c) ", 0.1)
    assert deduplicator.next_moment == WINDOW_S
    assert deduplicator.expire(WINDOW_S / 2) == []
    assert deduplicator.expire(WINDOW_S) == ["(c) x [repeated 2x across workers]\n"]
    assert deduplicator.next_moment is None
    assert deduplicator.total == 2


def test_a_single_repeat_is_printed_unchanged():
    deduplicator = LineDeduplicator()
    deduplicator.is_repeat("x", 1, "(a) ", 0.0)
    assert deduplicator.is_repeat("x", 2, "(b) ", 0.0)
    assert deduplicator.expire(1.0) == ["(b) x\n"]


def test_repeats_of_the_same_worker_are_printed():
    deduplicator = LineDeduplicator()
    assert not any(deduplicator.is_repeat("x", 1, "(a) ", 0.0) for _ in range(3))
    assert deduplicator.next_moment is None
    assert deduplicator.expire(1.0) == []


def test_after_its_window_a_line_is_new():
    deduplicator = LineDeduplicator()
    deduplicator.is_repeat("x", 1, "(a) ", 0.0)
    deduplicator.expire(1.0)
    assert not deduplicator.is_repeat("x", 2, "(b) ", 1.0)


def test_memory_is_bounded_in_a_flood():
    deduplicator = LineDeduplicator()
    for index in range(3 * MOST_LINES):
        deduplicator.is_repeat(str(index), 1, "(a) ", 0.0)
    assert deduplicator.expire(0.0) == []
    assert not deduplicator.is_repeat("0", 2, "(b) ", 0.0)  # forgotten
    assert deduplicator.is_repeat(str(3 * MOST_LINES - 1), 2, "(b) ", 0.0)


def test_flush_ends_all_windows():
    deduplicator = LineDeduplicator()
    deduplicator.is_repeat("x", 1, "(a) ", 0.0)
    deduplicator.is_repeat("x", 2, "(b) ", 0.0)
    assert deduplicator.flush() == ["(b) x\n"]
    assert deduplicator.flush() == []
