"""The shared reactor: waiting threads run the reactor, settle each other, and are never lost."""

import os
import select
import threading

import pytest

from syncline.core.embedded.reactor import Reactor
from syncline.core.embedded.shared_reactor import SharedReactor, Waiter

pytestmark = pytest.mark.timeout(180)
LONG_S = 60


class Rig:
    """A shared reactor, and a pipe whose bytes settle waiters in order."""

    def __init__(self):
        self.reactor = Reactor()
        self.idle_actions = threading.Event()
        self.shared_reactor = SharedReactor(
            self.reactor, name="test", on_idle=self.idle_actions.set
        )
        self.read, self.write = os.pipe()
        self.waiting = []
        self.handled_by = []
        self.reactor.register(self.read, self._on_bytes)

    def _on_bytes(self, _):
        self.handled_by.append(threading.get_ident())
        for number in os.read(self.read, 4096):
            self.waiting[number].count()

    def waiter(self, remaining=1):
        waiter = Waiter(remaining)
        self.waiting.append(waiter)
        return waiter

    def settle(self, number):
        os.write(self.write, bytes([number]))

    def close(self):
        self.shared_reactor.close()
        self.reactor.close()
        os.close(self.read)
        os.close(self.write)


@pytest.fixture(params=[False, True], ids=["foreground", "background"])
def rig(request):
    rig = Rig()
    if request.param:
        rig.shared_reactor.start()
    yield rig
    rig.close()


class Waiting(threading.Thread):
    """A thread in `wait`, with its result."""

    def __init__(self, rig, waiter, timeout_s=None):
        super().__init__(daemon=True)
        self.arguments = (rig.shared_reactor, waiter, timeout_s)
        self.result = None
        self.start()

    def run(self):
        shared_reactor, waiter, timeout_s = self.arguments
        try:
            self.result = shared_reactor.wait(waiter, timeout_s)
        except RuntimeError as error:
            self.result = error

    def outcome(self):
        self.join(LONG_S)
        assert not self.is_alive(), "still waiting"
        return self.result


def until(condition):
    """Wait for a condition that another thread makes true."""
    pause = threading.Event()
    for _ in range(LONG_S * 200):
        if condition():
            return
        pause.wait(0.005)
    raise AssertionError("it never came true")


def test_a_done_waiter_does_not_wait(rig):
    assert rig.shared_reactor.wait(Waiter(0))


def test_a_waiter_counts_down():
    waiter = Waiter(2)
    waiter.count()
    assert not waiter.done
    waiter.count()
    assert waiter.done
    waiter.count()
    waiter.settle()
    waiter.wake()


def test_the_reactor_settles_a_waiting_thread(rig):
    waiter = rig.waiter(2)
    rig.settle(0)
    rig.settle(0)
    assert rig.shared_reactor.wait(waiter, LONG_S)


def test_a_timeout_passes(rig):
    assert not rig.shared_reactor.wait(rig.waiter(), 0.01)
    assert not rig.shared_reactor.wait(rig.waiter(), 0)


def test_a_wait_longer_than_the_system_allows(rig):
    waiters = [rig.waiter() for _ in range(2)]
    threads = [
        Waiting(rig, waiter, timeout_s)
        for waiter, timeout_s in zip(waiters, (1e12, float("inf")), strict=True)
    ]
    until(lambda: len(rig.shared_reactor._inside) == 2)
    rig.settle(0)
    rig.settle(1)
    assert [thread.outcome() for thread in threads] == [True, True]


def test_a_follower_may_time_out(rig):
    leader = Waiting(rig, rig.waiter())
    until(lambda: len(rig.shared_reactor._inside) == 1)
    assert not rig.shared_reactor.wait(rig.waiter(), 0.01)
    rig.settle(0)
    assert leader.outcome() is True


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_many_threads_are_settled_in_any_order(rig, order):
    threads = [Waiting(rig, rig.waiter()) for _ in range(4)]
    until(lambda: len(rig.shared_reactor._inside) == 4)
    for number in order:
        rig.settle(number)
        assert threads[number].outcome() is True


def test_another_thread_settles_the_leader(rig):
    waiter = rig.waiter()
    leader = Waiting(rig, waiter)
    until(rig.shared_reactor._leader.locked)
    until(lambda: len(rig.shared_reactor._inside) == 1)
    waiter.settle()
    assert leader.outcome() is True


def test_another_thread_settles_a_follower(rig):
    waiters = [rig.waiter() for _ in range(2)]
    threads = [Waiting(rig, waiter) for waiter in waiters]
    until(lambda: len(rig.shared_reactor._inside) == 2)
    for waiter, thread in zip(waiters, threads, strict=True):
        waiter.settle()
        assert thread.outcome() is True


