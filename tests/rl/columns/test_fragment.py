"""Fragments and sequences on small hand-made samples."""

import numpy as np
import pytest

from syncline.rl.columns.fragment import Fragment, concatenate
from syncline.rl.columns.sequences import sequences


def fragment(done, *, truncated=None, first_env=0, valid=None, state_every=0):
    """Return a fragment whose observations are 100 * trajectory + time; the observation after an
    end is its negative.
    """
    done = np.asarray(done, bool)
    length, width = done.shape
    env = np.arange(first_env, first_env + width)
    obs = (100 * env + np.arange(length + 1)[:, None]).astype(np.float32)[..., None]
    truncated = np.zeros_like(done) if truncated is None else np.asarray(truncated, bool)
    final_at = np.argwhere(done | truncated)
    return Fragment(
        obs=obs,
        columns={"actions": obs[:-1, :, 0].astype(np.int64)},
        rewards=obs[:-1, :, 0],
        terminated=done,
        truncated=truncated,
        final_at=final_at,
        final_obs=-obs[1:][final_at[:, 0], final_at[:, 1]],
        valid=valid,
        states={"h": obs[:-1:state_every]} if state_every else None,
        state_every=state_every,
        env=env,
        first_step=np.zeros(width, np.int64),
        episode=np.zeros(width, np.int64),
    )


def test_next_observations_stay_in_their_episode():
    made = fragment([[0, 0], [1, 0], [0, 0]], truncated=[[0, 0], [0, 0], [0, 1]])
    assert made.next_obs()[..., 0].tolist() == [[1, 101], [-2, 102], [3, -103]]


def test_rows_leave_out_padding():
    valid = np.array([[1, 1], [1, 0]], bool)
    made = fragment([[0, 0], [0, 0]], valid=valid)
    assert made.num_steps == 3
    assert made.rows(made.columns)["actions"].tolist() == [0, 100, 1]


def test_concatenation_does_not_depend_on_the_order_of_runners():
    one = fragment([[0, 1], [0, 0]], first_env=0)
    two = fragment([[1], [0]], first_env=2)
    (made,) = concatenate([two, one])
    assert made.env.tolist() == [0, 1, 2]
    assert made.final_at.tolist() == [[0, 1], [0, 2]]
    assert made.final_obs[:, 0].tolist() == [-101, -201]
    assert made.next_obs()[:, :, 0].tolist() == [[1, -101, -201], [2, 102, 202]]


def test_fragments_of_other_lengths_stay_apart():
    assert len(concatenate([fragment([[0]]), fragment([[0], [0]])])) == 2


def test_sequences_are_cut_at_ends_and_at_recorded_states():
    done = np.zeros((5, 2))
    done[1, 0] = done[4, 1] = 1
    pieces = sequences(fragment(done, state_every=3))
    found = list(zip(pieces.trajectory, pieces.start, pieces.length, strict=True))
    assert found == [(0, 0, 2), (0, 2, 1), (0, 3, 2), (1, 0, 3), (1, 3, 2)]
    assert pieces.column(pieces.fragment.columns["actions"]).tolist() == [
        [0, 1, 0],
        [2, 0, 0],
        [3, 4, 0],
        [100, 101, 102],
        [103, 104, 0],
    ]
    states = pieces.states({"h": np.array([-7.0])})["h"][:, 0]
    assert states.tolist() == [0, -7, 3, 100, 103]
    observations = pieces.observations()[..., 0]
    assert [row[n] for row, n in zip(observations, pieces.length, strict=True)] == [
        -2,
        3,
        5,
        103,
        -105,
    ]


def test_scattered_sequences_are_the_column_again():
    done = np.zeros((7, 3))
    done[[1, 2, 5], [0, 1, 2]] = 1
    pieces = sequences(fragment(done, state_every=4))
    rewards = pieces.fragment.rewards
    np.testing.assert_array_equal(pieces.scatter(pieces.column(rewards)), rewards)


def test_sequences_leave_out_padding():
    valid = np.array([[1, 1], [1, 1], [1, 0], [1, 0]], bool)
    done = [[0, 0], [0, 1], [0, 0], [1, 0]]
    pieces = sequences(fragment(done, valid=valid, state_every=3))
    found = list(zip(pieces.trajectory, pieces.start, pieces.length, strict=True))
    assert found == [(0, 0, 3), (0, 3, 1), (1, 0, 2)]


@pytest.mark.parametrize("seed", range(5))
def test_sequences_cover_every_step_once(seed):
    random = np.random.default_rng(seed)
    made = fragment(random.random((20, 4)) < 0.2, state_every=6)
    count = np.zeros((20, 4), int)
    pieces = sequences(made)
    for n, start, length in zip(pieces.trajectory, pieces.start, pieces.length, strict=True):
        assert 1 <= length <= 6
        assert not made.done[start : start + length - 1, n].any()
        count[start : start + length, n] += 1
    assert (count == 1).all()
