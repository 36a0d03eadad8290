"""Modules: networks, their specifications, action distributions, and acting.

Files: `apis`, `default_model_config`, `distribution`, `module_dict`, `numpy_acting`, `rl_module`,
`torch`.
"""
