"""An optimizer of your own: RMSprop for the network, with a learning rate that falls."""

import torch

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner


class RMSpropLearner(PPOTorchLearner):
    def configure_optimizers_for_module(self, module_id, config=None):
        params = list(self.get_parameters(self.module[module_id]))
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.RMSprop(params, alpha=0.95),
            params=params,
            lr_or_lr_schedule=[[0, 0.001], [20_000, 0.0001]],  # [environment steps, value]
        )


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=6)
        .learners(learner_class=RMSpropLearner)
        .build_algo()
    )
    for _ in range(5):
        result = algo.train()
        print(result["learners"]["default_policy"]["default_optimizer_learning_rate"])
    algo.stop()
