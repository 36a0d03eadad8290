"""Hang watch: detection of stalled collectives, and stacks of the training function."""

from __future__ import annotations

import queue
import threading
import weakref
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from syncline.testing.waiting import eventually
from syncline.train.workers import hang_watch
from syncline.train.workers.hang_watch import (
    HangDetector,
    HangWatch,
    ThreadSample,
    dumped_stack,
    is_communicating,
    is_in_collective,
    thread_stack,
)
from syncline.train.workers.messages import Stalled
from syncline.train.workers.worker import TrainWorker


def waiting_thread(held: threading.Lock, module: str) -> threading.Thread:
    """Start a thread that waits for a lock in a function of `module`."""
    wait = FunctionType(
        compile("def wait(): held.acquire()", "wait", "exec").co_consts[0],
        {"__name__": module, "held": held},
    )
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def test_a_stalled_thread_is_reported_and_its_time_is_measured() -> None:
    stalls: queue.Queue[Stalled] = queue.Queue()
    held = threading.Lock()
    held.acquire()
    watch = HangWatch(hang_limit_s=2.0, on_stall=stalls.put, on_interval=lambda: None)
    try:
        watch.follow(waiting_thread(held, "torch.distributed.distributed_c10d"))
        assert not stalls.get(timeout=60).over_limit
        assert stalls.get(timeout=60).over_limit
        assert watch.meter.communication_s > 1.0
    finally:
        held.release()


def test_a_thread_that_waits_outside_of_a_collective_is_not_stalled() -> None:
    stalls: queue.Queue[Stalled] = queue.Queue()
    held = threading.Lock()
    held.acquire()
    watch = HangWatch(hang_limit_s=0.2, on_stall=stalls.put, on_interval=lambda: None)
    thread = waiting_thread(held, "script")
    watch.follow(thread)
    threading.Event().wait(0.6)
    held.release()
    eventually(lambda: not thread.is_alive())
    assert (stalls.empty(), watch.meter.communication_s) == (True, 0.0)


def test_between_samples_the_watch_keeps_no_values_of_functions_that_have_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hang_watch, "FIRST_REPORT_S", 0.0)
    monkeypatch.setattr(hang_watch, "WINDOW_S", 1e9)
    sampled, ends = threading.Event(), threading.Event()
    values: list[weakref.ref[Any]] = []

    def step() -> None:
        value = threading.Event()  # stands for a tensor
        values.append(weakref.ref(value))
        sampled.wait(60)

    def train() -> None:
        step()
        ends.wait()

    def after_sample() -> None:
        monkeypatch.setattr(hang_watch, "SAMPLE_INTERVAL_S", 1e6)
        sampled.set()

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    watch = HangWatch(hang_limit_s=60.0, on_stall=lambda stall: None, on_interval=after_sample)
    watch.follow(thread)
    try:
        assert sampled.wait(60)
        eventually(lambda: values[0]() is None)
    finally:
        ends.set()
        thread.join(60)


def test_a_stall_leads_to_one_warning_and_then_to_repeated_errors() -> None:
    detector, look = HangDetector(limit_s=100), ThreadSample(cpu_s=1.5, in_collective=True)
    assert detector.update(look, 0.0) is None
    assert detector.update(look, 9.0) is None
    assert detector.update(look, 10.0) == Stalled(seconds=10.0, warns=True)
    assert detector.update(look, 50.0) is None
    assert detector.update(look, 90.0) == Stalled(seconds=90.0, warns=True, over_limit=True)
    assert detector.update(look, 91.0) == Stalled(seconds=91.0, warns=True, over_limit=True)


@pytest.mark.parametrize(
    ("step_s", "warning_s"), [(None, 60.0), (0.01, 10.0), (1.0, 20.0), (100.0, 60.0)]
)
def test_the_first_warning_comes_after_twenty_steps_or_a_minute(
    step_s: float | None, warning_s: float
) -> None:
    detector = HangDetector(limit_s=1800, median_step_s=lambda: step_s)
    look = ThreadSample(cpu_s=1.5, in_collective=True)
    messages = [detector.update(look, float(now)) for now in range(130)]
    first, *others = [message for message in messages if message is not None]
    if warning_s > 30.0:
        assert first == Stalled(seconds=30.0)
        (first,) = others
    else:
        assert others == []
    assert first == Stalled(seconds=warning_s, warns=True)
    assert detector.update(ThreadSample(1.6, False), 131.0) == Stalled(seconds=0.0)


