"""The loss of PPO.

Files: `ppo_torch_learner`.
"""
