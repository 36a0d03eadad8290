"""QMIX, VDN and independent Q-learners for teams.

Files: `qmix`, `episode_store` (replay of whole episodes), `torch`.
"""

from syncline.rl.algorithms.qmix.qmix import VDN, QMix, QMixConfig, VDNConfig

__all__ = ["VDN", "QMix", "QMixConfig", "VDNConfig"]
