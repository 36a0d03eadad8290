"""`syncline.runtime_env.RuntimeEnv`, where programs expect it."""

from syncline.core.runtime_env import RuntimeEnv

__all__ = ["RuntimeEnv"]
