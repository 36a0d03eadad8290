"""SIGTERM as a notice to the driver's process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

import syncline
from syncline.core import termination
from syncline.testing import assert_nothing_left, eventually, run_program


@pytest.fixture(autouse=True)
def default_handling() -> Iterator[None]:
    """Restore the test runner's handlers."""
    former = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, former)


def _signal_self() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_signal_calls_back_on_another_thread_while_the_block_runs() -> None:
    called: list[threading.Thread] = []
    with termination.termination_notice(
        lambda: called.append(threading.current_thread())
    ) as watched:
        assert watched
        _signal_self()
        eventually(lambda: called, what="the callback is called")
    assert called[0] is not threading.main_thread()
    assert len(called) == 1


def _pipes() -> set[str]:
    """Return the open descriptors of this process."""
    names: set[str] = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            names.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return {name for name in names if name.startswith("pipe:")}


def test_the_block_restores_the_previous_handlers() -> None:
    # Not a count, because threads and descriptors of earlier tests may end at any moment.
    threads, pipes = set(threading.enumerate()), _pipes()
    own_threads: set[threading.Thread] = set()
    own_pipes: set[str] = set()
    for _ in range(3):
        with termination.termination_notice(lambda: None):
            own_threads |= set(threading.enumerate()) - threads
            own_pipes |= _pipes() - pipes
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.set_wakeup_fd(-1) == -1
    assert len(own_threads) >= 3
    assert own_pipes
    eventually(
        lambda: own_threads.isdisjoint(threading.enumerate()),
        what="the listening threads have ended",
    )
    eventually(lambda: own_pipes.isdisjoint(_pipes()), what="their pipes are closed")


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_the_programs_own_handler_stays(handler: object) -> None:
    signal.signal(signal.SIGTERM, handler)
    with termination.termination_notice(lambda: None) as watched:
        assert not watched
        assert signal.getsignal(signal.SIGTERM) is handler


def test_other_threads_change_nothing() -> None:
    seen: list[object] = []

    def use() -> None:
        with termination.termination_notice(lambda: None) as watched:
            seen.extend([watched, signal.getsignal(signal.SIGTERM)])

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert seen == [False, signal.SIG_DFL]


def test_a_nested_block_leaves_the_outer_one_active() -> None:
    told = threading.Event()
    with termination.termination_notice(told.set):
        with termination.termination_notice(lambda: None) as watched:
            assert not watched
        _signal_self()
        assert told.wait(60)


def test_descriptor_of_an_event_loop_stays() -> None:
    read, write = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(write)
    told = threading.Event()
    try:
        with termination.termination_notice(told.set):
            _signal_self()
            assert told.wait(60)
        assert os.read(read, 10) == bytes([signal.SIGTERM])
    finally:
        assert signal.set_wakeup_fd(-1) == write
        os.close(read)
        os.close(write)


def test_children_that_a_program_forks_inside_the_block_end_by_the_signal() -> None:
    told: list[None] = []
    with termination.termination_notice(lambda: told.append(None)):
        pid = os.fork()
        if pid == 0:
            try:
                signal.pause()
            finally:
                os._exit(0)
        os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM
    assert not told


def test_actors_without_a_process_are_not_notified() -> None:
    @syncline.remote
    class Saver:
        def watch(self) -> bool:
            return termination.on_terminate(_signal_self)

    syncline.init(local_mode=True)
    try:
        saver = Saver.remote()  # type: ignore[attr-defined]
        assert syncline.get(saver.watch.remote()) is False
    finally:
        syncline.shutdown()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


PROGRAM = """
import queue, threading, time
import psutil
import syncline
from syncline.core import termination

@syncline.remote(max_calls=1)
def work():
    return "a new worker works"

syncline.init(num_cpus=1)
syncline.get(work.remote())
print("template", psutil.Process().children()[0].pid)
lock = threading.Lock()
lock.acquire()

@syncline.remote
class Forever:
    def wait(self):
        threading.Event().wait()

with termination.termination_notice(lambda: print("told", flush=True)):
    threading.Timer(0.2, print, ("waiting",), {"flush": True}).start()
    WAIT
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "wait",
    ["syncline.get(Forever.remote().wait.remote())", "queue.Queue().get()", "lock.acquire()"],
)
def test_a_waiting_program_is_notified_and_ends_at_the_second_signal(wait: str) -> None:
    with run_program(PROGRAM.replace("WAIT", wait)) as program:
        program.wait_for("waiting")
        program.send_signal(signal.SIGTERM)
        program.wait_for("told")
        assert program.process.poll() is None
        program.send_signal(signal.SIGTERM)
        assert program.wait().return_code == -signal.SIGTERM
        assert_nothing_left(program)


@pytest.mark.processes
def test_notice_for_every_process_of_a_job_leaves_new_workers_possible() -> None:
    text = PROGRAM.replace("WAIT", "queue.Queue().get()").replace(
        "lambda: print(", "lambda: print(syncline.get(work.remote()), "
    )
    with run_program(text) as program:
        template = int(program.wait_for("template").split()[1])
        program.wait_for("waiting")
        os.kill(template, signal.SIGTERM)
        program.send_signal(signal.SIGTERM)
        program.wait_for("a new worker works")
        assert psutil.pid_exists(template)
