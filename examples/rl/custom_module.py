"""A network of your own: a `TorchRLModule` with a value function."""

import torch
from torch import nn

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.core.columns import Columns
from syncline.rllib.core.rl_module.apis import ValueFunctionAPI
from syncline.rllib.core.rl_module.rl_module import RLModuleSpec
from syncline.rllib.core.rl_module.torch import TorchRLModule


class ResidualModule(TorchRLModule, ValueFunctionAPI):
    """Two residual layers that policy and value function share."""

    def setup(self):
        size = self.model_config["size"]
        self.first = nn.Linear(self.observation_space.shape[0], size)
        self.layers = nn.ModuleList([nn.Linear(size, size) for _ in range(2)])
        self.policy = nn.Linear(size, self.action_space.n)
        self.value = nn.Linear(size, 1)

    def embed(self, obs):
        hidden = torch.tanh(self.first(obs))
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden))
        return hidden

    def _forward(self, batch, **kwargs):
        hidden = self.embed(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.policy(hidden), Columns.EMBEDDINGS: hidden}

    def compute_values(self, batch, embeddings=None):
        hidden = self.embed(batch[Columns.OBS]) if embeddings is None else embeddings
        return self.value(hidden).squeeze(-1)


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=6, lr=0.001)
        .rl_module(
            rl_module_spec=RLModuleSpec(module_class=ResidualModule, model_config={"size": 48})
        )
        .debugging(seed=1)
        .build_algo()
    )
    for _ in range(12):
        result = algo.train()
    print(type(algo.get_module()).__name__, result["env_runners"]["episode_return_mean"])
    algo.stop()
