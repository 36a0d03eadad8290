"""The parts of AlphaZero that use torch.

Files: `alpha_zero_torch_module`, `alpha_zero_torch_learner`.
"""
