"""Implicit Q-learning.

Files: `iql` (options), `torch/` (networks and losses).
"""

from syncline.rl.algorithms.iql.iql import IQL, IQLConfig

__all__ = ["IQL", "IQLConfig"]
