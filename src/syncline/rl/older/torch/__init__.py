"""The parts of the older API that use torch.

Files: `model_v2` (networks and their inputs), `networks` (default ones, layers), `action_dists`
(distributions), `model_catalog` (names of both), `model_modules` (networks as modules).
"""
