"""Where the time of a run went."""

from __future__ import annotations

import pytest

from syncline.train.controller.goodput import GoodputMeter
from syncline.train.workers.messages import StepTimes


def times(data_s: float = 0.0, report_s: float = 0.0, communication_s: float = 0.0) -> StepTimes:
    return StepTimes(
        total_s=100.0, data_s=data_s, report_s=report_s, communication_s=communication_s
    )


def test_the_ranks_mean_counts_and_the_shares_add_up() -> None:
    meter = GoodputMeter()
    meter.attempt_began(1000.0)
    meter.record(0, times(data_s=4, report_s=1, communication_s=10))
    meter.record(1, times(data_s=0, report_s=1, communication_s=14))
    meter.attempt_ended(1100.0, lost=False)
    goodput = meter.goodput()
    assert goodput is not None
    assert (goodput.data, goodput.report, goodput.communication, goodput.restarts) == pytest.approx(
        (0.02, 0.01, 0.12, 0.0)
    )
    assert (
        goodput.compute + goodput.communication + goodput.data + goodput.report + goodput.restarts
        == pytest.approx(1.0)
    )
    assert (
        str(goodput) == "goodput 97.0 %: data 2.0 %, report 1.0 %, restarts 0.0 % "
        "(computing 85.0 %, communicating 12.0 %)"
    )


def test_a_failure_costs_the_work_since_the_last_checkpoint_and_the_restart() -> None:
    meter = GoodputMeter()
    meter.attempt_began(0.0)
    meter.committed(80.0)
    meter.record(0, times(data_s=10))
    meter.attempt_ended(100.0, lost=True)
    meter.attempt_began(110.0)
    meter.record(0, times(data_s=2))
    meter.attempt_ended(200.0, lost=False)
    goodput = meter.goodput()
    assert goodput is not None
    assert goodput.restarts == pytest.approx(30.0 / 200.0)
    assert goodput.data == pytest.approx(
        (10 * 0.8 + 2) / 200.0
    )  # of the first attempt, what counted


def test_a_memory_snapshot_keeps_the_work_before_it() -> None:
    meter = GoodputMeter()
    meter.attempt_began(0.0)
    meter.committed(20.0)
    meter.record(0, times(data_s=10))
    meter.attempt_ended(100.0, lost=True)
    meter.kept_until(98.0)
    meter.attempt_began(110.0)
    meter.record(0, times(data_s=2))
    meter.attempt_ended(210.0, lost=False)
    goodput = meter.goodput()
    assert goodput is not None
    assert goodput.restarts == pytest.approx(12 / 210)
    assert goodput.data == pytest.approx((9.8 + 2) / 210)


@pytest.mark.parametrize(("moment", "lost_s"), [(5.0, 80.0), (300.0, 0.0)])
def test_a_snapshot_outside_of_the_lost_work_is_limited_to_it(moment: float, lost_s: float) -> None:
    meter = GoodputMeter()
    meter.attempt_began(0.0)
    meter.committed(20.0)
    meter.attempt_ended(100.0, lost=True)
    meter.kept_until(moment)
    goodput = meter.goodput()
    assert goodput is not None
    assert goodput.restarts == pytest.approx(lost_s / 100)


def test_without_a_checkpoint_all_of_a_failed_attempt_is_lost() -> None:
    meter = GoodputMeter()
    meter.attempt_began(0.0)
    meter.attempt_ended(50.0, lost=True)
    goodput = meter.goodput()
    assert goodput is not None
    assert (goodput.restarts, goodput.good) == (1.0, 0.0)


def test_a_run_that_never_trained_has_none() -> None:
    meter = GoodputMeter()
    meter.attempt_ended(1.0, lost=True)
    assert meter.goodput() is None


def test_so_far_everything_counts_but_the_time_without_an_attempt() -> None:
    meter = GoodputMeter()
    assert meter.goodput_so_far(0.0) is None
    meter.attempt_began(0.0)
    meter.record(0, times(data_s=5))
    running = meter.goodput_so_far(50.0)
    assert running is not None
    assert (running.data, running.restarts) == pytest.approx((0.1, 0.0))
    meter.attempt_ended(50.0, lost=True)
    waiting = meter.goodput_so_far(100.0)
    assert waiting is not None
    assert waiting.restarts == pytest.approx(1.0)
    meter.attempt_began(100.0)
    meter.attempt_ended(200.0, lost=False)
    assert meter.goodput_so_far(200.0) == meter.goodput()
