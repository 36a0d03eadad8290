"""Latency histograms."""

import random

import pytest

from syncline.serve.proxy.statistics import LatencyHistogram


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.99])
def test_quantiles_are_within_two_percent(fraction) -> None:
    histogram = LatencyHistogram()
    generator = random.Random(7)
    times = sorted(generator.lognormvariate(-6, 2) for _ in range(10_001))
    for each in times:
        histogram.add(each)
    assert histogram.quantile(fraction) == pytest.approx(times[int(fraction * 10_000)], rel=0.02)
    assert histogram.count == 10_001
    assert histogram.sum_s == pytest.approx(sum(times))


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-9, 1e9])
def test_extreme_times_are_counted(seconds) -> None:
    histogram = LatencyHistogram()
    histogram.add(seconds)
    assert sum(histogram.buckets().values()) == 1


def test_empty_histogram() -> None:
    assert LatencyHistogram().quantile(0.5) == 0.0
