"""Connectors that compute with torch.

Files: `tensors_torch` (arrays to tensors and back), `actions_torch` (actions from distributions),
`advantages_torch` (generalized advantage estimation).
"""
