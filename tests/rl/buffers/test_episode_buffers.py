"""RLlib's buffers of episodes: draws against the episodes themselves."""

from types import SimpleNamespace

import numpy as np
import pytest

from syncline.rl.buffers.episode_buffers import (
    EpisodeReplayBuffer,
    MultiAgentEpisodeReplayBuffer,
    MultiAgentPrioritizedEpisodeReplayBuffer,
    PrioritizedEpisodeReplayBuffer,
)
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode

GAMMA = 0.9


def episode(number, length, end="terminated", start=0, **options):
    """Return steps of an episode: observation (number, step), reward number + step / 100."""
    return SingleAgentEpisode(
        id_=f"e{number}",
        observations=[np.array([number, start + t], np.float32) for t in range(length + 1)],
        actions=[(start + t) % 3 for t in range(length)],
        rewards=[number + (start + t) / 100 for t in range(length)],
        terminated=end == "terminated",
        truncated=end == "truncated",
        len_lookback_buffer=0,
        t_started=start,
        **options,
    )


def check(columns, lengths, n_step):
    for row, (number, step) in enumerate(columns["obs"].astype(int)):
        taken = min(n_step, lengths[number] - step)
        expected = sum(GAMMA**k * (number + (step + k) / 100) for k in range(taken))
        assert columns["rewards"][row] == pytest.approx(expected, rel=1e-5)
        assert columns["new_obs"][row].tolist() == [number, step + taken]
        assert columns["n_step"][row] == taken
        assert columns["actions"][row] == step % 3
        assert columns["terminateds"][row] == (step + taken == lengths[number])


@pytest.mark.parametrize("cls", [EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer])
def test_transitions_are_those_of_the_episodes(cls):
    buffer = cls(capacity=100, seed=0)
    lengths = {1: 5, 2: 8, 3: 1}
    buffer.add([episode(number, length) for number, length in lengths.items()])
    columns = buffer.sample(64, n_step=3, gamma=GAMMA)
    check(columns, lengths, 3)
    assert {tuple(each) for each in columns["obs"].astype(int)} > {(3, 0)}
    episodes = buffer.sample(20, n_step=3, gamma=GAMMA, sample_episodes=True)
    assert all(len(each) == 1 and each.extra_model_outputs["n_step"] for each in episodes)
    assert buffer.get_sampled_timesteps() == 84


def test_parts_of_an_episode_are_joined():
    buffer = EpisodeReplayBuffer(capacity=100, seed=0)
    buffer.add(episode(1, 4, end=None))
    buffer.add(episode(2, 3))
    buffer.add(episode(1, 3, start=4))
    assert buffer.get_num_episodes() == 2
    assert len(buffer) == buffer.get_added_timesteps() == 10
    check(buffer.sample(64, n_step=5, gamma=GAMMA), {1: 7, 2: 3}, 5)


@pytest.mark.parametrize("cls", [EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer])
def test_oldest_episodes_leave(cls):
    buffer = cls(capacity=20, seed=0)
    for number in range(1, 12):
        buffer.add(episode(number, 6))
        assert len(buffer) <= 20
    assert buffer.get_num_episodes() == 3
    assert set(buffer.sample(200, n_step=1)["obs"][:, 0]) == {9, 10, 11}


def test_sequences_go_on_with_the_beginning_of_another_episode():
    buffer = EpisodeReplayBuffer(capacity=100, seed=0)
    lengths = {1: 4, 2: 6}
    buffer.add([episode(number, length) for number, length in lengths.items()])
    batch = buffer.sample(batch_size_B=8, batch_length_T=10)
    assert batch["obs"].shape == (8, 10, 2)
    for b in range(8):
        for t in range(1, 10):
            number, step = batch["obs"][b, t].astype(int)
            before, step_before = batch["obs"][b, t - 1].astype(int)
            if batch["is_first"][b, t]:
                assert (step, batch["rewards"][b, t]) == (0, 0)
                assert batch["is_last"][b, t - 1]
                assert batch["is_terminated"][b, t - 1]
            else:
                assert (number, step) == (before, step_before + 1)
                assert batch["rewards"][b, t] == pytest.approx(number + (step - 1) / 100)
    slices = buffer.sample(6, batch_length_T=3, sample_episodes=True)
    assert all(1 <= len(each) <= 3 for each in slices)


def test_priorities_decide_what_is_drawn_and_how_it_weighs():
    buffer = PrioritizedEpisodeReplayBuffer(capacity=100, alpha=1.0, seed=0)
    buffer.add([episode(1, 4), episode(2, 4)])
    for _ in range(20):
        columns = buffer.sample(64, n_step=1)
        buffer.update_priorities(np.where(columns["obs"][:, 0] == 2, 3.0, 1.0))
    columns = buffer.sample(4000, n_step=1, beta=1.0)
    of_two = columns["obs"][:, 0] == 2
    assert of_two.mean() == pytest.approx(0.75, abs=0.03)
    np.testing.assert_allclose(columns["weights"][of_two], 1 / 3, rtol=1e-5)
    np.testing.assert_allclose(columns["weights"][~of_two], 1.0, rtol=1e-5)
    with pytest.raises(ValueError, match="3 priorities.*4000 steps"):
        buffer.update_priorities(np.ones(3))
    with pytest.raises(ValueError, match="must be positive"):
        buffer.update_priorities(np.zeros(4000))


@pytest.mark.parametrize("cls", [EpisodeReplayBuffer, PrioritizedEpisodeReplayBuffer])
def test_restored_buffer_draws_the_same(cls):
    first, second = cls(capacity=30, seed=0), cls(capacity=30, seed=9)
    for number in range(1, 8):
        first.add(episode(number, 6))
        drawn = first.sample(8, n_step=2)
        if cls is PrioritizedEpisodeReplayBuffer:
            first.update_priorities(np.abs(drawn["rewards"]) + 0.1)
    second.set_state(first.get_state())
    for buffer in (first, second):
        buffer.add(episode(20, 5))
    one, other = (buffer.sample(50, n_step=3) for buffer in (first, second))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_each_module_has_a_buffer_with_the_episodes_of_its_agents():
    agents = {
        "a": episode(1, 5, agent_id="a", module_id="m"),
        "b": episode(2, 4, agent_id="b", module_id="m"),
        "c": episode(3, 3, agent_id="c", module_id="other"),
    }
    buffer = MultiAgentEpisodeReplayBuffer(capacity=100, seed=0)
    buffer.add([SimpleNamespace(agent_episodes=agents)])
    assert buffer.get_num_timesteps("m") == 9
    assert len(buffer) == 12
    assert {each.module_id for each in buffer.sample(20, n_step=1)} == {"m", "other"}
    columns = buffer.sample({"m": 30}, modules_to_sample=["m"], sample_episodes=False, n_step=1)
    assert set(columns) == {"m"}
    assert set(columns["m"]["obs"][:, 0]) == {1, 2}
    restored = MultiAgentEpisodeReplayBuffer(capacity=100)
    restored.set_state(buffer.get_state())
    assert len(restored) == 12
    prioritized = MultiAgentPrioritizedEpisodeReplayBuffer(capacity=100, alpha=1.0, seed=0)
    prioritized.add(SimpleNamespace(agent_episodes=agents))
    prioritized.sample(10, n_step=1)
    prioritized.update_priorities({"m": np.full(10, 2.0), "other": np.ones(10)})
    assert prioritized.buffers["m"]._priorities.largest == 2.0


def test_an_empty_buffer_is_named():
    with pytest.raises(ValueError, match="The buffer is empty"):
        EpisodeReplayBuffer().sample(3)
