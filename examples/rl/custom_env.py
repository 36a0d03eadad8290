"""An environment of your own: a class, with its options in `env_config`."""

import gymnasium as gym
import numpy as np

from syncline.rllib.algorithms.ppo import PPOConfig


class Corridor(gym.Env):
    """Walk to the right end: each step costs 0.1, the end pays 1."""

    def __init__(self, config):
        self.length = config.get("length", 8)
        self.observation_space = gym.spaces.Box(0.0, self.length, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.steps = 0
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        self.position = max(0, self.position + (1 if action == 1 else -1))
        arrived = self.position >= self.length
        return self.seen(), 1.0 if arrived else -0.1, arrived, self.steps >= 40, {}

    def seen(self):
        return np.array([self.position], np.float32)


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment(Corridor, env_config={"length": 8})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=512, minibatch_size=128, num_epochs=6, lr=0.003)
        .debugging(seed=1)
        .build_algo()
    )
    for _ in range(12):
        result = algo.train()
    print("mean return:", result["env_runners"]["episode_return_mean"], "(best: 0.3)")
    algo.stop()
