"""Stoppers, which end trials or the whole search early.

    stopper.py             base class `Stopper`, and `CombinedStopper`
    noop.py, function_stopper.py, maximum_iteration.py, timeout.py, trial_plateau.py,
    experiment_plateau.py  one stopper each
    make.py                `make_stopper` for `stop=`, and `DictionaryStopper`

Stoppers hold no files and no threads and can be pickled between any two calls, so that a restored
search continues with them. The same results in the same order give the same decisions; only
`TimeoutStopper` reads a clock.
"""

from syncline.tune.stopper.experiment_plateau import ExperimentPlateauStopper
from syncline.tune.stopper.function_stopper import FunctionStopper
from syncline.tune.stopper.make import (
    DictionaryStopper,
    StopCriterion,
    make_stopper,
    unknown_keys_message,
)
from syncline.tune.stopper.maximum_iteration import MaximumIterationStopper
from syncline.tune.stopper.noop import NoopStopper
from syncline.tune.stopper.stopper import CombinedStopper, Stopper
from syncline.tune.stopper.timeout import TimeoutStopper
from syncline.tune.stopper.trial_plateau import TrialPlateauStopper

__all__ = [
    "CombinedStopper",
    "DictionaryStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "StopCriterion",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
    "make_stopper",
    "unknown_keys_message",
]
