"""Env runners in other processes: shared memory, death, hangs. Processes are killed for real."""

import logging
import os
import signal
import time

import gymnasium as gym
import numpy as np
import pytest

from syncline.exceptions import RayActorError
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.columns.trees import leaves
from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.examples.multi_agent import MultiAgentCartPole
from syncline.rl.runners import group
from syncline.rl.runners.shared_memory import SampleReader, SampleWriter


class Chain(gym.Env):
    """A walk whose observation is the number of steps; hangs at step `hang_at` of a process."""

    observation_space = gym.spaces.Box(-1e6, 1e6, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.config = dict(config)
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._obs(), {}

    def _obs(self):
        return np.array([self.count, self.np_random.random()], np.float32)

    def step(self, action):
        self.count += 1
        flag = self.config.get("flag")
        if flag and self.count == 7 and not os.path.exists(flag):
            open(flag, "w").close()
            while True:
                time.sleep(0.05)
        return self._obs(), float(action), self.count >= 11, False, {}


def config(**env_config):
    return (
        PPOConfig()
        .environment(Chain, env_config=env_config)
        .env_runners(num_env_runners=2, num_envs_per_env_runner=2)
        .training(train_batch_size_per_learner=80, minibatch_size=40, num_epochs=1, lr=0.01)
        .rl_module(model_config={"fcnet_hiddens": [8]})
        .debugging(seed=1)
    )


def weights_after(algo, iterations):
    for _ in range(iterations):
        algo.train()
    return [np.asarray(leaf) for leaf in leaves(algo.get_weights())]


def pids(algo):
    return algo.env_runner_group.foreach_env_runner(lambda runner: os.getpid())


@pytest.mark.processes
def test_killed_runners_of_several_agents_continue_from_their_last_state(monkeypatch):
    monkeypatch.setattr(group, "SAMPLES_PER_STATE", 1)
    found = []
    for kill in (False, True):
        made = config().environment(MultiAgentCartPole, env_config={"num_agents": 2})
        made.multi_agent(
            policies={"0", "1"}, policy_mapping_fn=lambda agent, episode, **_: str(agent)
        )
        algo = made.build_algo()
        weights_after(algo, 2)
        if kill:
            handle = algo.env_runner_group._remotes[2]
            assert handle._state is not None
            os.kill(pids(algo)[1], signal.SIGKILL)
        found.append(weights_after(algo, 2))
        assert algo.env_runner_group.num_remote_worker_restarts == kill
        algo.stop()
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.processes
def test_calls_of_runners_leave_out_those_that_take_too_long(tmp_path, caplog):
    algo = config().build_algo()
    runners, flag = algo.env_runner_group, str(tmp_path / "go on")

    def slow(runner):
        while runner.worker_index == 2 and not os.path.exists(flag):
            time.sleep(0.01)
        if runner.worker_index == 2:
            raise ValueError("too late")
        return runner.worker_index

    assert runners.foreach_env_runner(slow, timeout_seconds=5.0, remote_worker_ids=[1]) == [1]
    assert runners.foreach_env_runner(slow, timeout_seconds=1.0) == [1]
    assert "Env runner 2 has not answered within `timeout_seconds=1.0`" in caplog.text
    assert runners.foreach_env_runner(slow, timeout_seconds=0, remote_worker_ids=[2]) == []
    open(flag, "w").close()
    assert runners.foreach_env_runner(lambda runner: runner.worker_index) == [1, 2]
    assert "A call of env runner 2 failed later" in caplog.text
    algo.stop()


# -- shared memory


def test_samples_pass_through_shared_memory_and_the_copies_are_independent():
    writer = SampleWriter()
    reader = SampleReader(writer.address)
    first = {"a": np.arange(1000, dtype=np.float32), "b": np.ones((3, 5), bool)}
    stored = writer.write(first, 0)
    assert len(stored.pickled) < 600
    read = reader.read(stored)
    second = reader.read(writer.write({"a": np.zeros(1000, np.float32)}, 0))
    np.testing.assert_array_equal(read["a"], first["a"])
    np.testing.assert_array_equal(read["b"], first["b"])
    assert not second["a"].any()
    assert read["a"].flags.writeable
    writer.progress[0] = 7
    assert reader.progress == 7


def test_memory_grows_for_larger_samples():
    writer = SampleWriter()
    reader = SampleReader(writer.address)
    for size in (10, 100_000, 1_000_000, 10):
        values = np.random.default_rng(size).random(size)
        np.testing.assert_array_equal(reader.read(writer.write(values, 1)), values)


def test_a_sample_that_cannot_be_pickled_stays_as_it_is():
    sample = {"function": lambda: None}
    assert SampleWriter().write(sample, 0) is sample


# -- death


@pytest.mark.processes
@pytest.mark.parametrize("iterations_before", [0, 3, 9])
def test_killed_runners_continue_exactly(iterations_before):
    algo = config().build_algo()
    expected = weights_after(algo, iterations_before + 4)
    algo.stop()
    algo = config().build_algo()
    weights_after(algo, iterations_before)
    for pid in pids(algo):
        os.kill(pid, signal.SIGKILL)
    algo.train()
    os.kill(pids(algo)[0], signal.SIGKILL)
    found = weights_after(algo, 3)
    assert algo.env_runner_group.num_remote_worker_restarts == 3
    algo.stop()
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.processes
def test_weights_do_not_depend_on_the_number_of_runners():
    ends = []
    for runners, envs in ((0, 4), (1, 4), (2, 2)):
        algo = (
            config().env_runners(num_env_runners=runners, num_envs_per_env_runner=envs).build_algo()
        )
        ends.append(weights_after(algo, 3))
        algo.stop()
    for end in ends[1:]:
        for one, other in zip(ends[0], end, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.processes
def test_runners_that_could_never_start_together_are_an_error():
    with pytest.raises(ValueError, match="num_env_runners=4096.*num_cpus_per_env_runner"):
        config().env_runners(num_env_runners=4096).build_algo()


@pytest.mark.processes
def test_without_restarts_the_death_is_an_error():
    algo = config().fault_tolerance(restart_failed_env_runners=False).build_algo()
    os.kill(pids(algo)[0], signal.SIGKILL)
    with pytest.raises(RayActorError):
        algo.train()
    algo.stop()


# -- hangs


@pytest.mark.processes
def test_a_hanging_environment_is_named_killed_and_sampled_again(tmp_path, caplog):
    settings = config(flag=str(tmp_path / "hung")).env_runners(sample_timeout_s=0.5)
    algo = settings.fault_tolerance(env_runner_health_probe_timeout_s=0.5).build_algo()
    with caplog.at_level(logging.WARNING):
        found = weights_after(algo, 2)
    assert algo.env_runner_group.num_remote_worker_restarts >= 1
    algo.stop()
    assert "in step" in caplog.text  # the stack, with the line of the environment
    assert "sample_timeout_s=0.5" in caplog.text
    assert "was killed as hanging" in caplog.text
    algo = settings.build_algo()  # the flag exists: nothing hangs
    expected = weights_after(algo, 2)
    algo.stop()
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


# -- sampling ahead


@pytest.mark.processes
def test_batches_sampled_ahead_are_those_of_the_weights_before_and_are_restored(tmp_path):
    algo = config().env_runners(sample_ahead=True).build_algo()
    versions = []
    log_samples = algo.log_samples

    def noted(samples):
        versions.extend(each.fragments["default_policy"].weights_version for each in samples)
        log_samples(samples)

    algo.log_samples = noted
    weights_after(algo, 3)
    assert versions == [0, 0, 0, 0, 1, 1]
    path = algo.save_to_path(tmp_path / "checkpoint")
    os.kill(pids(algo)[0], signal.SIGKILL)
    expected = weights_after(algo, 3)
    algo.stop()
    restored = Algorithm.from_checkpoint(path)
    found = weights_after(restored, 3)
    restored.stop()
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


# -- wrong values


class Wrong(Chain):
    """Returns a wrong observation in its fifth step."""

    def step(self, action):
        obs, *rest = super().step(action)
        if self.count == 5 and self.config["value"] == "shape":
            obs = np.zeros(3, np.float32)
        elif self.count == 5:
            obs = np.full(2, np.nan, np.float32)
        return (obs, *rest)


@pytest.mark.processes
@pytest.mark.parametrize("value", ["shape", "nan"])
def test_wrong_observations_in_other_processes_name_the_environment(value):
    algo = config(value=value).environment(Wrong).build_algo()
    for _ in range(2):  # the second error is one of the next samples, not a hang
        with pytest.raises(EnvError, match=r"Environment [0-3] .*Wrong.*env runner [12]"):
            algo.train()
    algo.stop()
