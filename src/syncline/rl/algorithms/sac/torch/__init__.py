"""The module and the losses of SAC.

Files: `sac_torch_learner`, `sac_torch_module`.
"""
