"""Connectors: transformations between environments, modules and learners.

Files: `connector` (the base class, and helpers for batches), `pipeline` (a sequence of connectors),
`agent_spaces` (spaces of one agent or of several), `to_module`, `to_env` and `to_learner` (the
connectors), `torch` (connectors that need torch), `defaults` (the pipelines of a configuration).
"""
