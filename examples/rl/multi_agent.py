"""Several agents: two cart poles share an environment; each has its own policy."""

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.env.multi_agent_env import make_multi_agent

if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment(make_multi_agent("CartPole-v1"), env_config={"num_agents": 2})
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .multi_agent(
            policies={"left", "right"},
            policy_mapping_fn=lambda agent_id, episode, **kwargs: ("left", "right")[agent_id],
        )
        .training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=6, lr=0.001)
        .build_algo()
    )
    for _ in range(6):
        result = algo.train()
    print(result["env_runners"]["module_episode_returns_mean"])
    algo.stop()
