"""Reductions of logged values: windows, merging, tensors, state."""

import json
import math
import pickle
import random
from typing import Any

import numpy as np
import pytest

from syncline.rl.metrics.metrics_logger import DEFAULT_STATS_CLS_LOOKUP
from syncline.rl.metrics.other_stats import EmaStats, ItemSeriesStats, ItemStats, PercentilesStats
from syncline.rl.metrics.series_stats import (
    LifetimeSumStats,
    MaxStats,
    MeanStats,
    MinStats,
    SumStats,
)
from syncline.rl.metrics.stats import COMPACT_AFTER, StatsBase


class FakeTensor:
    """A tensor on a device; counts how often it is read."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.reads = 0

    def detach(self) -> "FakeTensor":
        return self

    def numel(self) -> int:
        return 1

    def item(self) -> float:
        self.reads += 1
        return self.value


def pushed(stats: StatsBase, *values: Any) -> StatsBase:
    for value in values:
        stats.push(value)
    return stats


@pytest.mark.parametrize(
    ("cls", "expected"), [(MeanStats, 2.0), (MinStats, -1), (MaxStats, 6), (SumStats, 6)]
)
def test_reduction_over_all_values_since_last_reduce(cls, expected):
    stats = pushed(cls(), 1, 6, -1)
    assert stats.peek() == expected
    assert stats.peek(compile=False) == [expected]
    assert stats.reduce() == expected
    assert pushed(stats, 5).reduce() == 5


@pytest.mark.parametrize(
    ("cls", "expected"), [(MeanStats, 5.0), (MinStats, 4), (MaxStats, 6), (SumStats, 10)]
)
def test_window_counts_latest_values_and_survives_reduce(cls, expected):
    stats = pushed(cls(window=2), 9, 4, 6)
    assert stats.reduce() == expected
    assert stats.peek() == expected
    cleared = pushed(cls(window=2, clear_on_reduce=True), 4, 6)
    assert cleared.reduce() == expected
    assert len(cleared) == 0


def test_empty_stats_are_nan_and_sums_are_zero():
    assert math.isnan(MeanStats().peek())
    assert math.isnan(MinStats(window=3).peek())
    assert math.isnan(EmaStats().peek())
    assert SumStats().peek() == 0
    assert LifetimeSumStats().peek() == 0
    assert ItemStats().peek() is None
    assert ItemSeriesStats().peek() == []
    assert PercentilesStats(percentiles=[50]).peek() == {50: None}


def test_nan_is_left_out():
    assert pushed(MeanStats(), 1.0, math.nan, 3.0).peek() == 2.0
    assert pushed(SumStats(window=5), 1.0, np.float32("nan")).peek() == 1.0
    assert pushed(EmaStats(ema_coeff=0.5), math.nan, 4.0, math.nan, 2.0).peek() == 3.0


def test_ints_stay_ints():
    result = pushed(SumStats(), 1, np.int64(2)).reduce()
    assert result == 3
    assert type(result) is int


def test_mean_of_components_weighs_each_value_once():
    one, two = pushed(MeanStats(), 1, 2, 3, 4, 5), pushed(MeanStats(), 15)
    root = MeanStats(is_root=True)
    root.merge([one.reduce(compile=False), two.reduce(compile=False)])
    assert root.reduce() == 5.0
    assert math.isnan(root.reduce())


def test_root_window_holds_latest_values_of_all_components():
    parts = [MeanStats(window=4) for _ in range(2)]
    root = MeanStats(window=4, is_root=True)
    pushed(parts[0], 100, 1, 2)
    pushed(parts[1], 3)
    root.merge([part.reduce(compile=False) for part in parts])
    assert root.reduce() == (100 + 1 + 2 + 3) / 4
    pushed(parts[1], 4)
    root.merge([part.reduce(compile=False) for part in parts])
    assert root.reduce() == (1 + 2 + 3 + 4) / 4
    assert parts[0].peek() == (100 + 1 + 2) / 3, "a component keeps its own window"


def test_reduce_sends_no_more_than_the_window():
    part = pushed(MaxStats(window=2), *range(10))
    assert list(part.reduce(compile=False).values) == [8, 9]


def test_latest_merged_only():
    root = SumStats(is_root=True)
    root.merge([pushed(SumStats(), 1).reduce(compile=False)])
    root.merge([pushed(SumStats(), 5).reduce(compile=False)])
    assert root.peek() == 6
    assert root.peek(latest_merged_only=True) == 5
    windowed = MeanStats(window=10)
    windowed.merge([pushed(MeanStats(window=10), 1).reduce(compile=False)])
    windowed.merge([pushed(MeanStats(window=10), 3).reduce(compile=False)])
    assert (windowed.peek(), windowed.peek(latest_merged_only=True)) == (2.0, 3.0)


def test_lifetime_sum_lives_in_the_root():
    part, root = LifetimeSumStats(), LifetimeSumStats(is_root=True)
    for step in (10, 5):
        root.merge([pushed(part, step).reduce(compile=False)])
    assert root.reduce() == root.reduce() == 15
    assert part.peek() == 0
    assert pushed(LifetimeSumStats(is_root=True), 3, 4).reduce() == 7


def test_ema_formula_and_merge():
    stats = pushed(EmaStats(ema_coeff=0.1), 1.0, 2.0, 4.0)
    expected = 0.1 * 4 + 0.9 * (0.1 * 2 + 0.9 * 1)
    assert stats.peek() == pytest.approx(expected)
    root = EmaStats(ema_coeff=0.1, is_root=True)
    root.merge([stats.reduce(compile=False), pushed(EmaStats(), 7.0).reduce(compile=False)])
    assert root.reduce() == pytest.approx((expected + 7) / 2)
    assert root.reduce() == pytest.approx((expected + 7) / 2)
    assert stats.peek() == pytest.approx(expected), "the average goes on after a reduce"


def test_items():
    item = pushed(ItemStats(), 1, {"a": 2})
    assert item.reduce() == {"a": 2}
    assert item.reduce() is None
    assert pushed(ItemStats(clear_on_reduce=False), "x").reduce() == "x"
    series = pushed(ItemSeriesStats(window=2), "a", "b", "c")
    assert series.peek() == ["b", "c"]
    root = ItemSeriesStats(window=3)
    root.merge([series.reduce(compile=False), pushed(ItemSeriesStats(), 1, 2).take()])
    assert root.reduce() == ["c", 1, 2]


def test_percentiles_equal_numpy():
    values = [random.Random(0).gauss(0, 1) for _ in range(37)]
    wanted = [0, 10, 33.3, 50, 99, 100]
    stats = pushed(PercentilesStats(percentiles=wanted, window=1000), *values)
    found = stats.reduce()
    assert list(found) == wanted
    assert list(found.values()) == pytest.approx(np.percentile(values, wanted))
    with pytest.raises(ValueError, match="between 0 and 100"):
        PercentilesStats(percentiles=[-1, 50])


def test_tensors_are_read_at_reduce_only():
    tensors = [FakeTensor(1.0), FakeTensor(3.0)]
    for cls in (MeanStats, EmaStats, ItemStats, ItemSeriesStats, PercentilesStats):
        stats = pushed(cls(), *tensors)
        assert [tensor.reads for tensor in tensors] == [0, 0]
        stats.reduce()
        assert tensors[1].reads == 1
        tensors = [FakeTensor(1.0), FakeTensor(3.0)]
    assert pushed(MeanStats(), *tensors).reduce() == 2.0


def test_value_that_is_no_number():
    with pytest.raises(TypeError, match="'abc' of type str.*reduce='item'"):
        pushed(MeanStats(), "abc").peek()
    with pytest.raises(TypeError, match="ndarray"):
        pushed(SumStats(), np.zeros(2)).reduce()


def test_memory_without_window_is_bounded():
    stats = pushed(MeanStats(), *range(3 * COMPACT_AFTER + 10))
    assert len(stats) < COMPACT_AFTER
    assert stats.peek() == pytest.approx((3 * COMPACT_AFTER + 9) / 2)


def test_throughput_with_a_fake_clock():
    now = [0.0]
    stats = SumStats(with_throughput=True, clock=lambda: now[0])
    pushed(stats, 100)
    now[0] = 4.0
    assert stats.throughputs == 25.0
    stats.reduce()
    now[0] = 6.0
    assert pushed(stats, 10).throughputs == 5.0

    lifetime = LifetimeSumStats(with_throughput=True, is_root=True, clock=lambda: now[0])
    pushed(lifetime, 100)
    now[0] = 16.0
    lifetime.reduce()
    pushed(lifetime, 20)
    now[0] = 26.0
    assert lifetime.throughputs == {
        "throughput_since_last_reduce": 2.0,
        "throughput_since_last_restore": 6.0,
    }


@pytest.mark.parametrize("name", DEFAULT_STATS_CLS_LOOKUP)
@pytest.mark.parametrize("windowed", [False, True])
def test_restored_state_continues_like_the_original(name, windowed):
    """Bit for bit, in the middle of a period, through JSON or pickle."""
    cls = DEFAULT_STATS_CLS_LOOKUP[name]
    settings = {"window": 7} if windowed and name not in ("ema", "item", "lifetime_sum") else {}
    rng = random.Random(3)
    original = cls(is_root=True, **settings)
    for _ in range(5):
        pushed(original, *(rng.gauss(0, 1) for _ in range(4)))
        original.reduce()
        original.merge([pushed(cls(**settings), rng.random()).reduce(compile=False)])
    pushed(original, 0.1, 0.2)
    copies = [
        cls.from_state(json.loads(json.dumps(original.get_state()))),
        pickle.loads(pickle.dumps(original)),
    ]
    for _ in range(3):
        values = [rng.gauss(0, 1) for _ in range(3)]
        pushed(original, *values)
        incoming = pushed(cls(**settings), rng.random()).reduce(compile=False)
        original.merge([incoming])
        expected = original.reduce()
        for copy in copies:
            pushed(copy, *values)
            copy.merge([incoming])
            assert copy.reduce() == expected


def test_window_must_be_positive():
    with pytest.raises(ValueError, match="`window=0` must be at least 1"):
        MeanStats(window=0)
    assert pushed(MeanStats(window=math.inf), *range(5)).reduce() == 2.0
