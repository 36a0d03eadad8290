"""Replay against a list of transitions that is kept beside it."""

from dataclasses import replace

import numpy as np
import pytest

from syncline.rl.buffers.priorities import BLOCK, Priorities
from syncline.rl.buffers.replay_columns import ReplayColumns
from syncline.rl.columns.fragment import Fragment

GAMMA = 0.9


class Simulation:
    """Environments whose observation is (env, episode, step), and all their transitions."""

    def __init__(self, width, seed):
        self.random = np.random.default_rng(seed)
        self.width = width
        self.episode = np.zeros(width, int)
        self.step = np.zeros(width, int)
        self.episodes = {}  # (env, episode): list of rewards; end: None | "terminated" | ...
        self.ends = {}

    def obs(self):
        return np.stack([np.arange(self.width), self.episode, self.step], axis=1).astype(np.float32)

    def fragment(self, length):
        obs, finals, final_at = [self.obs()], [], []
        rewards = self.random.normal(size=(length, self.width)).astype(np.float32)
        terminated = self.random.random((length, self.width)) < 0.15
        truncated = (self.random.random((length, self.width)) < 0.1) & ~terminated
        for t in range(length):
            for n in range(self.width):
                self.episodes.setdefault((n, self.episode[n]), []).append(rewards[t, n])
            self.step += 1
            after = self.obs()
            for n in np.flatnonzero(terminated[t] | truncated[t]):
                final_at.append((t, n))
                finals.append(after[n])
                self.ends[n, self.episode[n]] = bool(terminated[t, n])
                self.episode[n] += 1
                self.step[n] = 0
            obs.append(self.obs())
        return Fragment(
            obs=np.stack(obs),
            columns={"actions": np.zeros((length, self.width), np.int64)},
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            final_at=np.array(final_at, int).reshape(-1, 2),
            final_obs=np.array(finals, np.float32).reshape(-1, 3),
            env=np.arange(self.width),
        )

    def check(self, batch, n_step):
        """Compare every drawn transition with what happened."""
        for i, (env, episode, step) in enumerate(batch["obs"].astype(int)):
            rewards = self.episodes[env, episode]
            taken = min(n_step, len(rewards) - step)
            expected = sum(GAMMA**k * rewards[step + k] for k in range(taken))
            assert batch["n_step"][i] == taken
            assert batch["rewards"][i] == pytest.approx(expected, abs=1e-5)
            assert batch["new_obs"][i].tolist() == [env, episode, step + taken]
            is_end = step + taken == len(rewards) and (env, episode) in self.ends
            assert batch["terminateds"][i] == (is_end and self.ends[env, episode])


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(("width", "length", "capacity"), [(1, 4, 50), (3, 7, 120), (8, 1, 400)])
def test_transitions_are_those_that_happened(width, length, capacity, n_step):
    world = Simulation(width, seed=width)
    buffer = ReplayColumns(capacity, num_envs=width, seed=0)
    for _ in range(40):
        buffer.add(world.fragment(length))
        world.check(buffer.sample(32, n_step=n_step, gamma=GAMMA), n_step)


def test_every_stored_step_is_drawn_equally_often():
    world = Simulation(2, seed=5)
    buffer = ReplayColumns(60, num_envs=2, seed=0)
    for _ in range(20):
        buffer.add(world.fragment(6))
    drawn = buffer.sample(20_000)["batch_indexes"]
    _, counts = np.unique(drawn, return_counts=True)
    assert len(counts) == buffer.num_steps
    expected = 20_000 / buffer.num_steps
    assert ((counts - expected) ** 2 / expected).sum() < 2 * buffer.num_steps


def test_number_of_steps_counts_what_can_be_drawn():
    world = Simulation(1, seed=1)
    buffer = ReplayColumns(30, seed=0)
    for number in range(1, 20):
        buffer.add(world.fragment(3))
        assert buffer.num_steps == buffer._is_step.sum()
        assert buffer.statistics().num_steps_added == 3 * number


def test_priorities_decide_what_is_drawn():
    world = Simulation(1, seed=2)
    buffer = ReplayColumns(100, seed=0, alpha=1.0)
    buffer.add(world.fragment(20))
    rows = np.flatnonzero(buffer._is_step)
    buffer.update_priorities(rows, np.where(rows % 2, 3.0, 1.0))
    batch = buffer.sample(8000, beta=1.0)
    odd = (batch["batch_indexes"] % 2 == 1).mean()
    share = 3.0 * (rows % 2).sum() / (3.0 * (rows % 2).sum() + (1 - rows % 2).sum())
    assert odd == pytest.approx(share, abs=0.02)
    weights = batch["weights"]
    np.testing.assert_allclose(weights[batch["batch_indexes"] % 2 == 0], 1.0, rtol=1e-5)
    np.testing.assert_allclose(weights[batch["batch_indexes"] % 2 == 1], 1 / 3, rtol=1e-5)


