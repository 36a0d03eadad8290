"""The names that programs import from here; see `syncline.train.jax`."""

from syncline.train.jax import JaxConfig, JaxTrainer

__all__ = ["JaxConfig", "JaxTrainer"]
