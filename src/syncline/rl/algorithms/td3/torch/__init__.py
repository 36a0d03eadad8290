"""The networks, the acting and the losses of TD3.

Files: `td3_torch_module`, `td3_torch_learner`.
"""
