"""The module and the loss of DQN.

Files: `dqn_direct`, `dqn_torch_learner`, `dqn_torch_module`.
"""
