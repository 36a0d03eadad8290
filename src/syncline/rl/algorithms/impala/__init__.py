"""IMPALA.

Files: `impala`, `torch`.
"""

from syncline.rl.algorithms.impala.impala import IMPALA, IMPALAConfig

Impala = IMPALA
ImpalaConfig = IMPALAConfig

__all__ = ["IMPALA", "IMPALAConfig", "Impala", "ImpalaConfig"]
