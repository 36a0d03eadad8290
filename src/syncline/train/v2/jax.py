"""Names of `syncline.train.jax` under a module path of Ray."""

from syncline.train.jax import JaxConfig, JaxTrainer

__all__ = ["JaxConfig", "JaxTrainer"]
