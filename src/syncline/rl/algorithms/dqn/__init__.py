"""Deep Q-networks.

Files: `dqn`, `torch`.
"""

from syncline.rl.algorithms.dqn.dqn import DQN, DQNConfig

__all__ = ["DQN", "DQNConfig"]
