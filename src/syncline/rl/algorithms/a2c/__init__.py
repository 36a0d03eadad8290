"""Advantage actor-critic.

Files: `a2c`, `torch`.
"""

from syncline.rl.algorithms.a2c.a2c import A2C, A2CConfig

__all__ = ["A2C", "A2CConfig"]
