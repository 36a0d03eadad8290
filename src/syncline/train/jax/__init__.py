"""JAX on a group of workers, which treats their devices as those of one computer.

Files in the order in which data flows through them:
    trainer.py    `JaxTrainer`
    backend.py    `JaxConfig`, its backend, and the worker's side: platform, joining, leaving

Only the workers import JAX, so the program itself need not have it. Not covered: TPUs of several
slices.
"""

from syncline.train.jax.backend import JaxConfig
from syncline.train.jax.trainer import JaxTrainer

__all__ = ["JaxConfig", "JaxTrainer"]
