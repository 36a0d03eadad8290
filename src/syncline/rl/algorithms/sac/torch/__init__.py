"""The module and the losses of SAC.

Files: `critics` (shared with other algorithms), `sac_direct`, `sac_torch_module`,
`sac_torch_learner`.
"""
