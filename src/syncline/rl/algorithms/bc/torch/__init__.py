"""The loss of behavior cloning.

Files: `bc_torch_learner`.
"""
