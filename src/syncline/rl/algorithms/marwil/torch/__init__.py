"""The loss of MARWIL.

Files: `marwil_torch_learner`.
"""
