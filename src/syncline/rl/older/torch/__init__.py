"""The parts of the older API that use torch.

Files: `model_v2` (networks and their inputs), `networks` (default networks, layers), `action_dists`
(distributions), `model_catalog` (registry of both), `model_modules` (networks as modules).
"""