def test_new_steps_get_the_largest_priority():
    world = Simulation(1, seed=3)
    buffer = ReplayColumns(200, seed=0, alpha=1.0)
    buffer.add(world.fragment(10))
    old = np.flatnonzero(buffer._is_step)
    buffer.update_priorities(old, np.full(len(old), 0.01))
    buffer.update_priorities(old[:1], np.array([50.0]))
    buffer.add(world.fragment(10))
    drawn = buffer.sample(500)["batch_indexes"]
    assert np.isin(drawn, old[1:]).mean() < 0.05


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_restored_buffer_draws_the_same(alpha):
    world = Simulation(2, seed=4)
    first = ReplayColumns(100, num_envs=2, seed=0, alpha=alpha)
    first.add(world.fragment(30))
    first.sample(10)
    second = ReplayColumns(100, num_envs=2, seed=9, alpha=alpha)
    second.set_state(first.get_state())
    new = world.fragment(15)
    for buffer in (first, second):
        buffer.add(new)
    one, other = first.sample(64, n_step=2), second.sample(64, n_step=2)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_fragment_longer_than_the_ring_is_an_error():
    buffer = ReplayColumns(20, num_envs=2)
    with pytest.raises(ValueError, match=r"`capacity=20`.*rollout_fragment_length"):
        buffer.add(Simulation(2, seed=0).fragment(12))


def test_draws_follow_priorities_across_blocks():
    random = np.random.default_rng(0)
    size = 3 * BLOCK + 17
    priorities = Priorities(size)
    given = random.random(size) * (random.random(size) < 0.5)
    priorities.set(np.arange(size), given)
    drawn = priorities.draw((np.arange(20_000) + 0.5) / 20_000)
    counts = np.bincount(drawn, minlength=size)
    np.testing.assert_allclose(counts / 20_000, given / given.sum(), atol=1e-4)
    assert (given[drawn] > 0).all()


def test_padding_is_not_stored():
    world = Simulation(3, seed=8)
    buffer = ReplayColumns(300, num_envs=3, seed=0)
    for _ in range(6):
        whole = world.fragment(4)
        whole.valid = np.ones((4, 3), bool)
        padded = replace(
            whole,
            obs=np.concatenate([whole.obs, np.full((2, 3, 3), -1.0, np.float32)]),
            columns={"actions": np.zeros((6, 3), np.int64)},
            rewards=np.concatenate([whole.rewards, np.full((2, 3), 99.0, np.float32)]),
            terminated=np.concatenate([whole.terminated, np.zeros((2, 3), bool)]),
            truncated=np.concatenate([whole.truncated, np.zeros((2, 3), bool)]),
            valid=np.concatenate([whole.valid, np.zeros((2, 3), bool)]),
        )
        buffer.add(padded)
        world.check(buffer.sample(32, n_step=2, gamma=GAMMA), 2)
    assert buffer.num_steps == 6 * 4 * 3


def test_trajectories_that_come_later_get_rings():
    world = Simulation(5, seed=9)
    buffer = ReplayColumns(200, num_envs=2, seed=0, alpha=0.5)
    for number in range(30):
        width = 2 if number < 10 else 5
        whole = world.fragment(3)
        own = whole.final_at[:, 1] < width
        buffer.add(
            replace(
                whole,
                obs=whole.obs[:, :width],
                columns={"actions": whole.columns["actions"][:, :width]},
                rewards=whole.rewards[:, :width],
                terminated=whole.terminated[:, :width],
                truncated=whole.truncated[:, :width],
                final_at=whole.final_at[own],
                final_obs=whole.final_obs[own],
                env=whole.env[:width],
            )
        )
        batch = buffer.sample(64, gamma=GAMMA)
        world.check(batch, 1)
        assert buffer.num_steps == buffer._is_step.sum()
    assert set(batch["obs"][:, 0]) == set(range(5))
    buffer.capacity = 10
    with pytest.raises(ValueError, match="is too small for 8 trajectories"):
        buffer._resize(8)
