"""Monotonic advantage re-weighted imitation learning.

Files: `marwil` (options), `torch/` (the loss).
"""

from syncline.rl.algorithms.marwil.marwil import MARWIL, MARWILConfig

__all__ = ["MARWIL", "MARWILConfig"]
