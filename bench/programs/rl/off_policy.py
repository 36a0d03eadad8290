"""Off-policy learning in one process with one thread: an update after every environment step.

DQN on CartPole-v1 (64 rows, two layers of 64) and SAC on Pendulum-v1 (256 rows, two layers of 256,
twin critics), with the same updates per step and hyperparameters. Values: updates per CPU second
and per wall second, after a warm-up.

Libraries: `syncline` and `stable_baselines3`.
"""

import argparse
import time
from collections.abc import Callable

import torch

from bench.programs import common

STARTS = 500
"""Environment steps with random actions before the first update."""
UPDATES = {"dqn": 4000, "sac": 1000}
WARM_UP = {"dqn": 1000, "sac": 200}
SEED = 1

Train = Callable[[int], None]
"""Takes so many environment steps, with an update after each."""


def syncline_dqn() -> Train:
    """Return DQN of this library."""
    from syncline.rllib.algorithms.dqn import DQNConfig
    from syncline.rllib.core.rl_module.default_model_config import DefaultModelConfig

    config = (
        DQNConfig()
        .environment("CartPole-v1")
        .env_runners(rollout_fragment_length=1)
        .training(
            lr=1e-3,
            train_batch_size_per_learner=64,
            grad_clip=10.0,
            double_q=False,
            dueling=False,
            epsilon=[(0, 1.0), (5000, 0.05)],
            target_network_update_freq=500,
            num_steps_sampled_before_learning_starts=STARTS,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="relu"))
    )
    return _syncline(config)


def syncline_sac() -> Train:
    """Return SAC of this library."""
    from syncline.rllib.algorithms.sac import SACConfig
    from syncline.rllib.core.rl_module.default_model_config import DefaultModelConfig

    config = (
        SACConfig()
        .environment("Pendulum-v1")
        .env_runners(rollout_fragment_length=1)
        .training(
            actor_lr=3e-4,
            critic_lr=3e-4,
            alpha_lr=3e-4,
            train_batch_size_per_learner=256,
            num_steps_sampled_before_learning_starts=STARTS,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
        )
        .rl_module(
            model_config=DefaultModelConfig(fcnet_hiddens=[256, 256], fcnet_activation="relu")
        )
    )
    return _syncline(config)


def _syncline(config) -> Train:
    config.debugging(seed=SEED).reporting(
        min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=100
    )
    algorithm = config.build_algo()

    def train(steps: int) -> None:
        for _ in range(steps // 100):
            algorithm.train()

    return train


def sb3_dqn() -> Train:
    """Return DQN of Stable-Baselines3."""
    from stable_baselines3 import DQN

    return _sb3(
        DQN(
            "MlpPolicy",
            "CartPole-v1",
            learning_rate=1e-3,
            batch_size=64,
            buffer_size=50_000,
            learning_starts=STARTS,
            train_freq=1,
            gradient_steps=1,
            target_update_interval=500,
            exploration_fraction=0.5,
            max_grad_norm=10.0,
            policy_kwargs={"net_arch": [64, 64]},
            seed=SEED,
            device="cpu",
        )
    )


def sb3_sac() -> Train:
    """Return SAC of Stable-Baselines3."""
    from stable_baselines3 import SAC

    return _sb3(
        SAC(
            "MlpPolicy",
            "Pendulum-v1",
            learning_rate=3e-4,
            batch_size=256,
            buffer_size=50_000,
            learning_starts=STARTS,
            policy_kwargs={"net_arch": [256, 256]},
            seed=SEED,
            device="cpu",
        )
    )


def _sb3(model) -> Train:
    def train(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    return train


PROGRAMS = {
    "syncline": {"dqn": syncline_dqn, "sac": syncline_sac},
    "stable_baselines3": {"dqn": sb3_dqn, "sac": sb3_sac},
}


def measured(name: str, train: Train) -> common.Values:
    """Return the updates per second of CPU and of wall time."""
    train(STARTS)
    train(WARM_UP[name])
    cpu, wall = time.process_time(), time.perf_counter()
    train(UPDATES[name])
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {
        f"{name}_updates_per_cpu_s": UPDATES[name] / cpu,
        f"{name}_updates_per_s": UPDATES[name] / wall,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=PROGRAMS)
    parser.add_argument("--out", required=True)
    parser.add_argument("--algorithms", nargs="*", default=list(UPDATES), choices=list(UPDATES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    values: common.Values = {}
    for name in options.algorithms:
        values |= measured(name, PROGRAMS[options.library][name]())
    common.write(options.out, values)
