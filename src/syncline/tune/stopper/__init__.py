"""Stoppers, which end trials or the whole search early.

    stopper.py   `Stopper`, most implementations, and `make_stopper` for `stop=`
    plateau.py   stoppers for metrics that no longer improve

Stoppers hold no files and no threads and can be pickled between any two calls, so that a restored
search continues with them. The same results in the same order give the same decisions; only
`TimeoutStopper` reads a clock.
"""

from syncline.tune.stopper.plateau import ExperimentPlateauStopper, TrialPlateauStopper
from syncline.tune.stopper.stopper import (
    CombinedStopper,
    DictionaryStopper,
    FunctionStopper,
    MaximumIterationStopper,
    NoopStopper,
    StopCriterion,
    Stopper,
    TimeoutStopper,
    make_stopper,
    unknown_keys_message,
)

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
