"""Schedulers, which decide whether trials continue, pause or stop.

    trial_scheduler.py             interfaces of schedulers and controller; FIFO; base for metrics
    async_hyperband.py             ASHA: successive halving without barriers
    hyperband.py                   HyperBand: brackets with barriers
    hb_bohb.py                     HyperBand for the searcher `TuneBOHB`
    median_stopping_rule.py        stop trials below the median of the others
    population.py                  trials of population based training, by score and progress
    explore.py                     mutation of configurations
    pbt.py                         population based training
    pbt_replay.py                  policy files, and a trial that repeats one
    bandit.py                      Gaussian process model of past gains
    pb2.py                         population based training with this model
    resource_changing_scheduler.py changes of trials' resources, around another scheduler

Not covered: execution of the decisions (`syncline.tune.controller`) and the choice of
configurations (`syncline.tune.search`).
"""

from __future__ import annotations

import inspect
from typing import Any

from syncline.suggestions import did_you_mean
from syncline.tune.schedulers.async_hyperband import ASHAScheduler, AsyncHyperBandScheduler
from syncline.tune.schedulers.hb_bohb import HyperBandForBOHB
from syncline.tune.schedulers.hyperband import HyperBandScheduler
from syncline.tune.schedulers.median_stopping_rule import MedianStoppingRule
from syncline.tune.schedulers.pb2 import PB2
from syncline.tune.schedulers.pbt import PopulationBasedTraining
from syncline.tune.schedulers.pbt_replay import PopulationBasedTrainingReplay
from syncline.tune.schedulers.resource_changing_scheduler import ResourceChangingScheduler
from syncline.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = [
    "PB2",
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "ResourceChangingScheduler",
    "TrialScheduler",
    "create_scheduler",
]

_BY_NAME: dict[str, type[TrialScheduler]] = {
    "fifo": FIFOScheduler,
    "asha": AsyncHyperBandScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "hyperband": HyperBandScheduler,
    "hb_bohb": HyperBandForBOHB,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
    "pb2": PB2,
    "resource_changing": ResourceChangingScheduler,
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """Create the scheduler with a name, such as `"pbt"` or `"async_hyperband"`.

    Options that only other schedulers have are ignored, so that the name can be changed alone.

    Args:
        scheduler: Name of the scheduler.
        **kwargs: Options of the scheduler.

    Raises:
        ValueError: The name is unknown.
        TypeError: No scheduler has one of the options.
    """
    cls = _BY_NAME.get(scheduler.lower())
    if cls is None:
        raise ValueError(
            f"There is no scheduler {scheduler!r}.{did_you_mean(scheduler.lower(), _BY_NAME)} "
            f"There are {', '.join(_BY_NAME)}."
        )
    known = {name for other in _BY_NAME.values() for name in _options(other)}
    for name in kwargs:
        if name not in known:
            raise TypeError(
                f"create_scheduler({scheduler!r}, {name}=…): no scheduler has such an option."
                f"{did_you_mean(name, known)}"
            )
    own = _options(cls)
    return cls(**{name: value for name, value in kwargs.items() if name in own})


def _options(cls: type[TrialScheduler]) -> set[str]:
    return set(inspect.signature(cls).parameters)
