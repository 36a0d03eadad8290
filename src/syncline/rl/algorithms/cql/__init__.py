"""Conservative Q-learning.

Files: `cql` (options), `torch/` (losses).
"""

from syncline.rl.algorithms.cql.cql import CQL, CQLConfig

__all__ = ["CQL", "CQLConfig"]
