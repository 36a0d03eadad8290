"""The name of `ray.tune.tune_config`; it is defined in `config`."""

from syncline.tune.config import TuneConfig

__all__ = ["TuneConfig"]
