"""Serve a trained policy over HTTP: observations in, actions out."""

import json
import tempfile
import urllib.request

import numpy as np

from syncline import serve
from syncline.rllib.algorithms.algorithm import Algorithm
from syncline.rllib.algorithms.ppo import PPOConfig


@serve.deployment
class Policy:
    def __init__(self, path):
        self.algo = Algorithm.from_checkpoint(path)

    async def __call__(self, request):
        obs = np.array((await request.json())["obs"], np.float32)
        return {"action": int(self.algo.compute_single_action(obs, explore=False))}


if __name__ == "__main__":
    config = PPOConfig().environment("CartPole-v1").env_runners(num_env_runners=0)
    config.training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=4)
    algo = config.build_algo()
    algo.train()
    path = algo.save_to_path(tempfile.mkdtemp())
    algo.stop()

    serve.run(Policy.bind(path), route_prefix="/act")
    body = json.dumps({"obs": [0.0, 0.1, 0.02, 0.1]}).encode()
    with urllib.request.urlopen("http://127.0.0.1:8000/act", body) as answer:
        print(json.load(answer))
    serve.shutdown()
