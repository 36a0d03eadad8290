"""Learners: from fragments to updated weights.

Files: `torch/flat_parameters` (parameters in one buffer), `torch/adam`, `torch/train_batch` (rows
and sequences, minibatches), `torch/torch_learner` (the update), `group` (one learner in
this process), `torch/remote_learner` and `remote_group` (several learners in other processes).
"""
