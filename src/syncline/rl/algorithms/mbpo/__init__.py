"""MBPO.

Files: `mbpo` (options and training step), `transitions` (real and imagined steps), `torch/`.
"""

from syncline.rl.algorithms.mbpo.mbpo import MBPO, MBPOConfig

__all__ = ["MBPO", "MBPOConfig"]
