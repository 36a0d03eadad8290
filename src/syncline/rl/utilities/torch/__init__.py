"""Small functions on tensors.

Files: `tensors_torch`, `frameworks_torch` (imports as programs for RLlib write them).
"""
