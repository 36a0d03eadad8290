"""Action distributions: `base`, `categorical`, `gaussian` (also deterministic), `multi` (nested).

They hold tensors and compute directly: objects of `torch.distributions` cost as much time as a
small network.
"""
