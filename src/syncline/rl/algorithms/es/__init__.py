"""Evolution strategies.

Files: `es`, `evolution` (what ES and ARS share), `population_env_runner`, `torch`.
"""

from syncline.rl.algorithms.es.es import ES, ESConfig

__all__ = ["ES", "ESConfig"]
