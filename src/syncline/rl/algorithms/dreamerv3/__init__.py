"""DreamerV3.

Files: `dreamerv3` (options and training step), `sequence_replay`, `torch/`.
"""

from syncline.rl.algorithms.dreamerv3.dreamerv3 import DreamerV3, DreamerV3Config

__all__ = ["DreamerV3", "DreamerV3Config"]
