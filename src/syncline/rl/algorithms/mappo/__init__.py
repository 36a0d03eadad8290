"""Multi-agent PPO with a central critic.

Files: `mappo`, `central_state` (the state in observations), `torch`.
"""

from syncline.rl.algorithms.mappo.mappo import MAPPO, MAPPOConfig

__all__ = ["MAPPO", "MAPPOConfig"]
