"""Soft actor-critic."""

from syncline.rl.algorithms.sac.sac import SAC, SACConfig

__all__ = ["SAC", "SACConfig"]
