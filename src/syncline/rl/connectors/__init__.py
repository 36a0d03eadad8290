"""Connectors: pieces between environments, modules and learners.

Files: `connector` (a piece, and helpers for batches), `pipeline` (pieces in a row), `agent_spaces`
(spaces of one agent or of several), `to_module`, `to_env` and `to_learner` (the pieces), `torch`
(those that need torch), `defaults` (the pipelines of a configuration).
"""
