"""Utility functions on tensors.

Files: `tensors_torch`, `frameworks_torch` (import helpers of RLlib).
"""
