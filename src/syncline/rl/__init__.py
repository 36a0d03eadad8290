"""Reinforcement learning: algorithms, environments, modules, learners."""
