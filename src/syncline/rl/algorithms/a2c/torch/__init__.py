"""The loss of A2C.

Files: `a2c_torch_learner`.
"""
