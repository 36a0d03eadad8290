"""Proximal policy optimization.

Files: `ppo`, `torch`.
"""

from syncline.rl.algorithms.ppo.ppo import PPO, PPOConfig

__all__ = ["PPO", "PPOConfig"]
