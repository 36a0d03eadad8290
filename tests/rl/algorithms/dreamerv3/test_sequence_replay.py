"""Sequences for DreamerV3: rows with the reward of arriving, across ends of episodes."""

import numpy as np
import pytest

from syncline.rl.algorithms.dreamerv3.sequence_replay import IS_FIRST, IS_TERMINATED, SequenceReplay
from syncline.rl.columns.fragment import Fragment

LENGTH = 5
"""Steps of an episode."""


def fragments(steps, first=0):
    """Yield single steps of two environments whose observations count up.

    The observation has the environment, the episode and the step; the reward of a step is the
    number of the step after it. Episodes of environment 0 are terminal, those of 1 truncated.
    """
    for t in range(first, first + steps):
        episode, step = divmod(t, LENGTH)
        ends = step == LENGTH - 1

        def obs(episode, step):
            return np.array([[0, episode, step], [1, episode, step]], np.float32)

        after = obs(episode + 1, 0) if ends else obs(episode, step + 1)
        yield Fragment(
            obs=np.stack([obs(episode, step), after]),
            columns={"actions": np.array([[10 + step, 20 + step]])},
            rewards=np.full((1, 2), step + 1, np.float32),
            terminated=np.array([[ends, False]]),
            truncated=np.array([[False, ends]]),
            final_at=np.array([[0, 0], [0, 1]] if ends else np.zeros((0, 2)), np.int64),
            final_obs=obs(episode, LENGTH) if ends else np.zeros((0, 3), np.float32),
            env=np.arange(2),
        )


def filled(capacity, steps):
    replay = SequenceReplay(capacity, num_envs=2, seed=3)
    for each in fragments(steps):
        replay.add(each)
    return replay


@pytest.mark.parametrize("steps", [9, 40], ids=["part", "full"])
def test_rows_follow_each_other_with_the_rewards_of_arriving(steps):
    replay = filled(40, steps)
    batch = replay.sample_sequences(200, 4)
    env, episode, step = np.moveaxis(batch["obs"], -1, 0)
    assert (env == env[:, :1]).all()
    goes_on = step[:, :-1] < LENGTH
    np.testing.assert_array_equal(step[:, 1:], np.where(goes_on, step[:, :-1] + 1, 0))
    np.testing.assert_array_equal(episode[:, 1:], episode[:, :-1] + ~goes_on)
    np.testing.assert_array_equal(batch["rewards"], step)
    np.testing.assert_array_equal(batch[IS_FIRST][:, 1:], step[:, 1:] == 0)
    assert batch[IS_FIRST][:, 0].all()
    np.testing.assert_array_equal(batch[IS_TERMINATED], (step == LENGTH) & (env == 0))
    acted = (step < LENGTH)[:, :-1]  # the last row may be the newest, without an action yet
    expected = np.where(env == 0, 10, 20) + step
    np.testing.assert_array_equal(batch["actions"][:, :-1][acted], expected[:, :-1][acted])


def test_every_sequence_is_drawn_equally_often():
    replay = filled(60, 11)
    rows_per_env = 11 + 2 + 1  # two ends of episodes, and the newest row
    assert replay.num_sequences(4) == 2 * (rows_per_env - 3)
    starts = replay.sample_sequences(6000, 4)["obs"][:, 0]
    found, counts = np.unique(starts, axis=0, return_counts=True)
    assert len(found) == 22
    assert counts.min() > 0.75 * 6000 / 22
    assert counts.max() < 1.25 * 6000 / 22


def test_the_newest_rows_of_a_full_ring_replace_the_oldest():
    replay = filled(40, 100)
    steps = replay.sample_sequences(500, 3)["obs"]
    times = steps[..., 1] * (LENGTH + 1) + steps[..., 2]
    newest = 20 * (LENGTH + 1)
    assert times.max() == newest
    assert times.min() == newest - 20 + 2  # 20 rows, without the oldest


def test_sequences_begin_in_the_recorded_state_of_the_row_before():
    replay = SequenceReplay(60, num_envs=2, seed=3)
    for each in fragments(20):
        step = each.obs[:-1, :, 2:]
        each.columns.update({"latent_h": 100 + step, "latent_z": step.astype(np.uint8)})
        replay.add(each)
    batch = replay.sample_sequences(100, 3)
    step = batch["obs"][:, 0, 2]
    np.testing.assert_array_equal(batch[IS_FIRST][:, 0], step == 0)
    goes_on = step > 0
    np.testing.assert_array_equal(batch["start_h"][goes_on, 0], 99 + step[goes_on])
    np.testing.assert_array_equal(batch["start_z"][goes_on, 0], step[goes_on] - 1)
    env = batch["obs"][:, 0, 0]
    expected = np.where(env == 0, 10, 20) + step - 1
    np.testing.assert_array_equal(batch["start_action"][goes_on], expected[goes_on])


def test_too_few_rows_are_an_error():
    with pytest.raises(ValueError, match="batch_length_T=50"):
        filled(200, 20).sample_sequences(1, 50)


def test_restored_buffer_draws_the_same():
    replay = filled(40, 30)
    replay.sample_sequences(3, 4)
    other = SequenceReplay(40, num_envs=2, seed=99)
    other.set_state(replay.get_state())
    expected, found = replay.sample_sequences(8, 4), other.sample_sequences(8, 4)
    assert list(expected) == list(found)
    for name, column in expected.items():
        np.testing.assert_array_equal(column, found[name])
