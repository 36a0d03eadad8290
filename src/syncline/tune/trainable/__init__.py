"""Trainables: `trainable_state` (trial, clock, counters, checkpoint files), `trainable` (classes),
`session` (`report` inside a function), `function_trainable` (functions), `util` (parameters and
resources), `trainer_trainable` (trainers as trials).
"""

from syncline.tune.trainable.function_trainable import FunctionTrainable, wrap_function
from syncline.tune.trainable.trainable import Trainable
from syncline.tune.trainable.util import with_parameters, with_resources

__all__ = ["FunctionTrainable", "Trainable", "with_parameters", "with_resources", "wrap_function"]
