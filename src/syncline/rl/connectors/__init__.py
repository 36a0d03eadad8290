"""Connectors: pieces between environments, modules and learners.

Files: `connector` (a piece, and helpers for batches), `pipeline` (pieces in a row).
"""
