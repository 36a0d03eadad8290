"""Augmented random search.

Files: `ars`.
"""

from syncline.rl.algorithms.ars.ars import ARS, ARSConfig

__all__ = ["ARS", "ARSConfig"]
