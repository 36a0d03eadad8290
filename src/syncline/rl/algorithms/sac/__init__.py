"""Soft actor-critic.

Files: `sac`, `torch`.
"""

from syncline.rl.algorithms.sac.sac import SAC, SACConfig

__all__ = ["SAC", "SACConfig"]
