"""Reinforcement learning, with the same hyperparameters in all libraries and one thread.

- `settings.py`     hyperparameters and what is measured
- `ppo.py`          PPO: steps per second, or the time until CartPole is solved
- `single_file.py`  PPO in one file of plain torch, in CleanRL's style: a lower limit of overhead
- `two_runners.py`  PPO with two env runners beside one process
- `off_policy.py`   DQN and SAC: updates per second
- `first_step.py`   from the start of the process to the end of the first training step
- `slow_envs.py`    IMPALA with slow environments: whether runners or learner wait
"""
