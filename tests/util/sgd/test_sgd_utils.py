"""Meters, timers and the reduction of results: pure."""

from __future__ import annotations

import pytest

from syncline.util.sgd.torch.results import reduced
from syncline.util.sgd.utils import AverageMeter, AverageMeterCollection, TimerCollection, override


def test_meter_weighs_values_by_samples() -> None:
    meter = AverageMeter()
    meter.update(1.0, n=3)
    meter.update(5.0)
    assert (meter.val, meter.avg, meter.sum, meter.count) == (5.0, 2.0, 8.0, 4)
    meter.reset()
    assert (meter.avg, meter.count) == (0, 0)


def test_collection_sums_up_means_and_last_values() -> None:
    meters = AverageMeterCollection()
    meters.update({"loss": 1.0}, n=3)
    meters.update({"loss": 5.0, "late": 2.0}, n=1)
    assert meters.summary() == {
        "batch_count": 2,
        "num_samples": 4,
        "loss": 2.0,
        "last_loss": 5.0,
        "late": 2.0,
        "last_late": 2.0,
    }


def test_timers_measure_while_enabled() -> None:
    moments = iter([0.0, 2.0, 10.0, 14.0, 20.0, 21.0])
    timers = TimerCollection(clock=lambda: next(moments))
    for _ in range(2):
        with timers.record("step"):
            pass
    timers.disable()
    with timers.record("step"):
        pass
    assert timers.stats(last=True) == {"mean_step_s": 3.0, "last_step_s": 4.0}


def test_override_names_a_method_that_nobody_would_call() -> None:
    override(AverageMeter)(AverageMeter.update)
    with pytest.raises(AttributeError, match="AverageMeter has no such method"):

        @override(AverageMeter)
        def updte() -> None:
            pass


def test_workers_results_become_one_weighted_by_samples() -> None:
    first = {"epoch": 2, "num_samples": 30, "loss": 1.0, "name": "a", "done": True}
    second = {"epoch": 2, "num_samples": 10, "loss": 5.0, "name": "b", "done": False, "only": 7}
    assert reduced([first, second]) == {
        "epoch": 2,
        "num_samples": 40,
        "loss": 2.0,
        "name": "a",
        "done": True,
        "only": 7,
    }


def test_results_of_no_samples_are_averaged_plainly() -> None:
    assert reduced([{"num_samples": 0, "loss": 1.0}, {"num_samples": 0, "loss": 2.0}]) == {
        "num_samples": 0,
        "loss": 1.5,
    }
    assert reduced([{"loss": 1.0}, {"loss": 2.0}]) == {"loss": 1.5}
