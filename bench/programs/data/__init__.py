"""Data pipelines: the same work with syncline, Ray Data and other libraries."""
