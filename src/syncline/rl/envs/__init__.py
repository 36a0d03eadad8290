"""Environments: creation, vectorization, checks, states, and the multi-agent interface."""
