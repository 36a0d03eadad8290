"""Off-policy algorithms: runners in other processes, several agents, buffers in checkpoints and of
programs, a killed driver.
"""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import syncline
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.dqn import DQNConfig
from syncline.rl.algorithms.sac import SACConfig
from syncline.rl.buffers.episode_buffers import PrioritizedEpisodeReplayBuffer
from syncline.rl.columns.trees import leaves
from syncline.rl.envs.examples.multi_agent import MultiAgentCartPole, MultiAgentPendulum

MODEL = {"fcnet_hiddens": [8], "fcnet_activation": "tanh"}


def dqn(**runners):
    return (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(rollout_fragment_length=2, **runners)
        .training(num_steps_sampled_before_learning_starts=20, lr=0.01, n_step=2)
        .training(target_network_update_freq=30)
        .rl_module(model_config=MODEL)
        .reporting(min_sample_timesteps_per_iteration=40)
        .debugging(seed=7)
    )


def weights(algo):
    return [np.asarray(leaf).copy() for leaf in leaves(algo.get_weights())]


def trained(algo, iterations):
    for _ in range(iterations):
        algo.train()
    found = weights(algo)
    algo.stop()
    return found


def assert_equal(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.processes
def test_two_runners_give_the_weights_of_one_with_two_environments():
    syncline.init(num_cpus=2)
    try:
        remote = trained(dqn(num_env_runners=2).build_algo(), 3)
    finally:
        syncline.shutdown()
    local = trained(dqn(num_env_runners=0, num_envs_per_env_runner=2).build_algo(), 3)
    for a, b in zip(remote, local, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.processes
def test_run_with_runners_continues_exactly(tmp_path):
    syncline.init(num_cpus=2)
    try:
        algo = dqn(num_env_runners=2).build_algo()
        for _ in range(2):
            algo.train()
        path = algo.save_to_path(tmp_path / "checkpoint")
        end = trained(algo, 2)
        assert_equal(trained(Algorithm.from_checkpoint(path), 2), end)
    finally:
        syncline.shutdown()


@pytest.mark.parametrize(
    ("config_class", "env"), [(DQNConfig, MultiAgentCartPole), (SACConfig, MultiAgentPendulum)]
)
def test_agents_with_modules_of_their_own_learn_and_continue(config_class, env, tmp_path):
    config = (
        config_class()
        .environment(env, env_config={"num_agents": 2})
        .multi_agent(
            policies={"p0", "p1"}, policy_mapping_fn=lambda agent, episode, **kw: f"p{agent}"
        )
        .training(
            num_steps_sampled_before_learning_starts=30,
            train_batch_size_per_learner=16,
            replay_buffer_config={
                "type": "MultiAgentPrioritizedEpisodeReplayBuffer",
                "capacity": 2000,
            },
        )
        .rl_module(model_config=MODEL)
        .reporting(min_sample_timesteps_per_iteration=40, min_time_s_per_iteration=0)
        .debugging(seed=1)
    )
    algo = config.build_algo()
    before = weights(algo)
    result = [algo.train() for _ in range(2)][-1]
    assert set(algo.buffers) == {"p0", "p1"}
    for module_id in ("p0", "p1"):
        assert result["learners"][module_id]["num_module_steps_trained"] > 0
        assert result["replay_buffer"][module_id]["num_steps_stored"] > 30
    assert any((a != b).any() for a, b in zip(before, weights(algo), strict=True))
    path = algo.save_to_path(tmp_path / "checkpoint")
    restored = Algorithm.from_checkpoint(path)
    for module_id in ("p0", "p1"):
        one, other = (each.buffers[module_id].sample(32) for each in (algo, restored))
        np.testing.assert_array_equal(one["obs"], other["obs"])
    restored.train()
    restored.stop()
    algo.stop()


def test_without_stored_buffers_a_checkpoint_has_none(tmp_path):
    algo = dqn().training(store_buffer_in_checkpoints=False).build_algo()
    algo.train()
    path = algo.save_to_path(tmp_path / "checkpoint")
    algo.stop()
    assert not os.path.exists(os.path.join(path, "replay_buffers"))
    restored = Algorithm.from_checkpoint(path)
    assert not restored.buffers
    restored.train()
    restored.stop()


def test_state_in_memory_has_the_buffers():
    algo = dqn().build_algo()
    algo.train()
    other = dqn().debugging(seed=9).build_algo()
    other.set_state(algo.get_state())
    assert other.buffers["default_policy"].num_steps == algo.buffers["default_policy"].num_steps
    algo.stop()
    other.stop()


def test_unknown_buffers_are_named():
    with pytest.raises(ValueError, match="'EpisodeReplayBufer'` is unknown.*Did you mean 'Ep"):
        dqn().training(replay_buffer_config={"type": "EpisodeReplayBufer"}).validate()
    with pytest.raises(ValueError, match="'capacty'.` is unknown.*Did you mean 'capacity'"):
        dqn().training(replay_buffer_config={"capacty": 100}).validate()


class Remembering(PrioritizedEpisodeReplayBuffer):
    """A buffer of a program."""

    def __init__(self, capacity, *, remembers, **kwargs):
        super().__init__(capacity, **kwargs)
        self.remembers = remembers
        self.calls = {"add": 0, "sample": 0, "update_priorities": 0}

    def add(self, episodes):
        self.calls["add"] += 1
        super().add(episodes)

    def sample(self, *args, **options):
        self.calls["sample"] += 1
        return super().sample(*args, **options)

    def update_priorities(self, priorities, module_id=None):
        self.calls["update_priorities"] += 1
        super().update_priorities(priorities, module_id)


def test_a_buffer_of_the_program_is_used_and_restored(tmp_path):
    algo = (
        dqn()
        .training(
            replay_buffer_config={
                "type": Remembering,
                "capacity": 500,
                "alpha": 0.6,
                "beta": 0.4,
                "remembers": 3,
            }
        )
        .build_algo()
    )
    algo.train()
    buffer = algo.buffers["default_policy"].buffer
    assert buffer.remembers == 3
    assert buffer.calls["add"] == 20
    assert buffer.calls["sample"] == buffer.calls["update_priorities"] > 5
    assert buffer.get_num_timesteps() == 40
    path = algo.save_to_path(tmp_path / "checkpoint")
    end = trained(algo, 1)
    assert_equal(trained(Algorithm.from_checkpoint(path), 1), end)


def test_own_classes_are_names():
    config = dqn().training(
        replay_buffer_config={"type": PrioritizedEpisodeReplayBuffer, "capacity": 100}
    )
    config.validate()
    assert config.replay_buffer_config["type"] == "PrioritizedEpisodeReplayBuffer"


def drive(directory):
    """Train and save after every iteration, until somebody kills this process."""
    algo = dqn().build_algo()
    while True:
        algo.train()
        algo.save_to_path(os.path.join(directory, f"{algo.training_iteration:04d}"))


@pytest.mark.processes
def test_killed_driver_continues_exactly(tmp_path):
    code = f"from {__name__} import drive; drive({str(tmp_path)!r})"
    child = subprocess.Popen([sys.executable, "-c", code], cwd=os.getcwd())
    deadline = time.monotonic() + 120
    while not (tmp_path / "0003").exists():
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    latest = max(each for each in os.listdir(tmp_path) if each.isdigit())
    restored = Algorithm.from_checkpoint(str(tmp_path / latest))
    done = restored.training_iteration
    assert done == int(latest)
    assert_equal(trained(restored, 2), trained(dqn().build_algo(), done + 2))