def test_many_threads_wait_repeatedly(rig):
    rounds, count = 200, 4
    failures = []

    def work(index):
        for _ in range(rounds):
            waiter = Waiter()
            rig.reactor.call_later(0, waiter.count)
            if not rig.shared_reactor.wait(waiter, LONG_S):
                failures.append(index)

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


def test_a_late_wake_does_not_remove_the_next_gate():
    waiter = Waiter()
    old, new = threading.Lock(), threading.Lock()
    new.acquire()

    class Gate:
        def release(self):
            # the thread woke up for another reason and follows again before `wake` returns
            waiter._gate = new
            old.release()

    waiter._gate = Gate()
    waiter.wake()
    waiter.settle()
    assert not new.locked()


def test_close_ends_every_wait(rig):
    threads = [Waiting(rig, rig.waiter()) for _ in range(3)]
    until(lambda: len(rig.shared_reactor._inside) == 3)
    rig.shared_reactor.close()
    for thread in threads:
        assert "shut down" in str(thread.outcome())
    with pytest.raises(RuntimeError, match="shut down"):
        rig.shared_reactor.wait(rig.waiter())


def test_the_background_thread_leads_while_no_thread_waits():
    rig = Rig()
    rig.shared_reactor.start()
    waiter = rig.waiter()
    until(rig.idle_actions.is_set)
    rig.settle(0)
    until(lambda: waiter.done)
    assert rig.handled_by == [rig.shared_reactor._thread.ident]
    rig.close()
    assert not rig.shared_reactor._thread.is_alive()


def test_the_background_thread_runs_idle_actions_during_a_long_wait():
    rig = Rig()
    rig.shared_reactor.start()
    thread = Waiting(rig, rig.waiter())
    until(lambda: len(rig.shared_reactor._inside) == 1)
    until(lambda: rig.shared_reactor._sleeping)
    rig.idle_actions.clear()
    until(rig.idle_actions.is_set)
    rig.settle(0)
    assert thread.outcome() is True
    rig.close()


def test_the_background_thread_leads_again_after_a_wait():
    rig = Rig()
    rig.shared_reactor.start()
    first, second = rig.waiter(), rig.waiter()
    thread = Waiting(rig, first)
    until(lambda: len(rig.shared_reactor._inside) == 1)
    rig.settle(0)
    assert thread.outcome() is True
    rig.settle(1)
    until(lambda: second.done)
    assert rig.handled_by[-1] == rig.shared_reactor._thread.ident
    rig.close()


def test_an_error_of_a_handler_is_raised_in_the_leader():
    rig = Rig()
    waiters = [rig.waiter() for _ in range(2)]

    def fail():
        raise ValueError("a timer failed")

    rig.reactor.call_later(0, fail)
    with pytest.raises(ValueError, match="a timer failed"):
        rig.shared_reactor.wait(waiters[0], LONG_S)
    other = Waiting(rig, waiters[1])
    rig.settle(1)
    assert other.outcome() is True
    rig.close()


def test_a_visitor_handles_events_without_waiting(rig):
    visitor = object()
    waiter = rig.waiter()
    rig.shared_reactor.enter(visitor)
    until(rig.shared_reactor.visit)  # the background thread has left the reactor
    rig.settle(0)
    assert select.select([rig.shared_reactor.fileno()], [], [], LONG_S)[0]
    until(lambda: rig.shared_reactor.poll() or waiter.done)
    assert rig.handled_by == [threading.get_ident()]
    rig.shared_reactor.leave(visitor)


def test_a_visitor_runs_timers(rig):
    visitor = object()
    rig.shared_reactor.enter(visitor)
    until(rig.shared_reactor.visit)
    ran = []
    assert rig.shared_reactor.next_timer_s() is None
    rig.reactor.call_later(0.0, lambda: ran.append(threading.get_ident()))
    assert rig.shared_reactor.next_timer_s() == 0.0
    until(lambda: rig.shared_reactor.poll() or ran)
    assert ran == [threading.get_ident()]
    rig.shared_reactor.leave(visitor)


def test_a_visitor_leaves_the_reactor_to_the_leader(rig):
    waiting = Waiting(rig, rig.waiter())
    until(lambda: not rig.shared_reactor.visit())
    rig.shared_reactor.poll()  # does not wait for the leader
    rig.settle(0)
    assert waiting.outcome() is True


def test_the_background_thread_leads_again_after_a_visit():
    rig = Rig()
    rig.shared_reactor.start()
    visitor = object()
    rig.shared_reactor.enter(visitor)
    until(rig.shared_reactor.visit)
    waiter = rig.waiter()
    rig.shared_reactor.leave(visitor)
    rig.settle(0)
    until(lambda: waiter.done)
    assert rig.handled_by != [threading.get_ident()]
    rig.close()
