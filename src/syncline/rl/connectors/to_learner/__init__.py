"""Connectors from episodes to learners.

Files: `train_columns` (default pieces: columns of a training batch, returns).
"""
