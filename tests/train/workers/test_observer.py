"""A training function's thread, seen from beside."""

from __future__ import annotations

import queue
import threading
from types import FunctionType

from syncline.testing.waiting import eventually
from syncline.train.workers.messages import Stuck
from syncline.train.workers.observer import Observer


def waiting_thread(held: threading.Lock, module: str) -> threading.Thread:
    """A thread that waits for a lock, in a function of `module`."""
    wait = FunctionType(
        compile("def wait(): held.acquire()", "wait", "exec").co_consts[0],
        {"__name__": module, "held": held},
    )
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_thread_that_waits_in_a_collective_is_told_of_and_its_time_counted() -> None:
    said: queue.Queue[Stuck] = queue.Queue()
    held = threading.Lock()
    held.acquire()
    observer = Observer(hang_limit_s=2.0, say=said.put, tell=lambda: None)
    try:
        observer.follow(waiting_thread(held, "torch.distributed.distributed_c10d"))
        assert not said.get(timeout=60).too_long
        assert said.get(timeout=60).too_long
        assert observer.communicated_s > 1.0
    finally:
        held.release()


def test_a_thread_that_waits_elsewhere_is_left_alone() -> None:
    said: queue.Queue[Stuck] = queue.Queue()
    held = threading.Lock()
    held.acquire()
    observer = Observer(hang_limit_s=0.2, say=said.put, tell=lambda: None)
    thread = waiting_thread(held, "script")
    observer.follow(thread)
    threading.Event().wait(0.6)
    held.release()
    eventually(lambda: not thread.is_alive())
    assert (said.empty(), observer.communicated_s) == (True, 0.0)
