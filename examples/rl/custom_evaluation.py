"""Evaluation of your own: the policy is tested with a weaker and a stronger gravity."""

from syncline.rllib.algorithms.ppo import PPOConfig


def evaluate_on_planets(algorithm, eval_group):
    results, steps = {}, 0
    for gravity in (3.7, 9.8, 24.8):
        eval_group.foreach_env_runner(
            lambda runner, value=gravity: runner.env.set_attr("gravity", value)
        )
        samples = eval_group.sample_episodes(5, explore=False)
        episodes = [episode for sample in samples for episode in sample.episodes]
        results[f"return_at_{gravity}"] = sum(e.episode_return for e in episodes) / len(episodes)
        steps += sum(sample.env_steps for sample in samples)
    return results, steps, steps


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=6, lr=0.001)
        .evaluation(evaluation_interval=5, custom_evaluation_function=evaluate_on_planets)
        .build_algo()
    )
    for _ in range(5):
        result = algo.train()
    print(result["evaluation"])
    algo.stop()
