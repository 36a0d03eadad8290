"""Action distributions: `base`, `categorical`, `gaussian`, `deterministic`, `mixture`, `multi`
(nested).

They compute directly on tensors, because objects of `torch.distributions` take as much time as a
small network.
"""
