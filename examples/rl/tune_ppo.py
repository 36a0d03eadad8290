"""A search: two learning rates with two seeds each, on all CPUs."""

from syncline import tune
from syncline.rllib.algorithms.ppo import PPOConfig

if __name__ == "__main__":
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(
            train_batch_size_per_learner=1024,
            minibatch_size=256,
            num_epochs=6,
            lr=tune.grid_search([0.0001, 0.001]),
        )
        .debugging(seed=tune.grid_search([1, 2]))
    )
    results = tune.Tuner(
        "PPO",
        param_space=config,
        tune_config=tune.TuneConfig(metric="env_runners/episode_return_mean", mode="max"),
        run_config=tune.RunConfig(stop={"training_iteration": 8}),
    ).fit()
    best = results.get_best_result()
    print("best learning rate:", best.config["lr"])
