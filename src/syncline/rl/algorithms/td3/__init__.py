"""Twin delayed deep deterministic policy gradients, and DDPG.

Files: `td3` (options), `torch/` (networks, acting and losses).
"""

from syncline.rl.algorithms.td3.td3 import DDPG, TD3, DDPGConfig, TD3Config

__all__ = ["DDPG", "TD3", "DDPGConfig", "TD3Config"]
