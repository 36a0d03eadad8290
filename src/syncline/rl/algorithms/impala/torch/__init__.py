"""The loss of IMPALA.

Files: `impala_torch_learner`.
"""
