"""Deep Q-networks."""

from syncline.rl.algorithms.dqn.dqn import DQN, DQNConfig

__all__ = ["DQN", "DQNConfig"]
