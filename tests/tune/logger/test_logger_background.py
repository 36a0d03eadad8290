"""Calls in the background: order, failures, ends."""

import pickle
import threading

from syncline.testing.waiting import eventually
from syncline.tune.logger.background_calls import BackgroundCalls


def test_calls_of_one_key_keep_their_order():
    calls, background = [], BackgroundCalls("Testing", threads=3)
    for number in range(200):
        background.call(calls.append, number, key="same")
    assert background.wait(30)
    assert calls == list(range(200))
    background.close(30)


def test_calls_return_before_they_are_made():
    gate, done, background = threading.Event(), threading.Event(), BackgroundCalls("Testing")
    background.call(gate.wait, 30)
    background.call(done.set)
    assert not done.is_set()
    assert background.backlog >= 1
    gate.set()
    assert done.wait(30)
    background.close(30)


def test_the_first_failure_is_told_with_its_traceback_and_the_others_are_made(caplog):
    calls, background = [], BackgroundCalls("Testing")
    for number in range(3):
        background.call(lambda: [].pop())
        background.call(calls.append, number)
    background.close(30)
    assert calls == [0, 1, 2]
    assert [record.message.partition(";")[0] for record in caplog.records] == ["Testing failed"]
    assert "pop from empty list" in caplog.text


def test_an_end_that_takes_too_long_is_told(caplog):
    gate, background = threading.Event(), BackgroundCalls("Testing")
    background.call(gate.wait, 60)
    background.call(print)
    background.close(0.01)
    assert "Testing took more than" in caplog.text
    gate.set()


def test_threads_end_with_close_and_begin_again_with_a_call():
    names, background = [], BackgroundCalls("Testing", threads=2)
    for _ in range(2):
        background.call(lambda: names.append(threading.current_thread()))
        background.close(30)
    assert len(names) == 2
    eventually(lambda: not any(thread.is_alive() for thread in names))


def test_it_can_be_pickled_while_it_works():
    background = BackgroundCalls("Testing")
    background.call(print)
    restored, done = pickle.loads(pickle.dumps(background)), threading.Event()
    restored.call(done.set)
    assert done.wait(30)
    background.close(30)
    restored.close(30)
