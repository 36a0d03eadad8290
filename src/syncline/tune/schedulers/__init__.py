"""Who runs, who waits and who stops.

    trial_scheduler.py      the contract, and first come, first served
    scored.py               what all share that compare trials
    async_hyperband.py      ASHA: stop what is behind, without barriers
    hyperband.py            HyperBand: barriers, one bracket after the other; `bracket.py` keeps the books
    hb_bohb.py              the same for the searcher BOHB
    median_stopping_rule.py stop what is below the median; `running_averages.py` keeps it
    pbt.py                  population based training; `population.py` ranks, `explore.py` mutates, `policy_log.py` records
    pbt_replay.py           train one trial with a schedule found that way
    pb2.py                  mutations chosen by the model in `bandit.py`
    resource_changing_scheduler.py   any of them, with resources that change; `allocation.py` deals them out

Not covered: what decisions do to processes (`syncline.tune.controller`), and which configurations
are tried (`syncline.tune.search`).
"""

from __future__ import annotations

import inspect
from typing import Any

from syncline.core.error_messages import did_you_mean
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
    """The scheduler of that name, such as `"pbt"` or `"async_hyperband"`.

    Keywords that it does not take but another scheduler does are left out, so that the name alone
    can be exchanged.

    Raises:
        ValueError: There is no scheduler of that name.
        TypeError: No scheduler takes one of the keywords.
    """
    kind = _BY_NAME.get(scheduler.lower())
    if kind is None:
        raise ValueError(
            f"There is no scheduler {scheduler!r}.{did_you_mean(scheduler.lower(), _BY_NAME)} There are {', '.join(_BY_NAME)}."
        )
    everywhere = {name for known in _BY_NAME.values() for name in _keywords(known)}
    for name in kwargs:
        if name not in everywhere:
            raise TypeError(
                f"create_scheduler({scheduler!r}, {name}=…): no scheduler has such an option.{did_you_mean(name, everywhere)}"
            )
    own = _keywords(kind)
    return kind(**{name: value for name, value in kwargs.items() if name in own})


def _keywords(kind: type[TrialScheduler]) -> set[str]:
    return set(inspect.signature(kind).parameters)
