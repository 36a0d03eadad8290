"""The loss of APPO.

Files: `appo_torch_learner`.
"""
