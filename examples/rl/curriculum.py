"""A curriculum: the corridor grows when the agent reaches its end."""

import gymnasium as gym
import numpy as np

from syncline.rllib.algorithms.ppo import PPOConfig


class Corridor(gym.Env):
    """Walk to the right end, which `set_task` moves away."""

    def __init__(self, config=None):
        self.length = 2
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def set_task(self, length):
        self.length = length

    def reset(self, *, seed=None, options=None):
        self.position = self.steps = 0
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        self.position = max(0, self.position + (1 if action == 1 else -1))
        arrived = self.position >= self.length
        return self.seen(), float(arrived), arrived, self.steps >= 4 * self.length, {}

    def seen(self):
        return np.array([self.position / 20, self.length / 20], np.float32)


def grow(algorithm, result, **kwargs):
    """Give all environments a longer corridor once 9 of 10 episodes arrive."""
    if result["env_runners"]["episode_return_mean"] < 0.9:
        return
    algorithm.length = getattr(algorithm, "length", 2) + 2
    algorithm.env_runner_group.foreach_env_runner(
        lambda runner, length=algorithm.length: runner.env.call("set_task", length)
    )
    print(f"iteration {result['training_iteration']}: corridors of {algorithm.length}")


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment(Corridor)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=512, minibatch_size=128, num_epochs=6, lr=0.003)
        .reporting(metrics_num_episodes_for_smoothing=20)
        .callbacks(on_train_result=grow)
        .build_algo()
    )
    for _ in range(12):
        algo.train()
    print("length at the end:", getattr(algo, "length", 2))
    algo.stop()