def test_the_controller_keeps_the_limit_of_barriers_of_the_session() -> None:
    detector = HangDetector(limit_s=100)
    look = ThreadSample(cpu_s=1.5, in_collective=True, in_barrier=True)
    messages = [detector.update(look, float(now)) for now in range(0, 1000, 10)]
    assert [each for each in messages if each is not None] == [Stalled(seconds=10.0, warns=True)]


def test_any_cpu_time_restarts_the_measurement() -> None:
    detector = HangDetector(limit_s=100)
    detector.update(ThreadSample(1.0, True), 0.0)
    assert detector.update(ThreadSample(1.000001, True), 80.0) is None
    assert detector.update(ThreadSample(1.000001, True), 95.0) == Stalled(seconds=15.0, warns=True)
    assert detector.update(ThreadSample(1.000002, True), 96.0) == Stalled(seconds=0.0)
    assert detector.update(ThreadSample(1.000003, True), 97.0) is None


def test_a_thread_that_sleeps_outside_of_a_collective_is_not_stalled() -> None:
    detector = HangDetector(limit_s=100)
    assert all(
        detector.update(ThreadSample(1.0, False), float(now)) is None for now in range(0, 1000, 50)
    )


def test_a_stack_through_torch_distributed_or_a_backward_pass_is_a_collective() -> None:
    plain: Any = SimpleNamespace(
        f_globals={"__name__": "script"}, f_code=SimpleNamespace(co_name="train"), f_back=None
    )
    reduce: Any = SimpleNamespace(
        f_globals={"__name__": "torch.distributed.c10d"}, f_code=plain.f_code, f_back=plain
    )
    backward: Any = SimpleNamespace(
        f_globals={}, f_code=SimpleNamespace(co_name="_engine_run_backward"), f_back=plain
    )
    assert not is_in_collective([plain])
    assert not is_in_collective([])
    assert is_in_collective([reduce, plain])
    assert is_communicating(reduce)
    assert not is_communicating(backward)
    assert is_in_collective([plain, backward, plain])


def test_a_stack_begins_at_the_training_function() -> None:
    held = threading.Lock()
    held.acquire()
    waits = threading.Event()

    def train() -> None:
        waits.set()
        held.acquire()

    thread = threading.Thread(target=_as_a_worker_does(train), daemon=True)
    thread.start()
    eventually(waits.is_set)
    text = thread_stack(thread)
    held.release()
    assert text.lstrip().startswith("File")
    assert "in train" in text.splitlines()[0]
    assert "threading.py" not in text.splitlines()[0]


def _as_a_worker_does(function: object) -> object:
    """Wrap a function in one with the name and file of the runner."""
    code = compile("def _train():\n    function()", TrainWorker._train.__code__.co_filename, "exec")
    names = {"function": function}
    exec(code, names)
    return names["_train"]


def test_the_stack_of_no_thread_is_a_note() -> None:
    assert thread_stack(None) == "(the training function is not running)"


def test_the_training_thread_of_a_dump_is_shown_outermost_frame_first() -> None:
    worker = TrainWorker._train.__code__.co_filename
    dump = f"""Thread 0x1 (most recent call first):
  File "threading.py", line 327 in wait

Thread 0x2 (most recent call first):
  File "re.py", line 166 in match
  File "script.py", line 5 in train
  File "{worker}", line 121 in _train
  File "threading.py", line 982 in run

Current thread 0x3 (most recent call first):
  File "reactor.py", line 86 in turn"""
    assert dumped_stack(dump).splitlines() == [
        '  File "script.py", line 5 in train',
        '  File "re.py", line 166 in match',
    ]


def test_a_dump_without_a_training_thread_is_shown_completely() -> None:
    assert dumped_stack("Thread 0x1\n  File x, line 1 in f") == "Thread 0x1\n  File x, line 1 in f"
