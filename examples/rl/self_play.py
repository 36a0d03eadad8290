"""Self-play: Nim against frozen copies of the learner; a copy is added whenever it wins.

Players take one to three of ten stones in turn; who takes the last one wins.
"""

import zlib

import numpy as np
from gymnasium import spaces

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.core.rl_module.rl_module import RLModuleSpec
from syncline.rllib.env.multi_agent_env import MultiAgentEnv

STONES = 10
OTHER = {"learner": "opponent", "opponent": "learner"}


class Nim(MultiAgentEnv):
    def __init__(self, config=None):
        super().__init__()
        self.agents = self.possible_agents = ["learner", "opponent"]
        space = spaces.Box(0.0, 1.0, (STONES + 1,), np.float32)
        self.observation_spaces = dict.fromkeys(self.agents, space)
        self.action_spaces = dict.fromkeys(self.agents, spaces.Discrete(3))
        self.random = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.stones, self.turn = STONES, self.agents[int(self.random.integers(2))]
        return {self.turn: self.seen()}, {}

    def step(self, actions):
        player, other = self.turn, OTHER[self.turn]
        self.stones -= min(int(actions[player]) + 1, self.stones)
        self.turn, over = other, self.stones == 0
        obs = {other: self.seen(), **({player: self.seen()} if over else {})}
        rewards = {player: 1.0, other: -1.0} if over else {player: 0.0}
        return obs, rewards, {"__all__": over}, {"__all__": False}, {}

    def seen(self):
        return np.eye(STONES + 1, dtype=np.float32)[self.stones]


def against(opponents):
    """Return the mapping of agents to modules: a random opponent for every episode."""

    def module_of(agent_id, episode, **kwargs):
        if agent_id == "learner":
            return "main"
        return opponents[zlib.crc32(episode.id_.encode()) % len(opponents)]

    return module_of


def add_copy_when_winning(algorithm, result, **kwargs):
    won = result["env_runners"]["module_episode_returns_mean"]["main"]
    opponents = sorted(set(algorithm.get_weights()) - {"main"})
    if won < 0.3:
        return
    name = f"opponent_{len(opponents)}"
    algorithm.add_module(
        name,
        RLModuleSpec.from_module(algorithm.get_module("main")),
        new_agent_to_module_mapping_fn=against([*opponents, name]),
    )
    algorithm.set_weights({name: algorithm.get_weights(["main"])["main"]})
    print(f"iteration {result['training_iteration']}: won {won:.2f}, {name} joins the league")


if __name__ == "__main__":
    algo = (
        PPOConfig()
        .environment(Nim)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=8)
        .multi_agent(
            policies={"main", "opponent_0"},
            policy_mapping_fn=against(["opponent_0"]),
            policies_to_train=["main"],
        )
        .training(train_batch_size_per_learner=1000, minibatch_size=250, num_epochs=6, lr=0.003)
        .rl_module(model_config={"fcnet_hiddens": [64, 64]})
        .callbacks(on_train_result=add_copy_when_winning)
        .build_algo()
    )
    for _ in range(12):
        result = algo.train()
    print(result["env_runners"]["module_episode_returns_mean"])
    algo.stop()
