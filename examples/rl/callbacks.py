"""Callbacks: a metric of your own from every episode, and a hook for every result."""

import numpy as np

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.callbacks.callbacks import RLlibCallback


class PoleAngle(RLlibCallback):
    def on_episode_end(self, *, episode, metrics_logger, **kwargs):
        angles = np.abs(np.stack(episode.get_observations())[:, 2])
        metrics_logger.log_value("pole_angle", float(angles.mean()), window=100)
        metrics_logger.log_value("pole_angle_max", float(angles.max()), reduce="max")


def print_progress(algorithm, result, **kwargs):
    print(f"iteration {result['training_iteration']}: {result['env_runners']['pole_angle']:.4f}")


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=6, lr=0.001)
        .callbacks(PoleAngle, on_train_result=print_progress)
        .build_algo()
    )
    for _ in range(5):
        result = algo.train()
    print("largest angle:", result["env_runners"]["pole_angle_max"])
    algo.stop()
