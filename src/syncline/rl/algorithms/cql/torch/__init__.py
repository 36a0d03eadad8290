"""The losses of CQL.

Files: `cql_torch_learner`.
"""
