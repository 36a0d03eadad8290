"""The loss of PPO."""
