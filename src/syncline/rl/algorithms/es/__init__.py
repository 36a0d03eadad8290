"""Evolution strategies.

Files: `es`, `evolution` (common code of ES and ARS), `population_env_runner`, `torch`.
"""

from syncline.rl.algorithms.es.es import ES, ESConfig

__all__ = ["ES", "ESConfig"]
