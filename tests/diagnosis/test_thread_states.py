"""How a training thread spends its time, from samples and counters."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from syncline.diagnosis.call_log import FEWEST_CALLS, CallLog
from syncline.diagnosis.collective_calls import CollectiveCall
from syncline.diagnosis.thread_states import (
    CollectionMeter,
    Scheduled,
    ThreadFiles,
    ThreadMeter,
    ThreadTimer,
    is_waiting_for_ranks,
)


def frame(module: str, function: str = "f", file: str = "/home/me/train.py") -> Any:
    return SimpleNamespace(
        f_globals={"__name__": module},
        f_code=SimpleNamespace(co_name=function, co_filename=file),
        f_lineno=7,
    )


TRAIN = frame("__main__", "train")
REDUCE = frame("torch.distributed.distributed_c10d", "all_reduce", "/e/site-packages/c10d.py")
WAIT_TENSOR = frame("torch.distributed._functional_collectives", "wait_tensor")
OPERATOR = frame("torch._ops", "__call__")
BACKWARD = frame("torch.autograd.graph", "_engine_run_backward")
FSDP = frame("torch.distributed.fsdp._fully_shard._fsdp_param_group", "unshard")
LOADER = frame("torch.utils.data.dataloader", "__next__")


def test_waiting_for_ranks_is_told_from_computing() -> None:
    assert is_waiting_for_ranks([REDUCE, TRAIN], "sleeping", has_gpu=False)
    assert is_waiting_for_ranks([OPERATOR, WAIT_TENSOR, TRAIN], "sleeping", has_gpu=False)
    assert is_waiting_for_ranks([FSDP, TRAIN], "sleeping", has_gpu=False)
    assert not is_waiting_for_ranks([FSDP, TRAIN], "running", has_gpu=False)
    assert not is_waiting_for_ranks([TRAIN, REDUCE], "sleeping", has_gpu=False)
    assert not is_waiting_for_ranks([], "sleeping", has_gpu=False)


def test_a_backward_pass_waits_for_ranks_while_its_thread_sleeps_unless_for_a_gpu() -> None:
    assert is_waiting_for_ranks([BACKWARD, TRAIN], "sleeping", has_gpu=False)
    assert not is_waiting_for_ranks([BACKWARD, TRAIN], "running", has_gpu=False)
    assert not is_waiting_for_ranks([BACKWARD, TRAIN], "sleeping", has_gpu=True)


def test_samples_are_added_by_the_place_of_the_thread() -> None:
    meter = ThreadMeter()
    none = Scheduled()
    meter.add([REDUCE, TRAIN], "sleeping", 1.0, none)
    meter.add([TRAIN], "sleeping", 2.0, none, in_barrier=True)
    meter.add([LOADER, TRAIN], "sleeping", 4.0, none)
    meter.add([TRAIN], "disk", 8.0, none)
    meter.add([frame("__main__", "compute")], "running", 16.0, none)
    meter.add([TRAIN], "sleeping", 32.0, Scheduled(cpu_s=3.0, delay_s=5.0))
    times = meter.times()
    assert (times.communication_s, meter.communication_s) == (3.0, 1.0)
    assert (times.data_s, times.disk_s) == (4.0, 8.0)
    assert (times.running_s, times.sleeping_s) == (16.0, 32.0)
    assert (times.cpu_s, times.contention_s) == (3.0, 5.0)
    assert times.minus(times) == type(times)()
    assert meter.take_line() == "train (train.py:7)"
    assert meter.take_line() == ""
    assert meter.times() == times


def test_running_in_a_line_that_often_waits_for_the_disk_is_time_of_the_disk() -> None:
    meter = ThreadMeter()
    read, compute = [frame("__main__", "read")], [frame("__main__", "compute")]
    for _ in range(2):  # windows; in each, 0.8 s of running belong to reads
        for state in ("disk", "disk", *["running"] * 8):
            meter.add(read, state, 0.1, Scheduled())
        for state in ("disk", *["running"] * 9):
            meter.add(compute, state, 0.1, Scheduled())
        meter.take_line()
    times = meter.times()
    assert times.disk_s == pytest.approx(2 * (0.2 + 0.8 + 0.1))
    assert times.running_s == pytest.approx(2 * 0.9)


def test_the_line_is_the_most_frequent_of_many() -> None:
    meter = ThreadMeter()
    for number in range(200):
        meter.add([frame("__main__", f"f{number}")], "running", 0.1, Scheduled())
        meter.add([TRAIN], "running", 0.1, Scheduled())
    assert meter.take_line() == "train (train.py:7)"


def test_garbage_collections_are_timed_between_start_and_stop() -> None:
    meter = CollectionMeter()
    meter.start()
    meter.start()
    try:
        gc.collect()
    finally:
        meter.stop()
    seconds = meter.seconds
    assert seconds > 0
    gc.collect()
    assert meter.seconds == seconds


def test_the_system_tells_state_and_times_of_a_thread() -> None:
    files = ThreadFiles(threading.get_native_id())
    assert files.state() == "running"
    assert files.scheduled().cpu_s > 0
    files.close()
    unknown = ThreadFiles(0)
    assert (unknown.state(), unknown.scheduled()) == ("unknown", Scheduled())


def test_the_time_on_a_core_tells_the_state_where_the_system_does_not() -> None:
    looks = iter([(0.0, 5.0), (0.1, 5.05), (0.2, 5.055), (0.3, 5.2)])  # time, CPU time
    now, cpu_s = 0.0, {}

    def look() -> dict[int, float]:
        nonlocal now
        now, cpu_s[7] = next(looks)
        return cpu_s

    timer = ThreadTimer(7, lambda: now, look)
    assert timer.scheduled() == Scheduled()
    assert [timer.state() for _ in range(4)] == ["unknown", "running", "sleeping", "running"]
    assert timer.scheduled() == Scheduled(cpu_s=5.2)


def test_the_main_thread_is_the_first_where_threads_are_numbered() -> None:
    main = threading.main_thread().native_id
    assert main is not None
    timer = ThreadTimer(main, lambda: 0.0, lambda: {1: 2.0, 2: 9.0})
    timer.state()
    assert timer.scheduled().cpu_s == 2.0
    other = ThreadTimer(main + 1, lambda: 0.0, lambda: {1: 2.0, 2: 9.0})
    assert [other.state(), other.state()] == ["unknown", "unknown"]
    assert other.scheduled() == Scheduled()


def test_psutil_tells_the_time_of_this_thread() -> None:
    timer = ThreadTimer(threading.get_native_id())
    timer.state()
    before = timer.scheduled().cpu_s
    while timer.scheduled().cpu_s <= before:
        sum(range(100_000))
        state = timer.state()
    assert state == "running"
    timer.close()


def test_a_log_that_takes_long_to_read_is_read_seldom_and_by_all_ranks_at_once() -> None:
    times = iter([0.0, 0.02, 1.0, 1.0])  # the first read takes 20 ms, the second none
    log = CallLog(window_s=2.0, clock=lambda: next(times))
    assert log.read(1) == ()  # no process group yet
    log.source = list
    assert log.read(1) == ()
    assert [window for window in range(2, 5) if log.read(window) is not None] == [4]


def test_at_the_end_the_log_is_read_in_any_case() -> None:
    log = CallLog()
    log.source = list
    assert log.read(None) == ()


def test_of_many_ranks_each_sends_its_last_calls_only() -> None:
    log = CallLog(world_size=1_000)
    calls = [
        CollectiveCall(group="0", number=number, operation="barrier", sizes="", arrived_s=0.0)
        for number in range(100)
    ]
    log.source = lambda: calls
    assert log.read(0) == tuple(calls[-FEWEST_CALLS:])
