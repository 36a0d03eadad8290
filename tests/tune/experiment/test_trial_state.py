"""Pickled trials, as in snapshots of a search."""

import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle

from syncline.tune.experiment.trial import Trial


class TwoPartError(Exception):
    """Exception that can be pickled but not rebuilt."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")


def test_an_exception_that_pickle_cannot_make_again_stays_with_its_trial(
    make_trial: Callable[..., Trial],
) -> None:
    trial: Trial = make_trial(0, losses=[1.0])
    trial.exception = TwoPartError("disk", "full")
    again: Any = pickle.loads(cloudpickle.dumps(trial))
    assert isinstance(again.exception, TwoPartError)
    assert str(again.exception) == "disk: full"
    assert again.metric_analysis == trial.metric_analysis


def test_a_trial_without_an_exception_has_none_afterwards(make_trial: Callable[..., Trial]) -> None:
    assert pickle.loads(cloudpickle.dumps(make_trial(0))).exception is None
