"""The parts of learners that use torch.

Files: `actor_critic_learner`, `adam`, `dense_stack`, `flat_parameters`, `learner_connectors`,
`optimizers`, `remote_learner`, `target_networks`, `torch_learner`, `train_batch`.
"""
