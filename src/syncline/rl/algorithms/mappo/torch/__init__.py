"""The parts of MAPPO that use torch.

Files: `central_critic_torch_module`.
"""
