"""Exact resume: a restored run ends with the same weights, bit for bit, as one without a stop."""

import tempfile

import numpy as np

from syncline.rllib.algorithms.algorithm import Algorithm
from syncline.rllib.algorithms.ppo import PPOConfig


def build():
    return (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .training(train_batch_size_per_learner=256, minibatch_size=64, num_epochs=4)
        .debugging(seed=7)
        .build_algo()
    )


def weights(algo):
    return np.concatenate(
        [np.asarray(each).ravel() for each in algo.get_weights()["default_policy"].values()]
    )


if __name__ == "__main__":
    undisturbed = build()
    for _ in range(6):
        undisturbed.train()

    first = build()
    for _ in range(3):
        first.train()
    path = first.save_to_path(tempfile.mkdtemp())
    first.stop()

    restored = Algorithm.from_checkpoint(path)
    for _ in range(3):
        restored.train()
    print("equal weights:", np.array_equal(weights(undisturbed), weights(restored)))
    undisturbed.stop()
    restored.stop()
