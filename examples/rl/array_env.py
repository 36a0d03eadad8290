"""Environments as arrays: one object steps a batch of 64 cart poles without a Python loop."""

import time

from syncline.rllib.algorithms.ppo import PPOConfig

if __name__ == "__main__":
    for mode in ("sync", "vector_entry_point"):
        algo = (
            PPOConfig()
            .environment("CartPole-v1")
            .env_runners(num_env_runners=0, num_envs_per_env_runner=64, gym_env_vectorize_mode=mode)
            .training(
                train_batch_size_per_learner=4096, minibatch_size=1024, num_epochs=4, lr=0.001
            )
            .rl_module(model_config={"fcnet_hiddens": [64, 64]})
            .build_algo()
        )
        algo.train()
        began = time.perf_counter()
        for _ in range(3):
            result = algo.train()
        took = time.perf_counter() - began
        print(f"{mode}: {3 * 4096 / took:.0f} steps per second", result["time_split"])
        algo.stop()
