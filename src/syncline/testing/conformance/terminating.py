"""SIGTERM as a notice: actors with a callback continue, others end."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
import time

import pytest

import syncline
from syncline.core import termination
from syncline.testing.conformance.suite import Suite
from syncline.testing.tasks import LIMIT_S, get
from syncline.testing.waiting import eventually


class Saver:
    """An actor with work to save."""

    def __init__(self) -> None:
        self.notices = 0
        self.told = threading.Event()

    def pid(self) -> int:
        return os.getpid()

    def watch(self) -> bool:
        return termination.on_terminate(self._note)

    def count(self) -> int:
        return self.notices

    def await_notice(self) -> bool:
        return self.told.wait(LIMIT_S)

    def notify_inside_c(self) -> bool:
        """Block the main thread on a C lock, which ignores signals, until the notice unlocks it."""
        libc = ctypes.CDLL(None)
        mutex = ctypes.create_string_buffer(256)
        libc.pthread_mutex_init(mutex, None)
        libc.pthread_mutex_lock(mutex)
        termination.on_terminate(lambda: libc.pthread_mutex_unlock(mutex))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        libc.pthread_mutex_lock(mutex)
        return threading.current_thread() is threading.main_thread()

    def end_of_a_child(self) -> int | None:
        """Fork a child after the callback is set; return the child's exit status."""
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
        child.start()
        child.terminate()
        child.join(LIMIT_S)
        return child.exitcode

    def _note(self) -> None:
        self.notices += 1
        self.told.set()


def _ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class Terminating(Suite):
    """Actors that receive SIGTERM."""

    needs = ("processes",)

    def test_actor_with_a_callback_is_notified_and_continues(self) -> None:
        actor = syncline.remote(Saver).options(max_concurrency=2).remote()
        pid = get(actor.pid.remote())
        assert get(actor.watch.remote())
        assert get(actor.count.remote()) == 0
        os.kill(pid, signal.SIGTERM)
        assert get(actor.await_notice.remote())
        assert get([actor.count.remote(), actor.pid.remote()]) == [1, pid]

    def test_second_signal_ends_the_actor(self) -> None:
        actor = syncline.remote(Saver).remote()
        pid = get(actor.pid.remote())
        get(actor.watch.remote())
        for _ in range(2):
            os.kill(pid, signal.SIGTERM)
            try:
                get(actor.await_notice.remote())
            except syncline.exceptions.RayActorError:
                break
        eventually(lambda: _ended(pid), what="the second signal ends the process")

    def test_actor_is_notified_while_its_main_thread_is_in_c_code(self) -> None:
        actor = syncline.remote(Saver).remote()
        assert get(actor.notify_inside_c.remote())

    def test_actor_that_did_not_ask_ends(self) -> None:
        actor = syncline.remote(Saver).remote()
        pid = get(actor.pid.remote())
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: _ended(pid), what="the process ends")
        with pytest.raises(syncline.exceptions.RayActorError):
            get(actor.await_notice.remote())

    def test_actor_with_a_callback_can_be_killed(self) -> None:
        actor = syncline.remote(Saver).remote()
        pid = get(actor.pid.remote())
        get(actor.watch.remote())
        syncline.kill(actor)
        eventually(lambda: _ended(pid), what="the process ends")

    def test_children_of_an_actor_with_a_callback_end_by_the_signal(self) -> None:
        actor = syncline.remote(Saver).remote()
        assert get(actor.watch.remote())
        assert get(actor.end_of_a_child.remote()) == -signal.SIGTERM
        assert get(actor.count.remote()) == 0
