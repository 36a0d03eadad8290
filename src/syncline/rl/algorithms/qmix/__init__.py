"""QMIX, VDN and independent Q-learners for teams.

Files: `qmix`, `episode_store` (replay of whole episodes), `torch`.
"""

from syncline.rl.algorithms.qmix.qmix import QMix, QMixConfig

__all__ = ["QMix", "QMixConfig"]
