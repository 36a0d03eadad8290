"""Modules with networks in torch.

Files, in the order in which data flows: `observations` (nested observations to vectors),
`encoders`, `memory` (LSTM, GRU) and `attention` (GTrXL), `heads`, `distributions/`, `catalog` (what
fits to spaces), `torch_rl_module` (the base class), `actor_critic` (the default module of policy
gradients), `torch_acting` (acting).

Also: `models`, `policy_weights`, `primitives`.
"""
