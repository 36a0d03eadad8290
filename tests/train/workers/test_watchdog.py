"""Collective operations that do not end, seen from beside."""

from __future__ import annotations

from types import SimpleNamespace

from syncline.train.workers.messages import Stuck
from syncline.train.workers.watchdog import Judge, Look, communicates, is_in_collective


def test_a_rank_is_told_of_then_ends_and_says_so_again_and_again() -> None:
    judge, look = Judge(limit_s=100), Look(cpu_s=1.5, in_collective=True)
    assert judge.consider(look, 0.0) is None
    assert judge.consider(look, 9.0) is None
    assert judge.consider(look, 10.0) == Stuck(seconds=10.0, too_long=False)
    assert judge.consider(look, 50.0) is None
    assert judge.consider(look, 90.0) == Stuck(seconds=90.0, too_long=True)
    assert judge.consider(look, 91.0) == Stuck(seconds=91.0, too_long=True)


def test_the_least_work_of_the_thread_begins_the_time_anew() -> None:
    judge = Judge(limit_s=100)
    judge.consider(Look(1.0, True), 0.0)
    assert judge.consider(Look(1.000001, True), 80.0) is None
    assert judge.consider(Look(1.000001, True), 95.0) == Stuck(seconds=15.0, too_long=False)
    assert judge.consider(Look(1.000002, True), 96.0) == Stuck(seconds=0.0, too_long=False)
    assert judge.consider(Look(1.000003, True), 97.0) is None


def test_a_thread_that_sleeps_elsewhere_is_not_stuck() -> None:
    judge = Judge(limit_s=100)
    assert all(judge.consider(Look(1.0, False), float(now)) is None for now in range(0, 1000, 50))


def test_a_stack_through_torch_distributed_or_a_backward_pass_is_a_collective() -> None:
    plain = SimpleNamespace(
        f_globals={"__name__": "script"}, f_code=SimpleNamespace(co_name="train"), f_back=None
    )
    reduce = SimpleNamespace(
        f_globals={"__name__": "torch.distributed.c10d"}, f_code=plain.f_code, f_back=plain
    )
    backward = SimpleNamespace(
        f_globals={}, f_code=SimpleNamespace(co_name="_engine_run_backward"), f_back=plain
    )
    assert not is_in_collective(plain)  # type: ignore[arg-type]
    assert not is_in_collective(None)
    assert is_in_collective(reduce)  # type: ignore[arg-type]
    assert communicates(reduce)  # type: ignore[arg-type]
    assert not communicates(backward)  # type: ignore[arg-type]
    assert is_in_collective(SimpleNamespace(f_globals={}, f_code=plain.f_code, f_back=backward))  # type: ignore[arg-type]
