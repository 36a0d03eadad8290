"""Behavior cloning.

Files: `bc` (options and training step), `torch/` (the loss).
"""

from syncline.rl.algorithms.bc.bc import BC, BCConfig

__all__ = ["BC", "BCConfig"]
