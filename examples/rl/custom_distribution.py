"""An action distribution of your own: actions that are not allowed have probability 0.

The environment offers three of four actions in each state; the module adds the mask of the
observation to the logits, so sampling, log-probabilities and entropy leave the others out.
"""

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.core.columns import Columns
from syncline.rllib.core.rl_module.apis import ValueFunctionAPI
from syncline.rllib.core.rl_module.rl_module import RLModuleSpec
from syncline.rllib.core.rl_module.torch import TorchRLModule
from syncline.rllib.models.torch.torch_distributions import TorchCategorical

ACTIONS = 4


class Doors(gym.Env):
    """One of four doors is locked; opening it is an error, the door after it pays 1."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (2 * ACTIONS,), np.float32)
        self.action_space = gym.spaces.Discrete(ACTIONS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.locked = 0, 0
        return self.seen(), {}

    def step(self, action):
        assert action != self.locked, "a masked action was taken"
        reward = float(action == (self.locked + 1) % ACTIONS)
        self.steps, self.locked = self.steps + 1, int(self.np_random.integers(ACTIONS))
        return self.seen(), reward, False, self.steps >= 10, {}

    def seen(self):
        locked = np.eye(ACTIONS, dtype=np.float32)[self.locked]
        return np.concatenate([locked, 1.0 - locked])


class MaskedCategorical(TorchCategorical):
    """Inputs: logits, then the mask; 1 where an action is allowed."""

    @classmethod
    def from_logits(cls, logits, **kwargs):
        values, mask = logits.chunk(2, dim=-1)
        return super().from_logits(torch.where(mask > 0.5, values, -1e9), **kwargs)


class MaskedModule(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        self.action_dist_cls = MaskedCategorical
        size = self.observation_space.shape[0]
        self.policy = nn.Sequential(nn.Linear(size, 32), nn.Tanh(), nn.Linear(32, ACTIONS))
        self.value = nn.Sequential(nn.Linear(size, 32), nn.Tanh(), nn.Linear(32, 1))

    def _forward(self, batch, **kwargs):
        obs = batch[Columns.OBS]
        return {Columns.ACTION_DIST_INPUTS: torch.cat([self.policy(obs), obs[..., ACTIONS:]], -1)}

    def compute_values(self, batch, embeddings=None):
        return self.value(batch[Columns.OBS]).squeeze(-1)


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment(Doors)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=512, minibatch_size=128, num_epochs=6, lr=0.005)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=MaskedModule))
        .build_algo()
    )
    for _ in range(10):
        result = algo.train()
    print("mean return:", result["env_runners"]["episode_return_mean"], "of 10")
    algo.stop()
