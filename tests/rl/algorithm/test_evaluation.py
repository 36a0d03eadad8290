"""Evaluation: durations, a program's own function, and in parallel to training."""

import threading

import gymnasium as gym
import numpy as np
import pytest

from syncline.exceptions import RayActorError
from syncline.rl.algorithm.evaluation import Evaluator, ParallelEvaluation
from syncline.rl.algorithms.ppo import PPOConfig
from syncline.rl.runners.sample import EpisodeResult, Sample


class Counter(gym.Env):
    """Episodes of 7 steps with reward 1."""

    observation_space = gym.spaces.Box(0, 10, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config=None):
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t >= 7, False, {}


def config(**evaluation):
    return (
        PPOConfig()
        .environment(Counter)
        .env_runners(num_env_runners=0)
        .training(train_batch_size_per_learner=20, minibatch_size=20, num_epochs=1)
        .rl_module(model_config={"fcnet_hiddens": [4]})
        .evaluation(evaluation_interval=1, **evaluation)
        .debugging(seed=1)
    )


class FakeGroup:
    """Samples of 10 steps or of whole episodes, without environments."""

    num_remote_env_runners = 2

    def __init__(self, failures=0):
        self.calls = []
        self.failures = failures

    def _sample(self, name, amount):
        self.calls.append((name, amount))
        if self.failures:
            self.failures -= 1
            raise RayActorError("gone")
        episode = EpisodeResult(env=0, episode_return=1.0, length=10, duration_s=1.0)
        return [Sample(fragments={}, episodes=[episode], env_steps=10)]

    def sample_steps(self, steps):
        return self._sample("steps", steps)

    def sample_episodes(self, count):
        return self._sample("episodes", count)

    def foreach_env_runner(self, method):
        self.calls.append((method, None))


def test_steps_are_sampled_after_a_reset():
    algo = config(evaluation_duration=30, evaluation_duration_unit="timesteps").build_algo()
    result = algo.evaluate()["env_runners"]
    assert result["num_env_steps_sampled"] == 30
    assert result["num_episodes"] == 4
    assert algo.evaluate()["env_runners"]["num_episodes"] == 4
    algo.stop()


def test_without_reset_episodes_go_on_in_the_next_evaluation():
    algo = config(
        evaluation_duration=30,
        evaluation_duration_unit="timesteps",
        evaluation_force_reset_envs_before_iteration=False,
    ).build_algo()
    counts = [algo.evaluate()["env_runners"]["num_episodes"] for _ in range(7)]
    assert sum(counts) == 30
    assert set(counts) == {4, 5}
    algo.stop()


def test_a_custom_function_must_return_three_values():
    algo = config(custom_evaluation_function=lambda algo, group: ({"mine": 3}, 1, 1)).build_algo()
    assert algo.train()["evaluation"] == {"mine": 3}
    algo.stop()
    algo = config(custom_evaluation_function=lambda algo, group: {"mine": 3}).build_algo()
    with pytest.raises(ValueError, match="must return .results, environment steps, agent steps"):
        algo.evaluate()
    algo.stop()


def auto(unit):
    return config(
        evaluation_num_env_runners=1,
        evaluation_parallel_to_training=True,
        evaluation_duration="auto",
        evaluation_duration_unit=unit,
    )


def test_auto_duration_lasts_until_training_is_done_and_samples_at_least_once():
    group, rounds = FakeGroup(), iter([True, True, True, True, True, False])
    result = Evaluator(auto("timesteps")).run(group, algorithm=None, goes_on=lambda: next(rounds))
    assert group.calls == [
        ("reset", None),
        *[("steps", count) for count in (100, 200, 400, 800, 1600, 2000)],
    ]
    assert result["env_runners"]["num_episodes"] == 6
    group = FakeGroup()
    Evaluator(auto("episodes")).run(group, algorithm=None)
    assert group.calls == [("episodes", 2)]


def test_failed_evaluations_are_skipped_until_the_limit():
    evaluator = Evaluator(config(evaluation_error_after_n_consecutive_skips=3))
    for _ in range(2):
        found = evaluator.run(FakeGroup(failures=1), algorithm=None)
        assert found == {"env_runners": {}}
    with pytest.raises(RayActorError):
        evaluator.run(FakeGroup(failures=1), algorithm=None)


def test_a_parallel_evaluation_raises_its_error_when_it_is_awaited():
    class Broken(FakeGroup):
        def sample_episodes(self, count):
            raise ZeroDivisionError

    parallel = ParallelEvaluation(Evaluator(config()), Broken(), algorithm=None)
    with pytest.raises(ZeroDivisionError):
        parallel.results()


def test_a_parallel_evaluation_ends_with_training():
    asked = threading.Event()

    class Endless(FakeGroup):
        def sample_episodes(self, count):
            asked.set()
            return super().sample_episodes(count)

    parallel = ParallelEvaluation(Evaluator(auto("episodes")), Endless(), algorithm=None)
    assert asked.wait(30)
    assert parallel.results()["env_runners"]["num_episodes"] >= 1


@pytest.mark.processes
@pytest.mark.parametrize("duration", [5, "auto"])
def test_evaluation_beside_training(duration):
    settings = config(
        evaluation_num_env_runners=2,
        evaluation_parallel_to_training=True,
        evaluation_duration=duration,
        evaluation_config={"explore": False},
    )
    algo = settings.build_algo()
    for _ in range(3):
        result = algo.train()
    evaluated = result["evaluation"]["env_runners"]
    assert evaluated["episode_return_mean"] == 7.0
    assert evaluated["num_episodes"] == 5 if duration == 5 else evaluated["num_episodes"] >= 2
    algo.stop()
