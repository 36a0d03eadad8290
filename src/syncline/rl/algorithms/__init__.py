"""Algorithms, a folder each: options and training step in one file, the loss in `torch/`.

Folders: `ppo`, `dqn`, `sac`, `bc`.
"""
