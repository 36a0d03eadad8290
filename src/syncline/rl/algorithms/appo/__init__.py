"""Asynchronous PPO.

Files: `appo`, `torch`.
"""

from syncline.rl.algorithms.appo.appo import APPO, APPOConfig

__all__ = ["APPO", "APPOConfig"]
