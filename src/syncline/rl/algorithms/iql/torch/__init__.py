"""The networks and the losses of IQL.

Files: `iql_torch_learner` (with the module).
"""
