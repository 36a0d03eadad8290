"""Returns of recorded episodes against sums."""

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.offline.returns_to_go import BOOTSTRAP_DISCOUNTS, LAST_OBS, with_returns

GAMMA = 0.9


def rows(ends, seed=0):
    """Return the rows of episodes, given as their length and how they end."""
    random = np.random.default_rng(seed)
    total = sum(length for length, _ in ends)
    terminated = np.zeros(total, bool)
    last = np.cumsum([length for length, _ in ends]) - 1
    terminated[last] = [end == "terminated" for _, end in ends]
    return {
        Columns.EPS_ID: np.repeat([f"e{i}" for i in range(len(ends))], [n for n, _ in ends]),
        Columns.REWARDS: random.normal(size=total),
        Columns.OBS: np.arange(total, dtype=float)[:, None],
        Columns.NEXT_OBS: np.arange(total, dtype=float)[:, None] + 0.5,
        Columns.TERMINATEDS: terminated,
        Columns.T: np.concatenate([np.arange(n) for n, _ in ends]),
    }


def check(found, given):
    for row, name in enumerate(found[Columns.EPS_ID]):
        own = np.flatnonzero(given[Columns.EPS_ID] == name)
        place = np.flatnonzero(given[Columns.OBS][:, 0] == found[Columns.OBS][row, 0])[0]
        left = own[own >= place]
        expected = sum(GAMMA**k * given[Columns.REWARDS][at] for k, at in enumerate(left))
        np.testing.assert_allclose(found[Columns.RETURNS_TO_GO][row], expected, rtol=1e-5)
        ends = given[Columns.TERMINATEDS][own[-1]]
        factor = 0.0 if ends else GAMMA ** len(left)
        np.testing.assert_allclose(found[BOOTSTRAP_DISCOUNTS][row], factor, rtol=1e-5)
        assert found[LAST_OBS][row, 0] == own[-1] + 0.5


def test_returns_are_sums_within_episodes():
    given = rows([(4, "terminated"), (1, "truncated"), (7, "truncated"), (3, "terminated")])
    found = with_returns(given, GAMMA)
    assert Columns.NEXT_OBS not in found
    check(found, given)


def test_rows_in_any_order_are_ordered_by_time():
    given = rows([(4, "terminated"), (6, "truncated")])
    order = np.random.default_rng(0).permutation(10)
    check(with_returns({name: column[order] for name, column in given.items()}, GAMMA), given)


def test_without_next_observations_nothing_is_bootstrapped():
    given = rows([(3, "truncated")])
    del given[Columns.NEXT_OBS]
    found = with_returns(given, GAMMA)
    assert LAST_OBS not in found
    assert not found[BOOTSTRAP_DISCOUNTS].any()
