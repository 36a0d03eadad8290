"""`sample()` and `get_metrics()` of env runners, with one agent and with several."""

import pytest

from syncline.rl.callbacks.callbacks import RLlibCallback
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.runners.single_agent_env_runner import SingleAgentEnvRunner
from tests.rl.runners.test_multi_agent_episodes import runner as several
from tests.rl.runners.test_single_agent_env_runner import config


def single(num_envs=1, callbacks=None):
    made = config(num_envs_per_env_runner=num_envs)
    if callbacks is not None:
        made.callbacks(callbacks)
    return SingleAgentEnvRunner(config=made)


class Ends(RLlibCallback):
    def __init__(self):
        self.chunks = []

    def on_episode_end(self, *, episode, prev_episode_chunks, **kwargs):
        self.chunks.append([len(each) for each in (*prev_episode_chunks, episode)])


@pytest.mark.parametrize("made", [single, several])
def test_steps_come_as_episodes_and_parts_that_continue(made):
    made = made(2)
    first = made.sample(num_timesteps=11)
    second = made.sample(num_timesteps=10)
    assert sum(map(len, first)) == 12  # a multiple of two environments
    assert sum(map(len, second)) == 10
    by_id = {}
    for part in [*first, *second]:
        by_id.setdefault(part.id_, []).append(part)
    joined = [parts for parts in by_id.values() if len(parts) > 1]
    assert joined
    for parts in joined:
        whole = sum(map(len, parts))
        for part in parts[1:]:
            parts[0].concat_episode(part)
        assert len(parts[0]) == whole


def test_agents_that_wait_lose_no_step_between_parts():
    made = several()
    parts = made.sample(num_timesteps=4) + made.sample(num_timesteps=4)
    rewards = [part.agent_episodes["slow"].get_rewards() for part in parts]
    assert rewards == [[3.0], [3.0]]
    assert [part.is_done for part in parts] == [False, True]


@pytest.mark.parametrize("made", [single, several])
def test_complete_episodes_are_as_many_of_every_environment(made):
    episodes = made(2).sample(num_episodes=3)
    assert len(episodes) == 3
    assert all(episode.is_done and len(episode) for episode in episodes)


@pytest.mark.parametrize("made", [single, several])
def test_callbacks_get_earlier_parts(made):
    made = made(callbacks=Ends)
    whole = made.sample(num_episodes=1)[0]
    made.sample(num_timesteps=2)
    made.sample(num_timesteps=len(whole) + 8)
    (callback,) = made.callbacks.callbacks
    assert callback.chunks[1][0] == 2
    assert len(callback.chunks[1]) == 2


@pytest.mark.parametrize("made", [single, several])
def test_metrics_are_those_of_the_samples(made):
    made = made()
    (episode,) = made.sample(num_episodes=1)
    logger = MetricsLogger(root=True)
    logger.aggregate([made.get_metrics()])
    found = logger.reduce(compile=True)
    assert found["episode_len_mean"] == len(episode)
    assert found["num_episodes"] == 1
    assert made._unreported == []


def test_one_number_only_and_forced_resets():
    made = single()
    with pytest.raises(ValueError, match="num_timesteps=1 and num_episodes=1"):
        made.sample(num_timesteps=1, num_episodes=1)
    (first,) = made.sample(num_timesteps=1)
    (again,) = made.sample(num_timesteps=1, force_reset=True)
    assert first.id_ != again.id_
    assert again.t_started == 0
