"""Truncated quantile critics.

Files: `tqc` (options), `torch/` (critics and losses).
"""

from syncline.rl.algorithms.tqc.tqc import TQC, TQCConfig

__all__ = ["TQC", "TQCConfig"]
