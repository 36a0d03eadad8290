"""The parts of ES and ARS that use torch.

Files: `evolution_torch_learner`, `evolution_torch_module`, `population_torch`.
"""
