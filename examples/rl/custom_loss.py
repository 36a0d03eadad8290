"""A loss of your own: PPO's loss and a penalty on large logits, which is logged."""

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from syncline.rllib.core.columns import Columns


class RegularizedLearner(PPOTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        penalty = fwd_out[Columns.ACTION_DIST_INPUTS].square().mean()
        self.metrics.log_value((module_id, "logits_penalty"), penalty, window=1)
        return loss + config.learner_config_dict["penalty"] * penalty


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=6, lr=0.001)
        .learners(learner_class=RegularizedLearner, learner_config_dict={"penalty": 0.001})
        .build_algo()
    )
    for _ in range(5):
        result = algo.train()
    print("penalty:", result["learners"]["default_policy"]["logits_penalty"])
    algo.stop()
