"""The module and the loss of DQN."""
