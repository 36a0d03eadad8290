"""Connectors from episodes to learners.

Files: `train_columns` (default connectors: columns of a training batch, returns).
"""
