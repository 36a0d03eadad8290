"""An environment of PettingZoo: rock, paper, scissors against a player who always takes rock.

One agent learns; the module of the other one is a rule without weights.
"""

import numpy as np
from pettingzoo.classic import rps_v2

from syncline.rllib.algorithms.ppo import PPOConfig
from syncline.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from syncline.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from syncline.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from syncline.tune import register_env

ROUNDS, ROCK = 15, 0


class AlwaysRock(RLModule):
    def _forward(self, batch, **kwargs):
        return {"actions": np.full(len(batch["obs"]), ROCK)}


if __name__ == "__main__":
    register_env("rps", lambda _: ParallelPettingZooEnv(rps_v2.parallel_env(max_cycles=ROUNDS)))
    algo = (
        PPOConfig()
        .environment("rps")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=4)
        .multi_agent(
            policies={"learner", "rule"},
            policy_mapping_fn=lambda agent, *_, **__: "learner" if agent == "player_0" else "rule",
            policies_to_train=["learner"],
        )
        .rl_module(
            rl_module_spec=MultiRLModuleSpec(
                rl_module_specs={
                    "learner": RLModuleSpec(),
                    "rule": RLModuleSpec(module_class=AlwaysRock),
                }
            )
        )
        .training(train_batch_size_per_learner=1000, minibatch_size=250, num_epochs=6, lr=0.003)
        .build_algo()
    )
    for _ in range(8):
        result = algo.train()
    won = result["env_runners"]["module_episode_returns_mean"]["learner"]
    print(f"won {won:.1f} of {ROUNDS} rounds more than lost")
    algo.stop()
