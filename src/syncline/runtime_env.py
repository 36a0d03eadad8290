"""`syncline.runtime_env`: the public path of `RuntimeEnv`."""

from syncline.core.runtime_env import RuntimeEnv, RuntimeEnvConfig

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]
