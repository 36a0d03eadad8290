"""Connectors: observations are normalized, and a piece of your own adds their change."""

import gymnasium as gym
import numpy as np

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.connectors.connector_v2 import ConnectorV2
from syncline.rllib.connectors.env_to_module import MeanStdFilter


class AddChange(ConnectorV2):
    """Appends the difference to the observation before."""

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        size = input_observation_space.shape[0]
        return gym.spaces.Box(-np.inf, np.inf, (2 * size,), np.float32)

    def __call__(self, *, rl_module, batch, episodes, **kwargs):
        for episode in self.single_agent_episode_iterator(episodes):
            now = np.asarray(episode.get_observations(-1), np.float32)
            before = now
            if len(episode) > 0:
                before = np.asarray(episode.get_observations(-2), np.float32)[: len(now)]
            changed = np.concatenate([now, now - before])
            episode.set_observations(at_indices=-1, new_data=changed)
            episode.observation_space = self.observation_space
        return batch


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_env_runners=0,
            num_envs_per_env_runner=8,
            env_to_module_connector=lambda env, spaces, device: [AddChange(), MeanStdFilter()],
        )
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=6, lr=0.001)
        .build_algo()
    )
    for _ in range(6):
        result = algo.train()
    print("the module sees", algo.get_module().observation_space.shape)
    print("mean return:", result["env_runners"]["episode_return_mean"])
    algo.stop()
