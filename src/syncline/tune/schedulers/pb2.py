"""`PB2`: population based training whose changes are chosen by a model of what has helped, not at
random.

Parker-Holder, Nguyen, Roberts: Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits, NeurIPS 2020, https://arxiv.org/abs/2002.02518, Algorithm 1. The model is
in `bandit.py`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.tune.schedulers import bandit
from syncline.tune.schedulers.explore import apply
from syncline.tune.schedulers.pbt import PopulationBasedTraining
from syncline.tune.search.util import flatten_dict

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial

Bounds = Mapping[str, Any]
"""By hyperparameter: `[least, most]`, or a mapping of these for nested hyperparameters."""
_KEPT = 5 * bandit.MOST_OBSERVATIONS


class PB2(PopulationBasedTraining):
    """Every `perturbation_interval`, a trial in the lower quantile goes on from a checkpoint of one
    in the upper quantile, with the hyperparameters that promise the largest gain over the next
    interval.

    Args:
        time_attr: What the intervals count: a key of results that does not decrease.
        metric: What trials are compared by; may be given to the search instead.
        mode: `"min"` or `"max"`; may be given to the search instead.
        perturbation_interval: How long a trial trains between two comparisons.
        hyperparam_bounds: By hyperparameter: `[least, most]`, or a dictionary of these. Trials
            whose configuration lacks one start with a value drawn from between. Whole numbers in a
            configuration stay whole.
        quantile_fraction: The share of the population that is cloned, and that clones; 0 to 0.5.
        log_config: Whether the policy files are written, which `PopulationBasedTrainingReplay`
            reads.
        require_attrs: Whether every result must have `time_attr` and `metric`; else those without
            are passed over.
        synch: Whether all trials are compared at the same time, each waiting for the others.
        custom_explore_fn: Gets the chosen configuration and returns the one that is used.

    Raises:
        ValueError: Bounds are missing or are no bounds, or a number is out of its range.
    """

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Bounds | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        if not hyperparam_bounds:
            raise ValueError(
                "PB2 needs `hyperparam_bounds`: what it may change, and how far, such as {'lr': [1e-4, 1e-1]}."
            )
        self._bounds: dict[str, tuple[float, float]] = {}
        for key, value in flatten_dict(hyperparam_bounds).items():
            self._bounds[key] = _checked_bounds(key, value)
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            perturbation_interval=perturbation_interval,
            hyperparam_mutations=hyperparam_bounds,
            quantile_fraction=quantile_fraction,
            resample_probability=0,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
        )
        self._observed: list[list[float]] = []
        """Rows for `bandit.suggest`."""
        self._latest: dict[str, tuple[float, float, list[float]]] = {}
        """By trial: time, score and hyperparameters that its present interval started from."""
        self._pending: list[list[float]] = []
        """What was chosen since the latest result that taught anything."""

    def _fill_missing(self, config: dict[str, Any]) -> dict[str, Any]:
        drawn: dict[str, Any] = {}
        for key, (low, high) in self._bounds.items():
            if _get(config, key) is None:
                drawn[key] = self._random.uniform(low, high)
                _set(config, key, drawn[key])
        return drawn

    def _take_score(self, trial: Trial, time: float, score: float) -> None:
        super()._take_score(trial, time, score)
        values = self._values(trial.config)
        before = self._latest.get(trial.trial_id)
        if not math.isfinite(score):
            self._latest.pop(trial.trial_id, None)
            return
        if before is not None and before[2] == values and time > before[0]:
            self._observed.append(
                [before[0], before[1], *values, (score - before[1]) / (time - before[0])]
            )
            self._observed = self._observed[-_KEPT:]
            self._pending = []
        self._latest[trial.trial_id] = (time, score, values)

    def _new_config(self, trial: Trial, donor: Trial) -> dict[str, Any]:
        donor_values = self._values(donor.config)
        time, score, _ = self._latest.get(donor.trial_id, (0.0, 0.0, donor_values))
        chosen = bandit.suggest(
            np.array(self._observed, dtype=float).reshape(-1, 3 + len(self._bounds)),
            np.array([time, score]),
            np.array(list(self._bounds.values()), dtype=float),
            np.array(self._pending, dtype=float).reshape(-1, len(self._bounds)),
            np.random.default_rng(self._random.getrandbits(64)),
        )
        config = copy.deepcopy(donor.config)
        for key, value in zip(self._bounds, chosen.tolist(), strict=True):
            _set(config, key, round(value) if isinstance(_get(config, key), int) else value)
        if self._custom_explore_fn is not None:
            config = apply(self._custom_explore_fn, config, self._random)
        values = self._values(config)
        self._pending.append(values)
        self._latest[trial.trial_id] = (time, score, values)
        return config

    def _values(self, config: Mapping[str, Any]) -> list[float]:
        return [float(_get(config, key)) for key in self._bounds]


def _checked_bounds(key: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(
            f"hyperparam_bounds[{key!r}]={value!r} must be [least, most], two numbers."
        )
    low, high = value
    if not low <= high:
        raise ValueError(
            f"hyperparam_bounds[{key!r}]={value!r}: the first must not be more than the second."
        )
    return float(low), float(high)


def _get(config: Mapping[str, Any], key: str) -> Any:
    """The value at the path `a/b`; None if there is none."""
    value: Any = config
    for part in key.split("/"):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    *parents, name = key.split("/")
    for parent in parents:
        config = config.setdefault(parent, {})
    config[name] = value
