"""Prefetching on a thread: bounds, errors, loops that are left, threads that end."""

import contextvars
import gc
import threading
import traceback
from collections.abc import Iterator

import pytest

from syncline.data.iterate.prefetch import _BURST, Prefetcher
from syncline.testing import eventually


def threads() -> int:
    return sum(thread.name == "syncline-prefetch" for thread in threading.enumerate())


class Source(Iterator[int]):
    """Counts up, remembers how far it was asked, and is closed like a generator."""

    def __init__(self, stop: int = 10**9) -> None:
        self.made = 0
        self.stop = stop
        self.closed_on: threading.Thread | None = None

    def __next__(self) -> int:
        if self.made == self.stop:
            raise StopIteration
        self.made += 1
        return self.made - 1

    def close(self) -> None:
        self.closed_on = threading.current_thread()


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_all_items_come_in_order_and_no_thread_is_left(depth: int) -> None:
    ahead = Prefetcher(Source(20), depth=depth)
    assert list(ahead) == list(range(20))
    assert next(ahead, None) is None
    assert ahead.statistics().items == 20
    ahead.close()
    assert threads() == 0


def test_no_more_than_depth_items_are_made_ahead() -> None:
    source = Source()
    ahead = Prefetcher(source, depth=3)
    assert source.made == 0
    assert next(ahead) == 0
    eventually(lambda: ahead.statistics().ready == 3)
    assert source.made == 4
    ahead.close()
    assert source.made == 4
    assert threads() == 0


def test_more_than_depth_small_items_are_made_ahead_up_to_a_limit() -> None:
    source = Source()
    ahead = Prefetcher(source, depth=2, is_small=lambda item: True)
    assert [next(ahead) for _ in range(100)] == list(range(100))
    eventually(lambda: ahead.statistics().ready > 2)
    ahead.close()
    assert source.made <= 100 + 2 + _BURST
    assert threads() == 0


def test_nothing_is_made_ahead_without_depth() -> None:
    source = Source()
    ahead = Prefetcher(source, depth=0)
    assert next(ahead) == 0
    assert source.made == 1
    ahead.close()
    assert source.closed_on is threading.current_thread()
    assert next(ahead, None) is None


def test_dropping_the_iterator_ends_its_thread_and_closes_the_source_there() -> None:
    source = Source()
    ahead = Prefetcher(source, depth=2)
    assert next(ahead) == 0
    del ahead
    gc.collect()
    eventually(lambda: threads() == 0)
    assert source.closed_on not in (None, threading.current_thread())


def test_an_iterator_that_nobody_asked_starts_no_thread_and_is_cancelled_once() -> None:
    cancelled = []
    ahead = Prefetcher(Source(), depth=2, cancel=lambda: cancelled.append(1))
    assert threads() == 0
    ahead.close()
    ahead.close()
    del ahead
    assert cancelled == [1]


def test_a_source_that_waits_is_woken_by_cancel() -> None:
    wake = threading.Event()

    def waiting() -> Iterator[int]:
        yield 0
        assert wake.wait(60)

    ahead = Prefetcher(waiting(), depth=1, cancel=wake.set)
    assert next(ahead) == 0
    ahead.close()
    assert threads() == 0


def users_function() -> int:
    raise KeyError("no such user")


@pytest.mark.parametrize("depth", [0, 2])
def test_an_error_comes_after_the_items_before_it_with_its_own_frames(depth: int) -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield users_function()

    ahead = Prefetcher(failing(), depth=depth)
    assert next(ahead) == 1
    with pytest.raises(KeyError, match="no such user") as caught:
        next(ahead)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "users_function"
    assert next(ahead, None) is None
    ahead.close()
    assert threads() == 0


def test_an_error_of_close_reaches_the_program() -> None:
    class Leaky(Source):
        def close(self) -> None:
            raise OSError("cannot close")

    with pytest.raises(OSError, match="cannot close"):
        list(Prefetcher(Leaky(2), depth=1))


def test_context_variables_of_the_program_hold_on_the_thread() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    variable.set(7)
    assert list(Prefetcher((variable.get() for _ in range(2)), depth=1)) == [7, 7]


def test_waiting_is_measured() -> None:
    ticks = iter([0.0, 2.0, 10.0, 11.5])
    ahead = Prefetcher(Source(), depth=0, clock=lambda: next(ticks))
    next(ahead)
    next(ahead)
    assert ahead.statistics().waited_s == 3.5
