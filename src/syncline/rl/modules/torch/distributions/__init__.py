"""Action distributions: `base`, `categorical`, `gaussian`, `deterministic`, `mixture`, `multi`
(nested).

They hold tensors and compute directly: objects of `torch.distributions` cost as much time as a
small network.
"""
