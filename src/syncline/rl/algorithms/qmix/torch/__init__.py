"""The parts of QMIX that use torch.

Files: `mixers_torch`, `qmix_torch_module`, `qmix_torch_learner`.
"""
