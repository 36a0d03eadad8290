"""The order of rows within a shuffle window."""

import numpy as np
import pytest

from syncline.data.iterate.sharding import ShuffleWindows, shuffle_windows


def test_an_order_is_a_permutation_that_only_its_arguments_decide() -> None:
    windows = ShuffleWindows(rows=100, seed=1)
    order = windows.order(2, 3, 4, 100)
    assert sorted(order.tolist()) == list(range(100))
    assert np.array_equal(order, ShuffleWindows(rows=100, seed=1).order(2, 3, 4, 100))
    others = [
        ShuffleWindows(rows=100, seed=2).order(2, 3, 4, 100),
        *(windows.order(*key, 100) for key in [(1, 3, 4), (2, 1, 4), (2, 3, 1)]),
    ]
    assert not any(np.array_equal(order, other) for other in others)


def test_orders_are_the_same_in_every_version() -> None:
    assert ShuffleWindows(rows=8, seed=0).order(0, 0, 0, 8).tolist() == [2, 4, 3, 6, 5, 0, 1, 7]
    assert ShuffleWindows(rows=4, seed=-1).order(0, 0, 0, 4).tolist() == [3, 2, 1, 0]


def test_windows_are_rounded_up_to_whole_batches() -> None:
    assert shuffle_windows(buffer_rows=10, batch_size=4, seed=3) == ShuffleWindows(rows=12, seed=3)
    assert shuffle_windows(buffer_rows=2, batch_size=4, seed=3) == ShuffleWindows(rows=4, seed=3)
    assert shuffle_windows(buffer_rows=None, batch_size=4, seed=3) is None
    with pytest.raises(ValueError, match="at least one row"):
        ShuffleWindows(rows=0, seed=0)
