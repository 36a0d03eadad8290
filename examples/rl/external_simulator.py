"""An external simulator: a separate program connects, requests actions and reports its episodes.

The algorithm has no environment, only its spaces. The simulator needs no algorithm, only the
address; here it is this file again, in another process.
"""

import subprocess
import sys

import gymnasium as gym

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.env.external.env_runner_server_for_external_inference import (
    EnvRunnerServerForExternalInference,
)
from syncline.rllib.env.policy_client import PolicyClient


def simulate(address):
    env = gym.make("CartPole-v1")
    client = PolicyClient(address, inference_mode="remote")  # "local" computes actions itself
    try:
        while True:
            episode = client.start_episode()
            obs, _ = env.reset()
            terminated = truncated = False
            while not (terminated or truncated):
                action = client.get_action(episode, obs)
                obs, reward, terminated, truncated, _ = env.step(int(action))
                client.log_returns(episode, reward)
            client.end_episode(episode, obs, truncated=truncated)
    except ConnectionError:
        pass  # the training ended


def train():
    env = gym.make("CartPole-v1")
    algo = (
        PPOConfig()
        .environment(
            observation_space=env.observation_space,
            action_space=env.action_space,
            env_config={"port": 0},  # any free port
        )
        .env_runners(num_env_runners=0, env_runner_cls=EnvRunnerServerForExternalInference)
        .training(train_batch_size_per_learner=512, minibatch_size=128, num_epochs=6, lr=0.003)
        .build_algo()
    )
    host, port = algo.env_runner.server.address
    simulator = subprocess.Popen([sys.executable, __file__, f"{host}:{port}"])
    for _ in range(8):
        result = algo.train()
    print(f"mean return: {result['env_runners']['episode_return_mean']:.0f}")
    algo.stop()
    simulator.wait(timeout=60)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        simulate(sys.argv[1])
    else:
        train()
