"""Modules with networks in torch.

Files, in the order in which data flows: `observations` (nested observations to vectors),
`encoders`, `memory` (LSTM, GRU) and `attention` (GTrXL), `heads`, `distributions/`, `catalog` (the
choice of parts by spaces), `torch_rl_module` (the base class), `actor_critic` (the default module
of policy gradients) and `policy_only` (that of behavior cloning), `torch_acting` (acting),
`policy_weights` (for acting in NumPy) and `export` (ONNX and TorchScript). `models` and
`primitives` are the base classes of networks and their layers.
"""
