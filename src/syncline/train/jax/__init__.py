"""JAX on a group of workers, which sees their devices as those of one computer.

Files in the order in which a run meets them:
    trainer.py      `JaxTrainer`: what the program makes and fits
    config.py       `JaxConfig`, and the backend that connects the workers
    processes.py    the worker's side of that: platform, joining, leaving

JAX is imported by the workers only, so the program itself need not have it. Not covered: TPUs of
several slices.
"""

from syncline.train.jax.config import JaxConfig
from syncline.train.jax.trainer import JaxTrainer

__all__ = ["JaxConfig", "JaxTrainer"]
