"""Pipelines of data: the same work by syncline, by Ray Data and by other peers."""
