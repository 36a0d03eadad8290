"""Custom exploration: a module that sometimes takes random actions, besides sampling them."""

import torch

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from syncline.rllib.core.columns import Columns
from syncline.rllib.core.rl_module.rl_module import RLModuleSpec


class OftenUniform(DefaultPPOTorchRLModule):
    """Mixes the policy with the uniform distribution; log-probabilities stay exact."""

    share = 0.1

    def _forward_exploration(self, batch, **kwargs):
        out = super()._forward_exploration(batch, **kwargs)
        probabilities = torch.softmax(out[Columns.ACTION_DIST_INPUTS], dim=-1)
        uniform = 1.0 / probabilities.shape[-1]
        mixed = (1 - self.share) * probabilities + self.share * uniform
        out[Columns.ACTION_DIST_INPUTS] = mixed.log()
        return out


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=6, lr=0.001)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=OftenUniform))
        .evaluation(evaluation_interval=8, evaluation_config={"explore": False})
        .build_algo()
    )
    for _ in range(8):
        result = algo.train()
    print("exploring:", result["env_runners"]["episode_return_mean"])
    print("greedy:", result["evaluation"]["env_runners"]["episode_return_mean"])
    algo.stop()
