"""The reactor: handlers and timers of all threads are called, and no wake-up is lost."""

import os
import select
import socket
import threading

import pytest

from syncline.core.embedded.reactor import Reactor


@pytest.fixture
def reactor():
    reactor = Reactor()
    yield reactor
    reactor.close()


@pytest.fixture
def pipe():
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            pass


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_a_readable_descriptor_is_handled_until_it_is_read(reactor, pipe):
    events = []
    reactor.register(pipe[0], events.append)
    reactor.run_once(0)
    assert events == []
    os.write(pipe[1], b"x")
    reactor.run_once(60)
    reactor.run_once(60)
    assert events == [select.EPOLLIN] * 2
    os.read(pipe[0], 1)
    reactor.run_once(0)
    assert len(events) == 2


def test_a_hang_up_is_handled(reactor, pipe):
    events = []
    reactor.register(pipe[0], events.append)
    os.close(pipe[1])
    reactor.run_once(60)
    assert events[0] & select.EPOLLHUP


def test_room_to_write_is_watched_on_demand(reactor):
    left, right = socket.socketpair()
    events = []
    reactor.register(left.fileno(), events.append)
    reactor.run_once(0)
    assert events == []
    reactor.modify(left.fileno(), writable=True)
    reactor.run_once(60)
    assert events == [select.EPOLLOUT]
    reactor.modify(left.fileno(), writable=False)
    reactor.run_once(0)
    assert len(events) == 1
    reactor.unregister(left.fileno())
    reactor.modify(left.fileno(), writable=True)  # unknown: nothing happens
    left.close()
    right.close()


def test_an_unregistered_descriptor_is_not_handled(reactor, pipe):
    events = []
    reactor.register(pipe[0], events.append)
    assert reactor.handler(pipe[0]) == events.append
    os.write(pipe[1], b"x")
    reactor.unregister(pipe[0])
    reactor.unregister(pipe[0])
    reactor.run_once(0)
    assert events == []


def test_a_handler_may_unregister_another_due_one(reactor):
    pipes = [os.pipe() for _ in range(2)]
    handled = []

    def handler(mine, other):
        def handle(_):
            handled.append(mine)
            reactor.unregister(other)

        return handle

    (a, _), (b, _) = pipes
    reactor.register(a, handler(a, b))
    reactor.register(b, handler(b, a))
    for _, write in pipes:
        os.write(write, b"x")
    reactor.run_once(60)
    assert len(handled) == 1
    for fds in pipes:
        for fd in fds:
            os.close(fd)


def test_a_handler_that_fails_leaves_the_reactor_usable(reactor, pipe):
    def fail(_):
        os.read(pipe[0], 1)
        raise ValueError("no")

    reactor.register(pipe[0], fail)
    os.write(pipe[1], b"x")
    with pytest.raises(ValueError, match="no"):
        reactor.run_once(60)
    done = []
    reactor.call_later(0, lambda: done.append(1))
    reactor.run_once(60)
    reactor.run_once(0)
    assert done == [1]


def test_timers_run_once_in_order():
    clock = Clock()
    reactor = Reactor(clock)
    ran = []
    reactor.call_later(2, lambda: ran.append("b"))
    reactor.call_later(1, lambda: ran.append("a"))
    reactor.call_at(1002, lambda: ran.append("c"))
    reactor.run_once(0)
    assert ran == []
    clock.now += 1
    reactor.run_once(60)
    assert ran == ["a"]
    clock.now += 1
    reactor.run_once(60)
    reactor.run_once(0)
    assert ran == ["a", "b", "c"]
    reactor.close()


def test_a_timer_that_schedules_another_for_now_does_not_block():
    clock = Clock()
    reactor = Reactor(clock)
    ran = []

    def again():
        ran.append(1)
        clock.now += 0.001
        if len(ran) < 1_000:
            reactor.call_later(0, again)

    reactor.call_later(0, again)
    reactor.run_once(0)
    assert len(ran) == 1
    reactor.close()


def test_a_timer_ends_a_longer_wait(reactor):
    done = []
    reactor.call_later(0.01, lambda: done.append(1))
    for _ in range(100):
        reactor.run_once(600)
        if done:
            break
    assert done == [1]


@pytest.mark.timeout(60)
def test_a_wake_up_before_the_wait_is_not_lost(reactor):
    reactor.wake()
    reactor.wake()
    reactor.run_once(None)
    reactor.run_once(0)


@pytest.mark.timeout(60)
def test_a_wake_up_and_a_timer_from_another_thread_end_the_wait(reactor):
    done = threading.Event()
    thread = threading.Thread(target=lambda: reactor.call_later(0, done.set), daemon=True)
    thread.start()
    while not done.is_set():
        reactor.run_once(None)
    thread.join()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("timeout_s", [1e7, 1e12, float("inf")])
def test_timeouts_may_be_longer_than_the_system_allows(reactor, timeout_s):
    reactor.wake()
    reactor.run_once(timeout_s)


def test_a_late_wake_up_does_not_write_into_a_file_that_got_the_number(tmp_path):
    reactor = Reactor()
    reactor.close()
    files = [(tmp_path / str(index)).open("wb") for index in range(5)]
    reactor.wake()
    reactor.call_later(0, print)
    reactor.close()
    for file in files:
        file.close()
        assert os.path.getsize(file.name) == 0


def test_without_eventfd_a_pipe_is_used(monkeypatch):
    monkeypatch.delattr(os, "eventfd", raising=False)
    reactor = Reactor()
    for _ in range(3):
        reactor.wake()
    reactor.run_once(60)
    done = []
    reactor.call_later(0, lambda: done.append(1))
    reactor.run_once(60)
    reactor.run_once(0)
    assert done == [1]
    reactor.close()
    reactor.wake()
