"""When trials, or the whole search, end early: the base classes, the ready-made stoppers, and
`make_stopper` for what programs give.

Stoppers hold no files and no threads, and can be pickled between any two calls: a search that is
restored goes on with them. Given the same results in the same order they decide the same; only
`TimeoutStopper` looks at a clock.
"""

from syncline.tune.stopper.dictionary import DictionaryStopper
from syncline.tune.stopper.experiment_plateau import ExperimentPlateauStopper
from syncline.tune.stopper.function_stopper import FunctionStopper
from syncline.tune.stopper.make import StopCriterion, make_stopper, unknown_keys_message
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
