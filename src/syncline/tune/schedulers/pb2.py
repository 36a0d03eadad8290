"""`PB2`: population based training that selects hyperparameters with a model of past gains.

Parker-Holder, Nguyen, Roberts: Provably Efficient Online Hyperparameter Optimization with
Population-Based Bandits, NeurIPS 2020, https://arxiv.org/abs/2002.02518, Algorithm 1. The model is
in `bandit.py`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from syncline.suggestions import suggest_arguments
from syncline.train.metric_values import lookup
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import Config
from syncline.tune.schedulers import bandit
from syncline.tune.schedulers.explore import apply_custom_explore
from syncline.tune.schedulers.pbt import PopulationBasedTraining
from syncline.tune.search.util import flatten_dict

Bounds = Mapping[str, Any]
"""By hyperparameter: `[min, max]`, or a mapping of these for nested hyperparameters."""
_MAX_KEPT = 5 * bandit.MAX_OBSERVATIONS


@suggest_arguments
class PB2(PopulationBasedTraining):
    """Every `perturbation_interval`, continue trials of the lower quantile from a checkpoint of a
    trial of the upper quantile, with the hyperparameters that promise the largest gain over the
    next interval.

    Args:
        time_attr: Unit of the intervals: a key of results that does not decrease.
        metric: Metric that trials are compared by; may be given to `TuneConfig` instead.
        mode: `"min"` or `"max"`; may be given to `TuneConfig` instead.
        perturbation_interval: Time between two comparisons of a trial.
        hyperparam_bounds: By hyperparameter: `[min, max]`, or a dictionary of these. Trials whose
            configuration lacks a hyperparameter start with a random value. Integers in a
            configuration remain integers.
        quantile_fraction: Size of the upper and of the lower quantile as a fraction of the
            population, 0 to 0.5.
        log_config: If True, write the policy files for `PopulationBasedTrainingReplay`.
        require_attrs: If True, each result must have `time_attr` and `metric`; otherwise results
            without them are ignored.
        synch: If True, compare all trials at the same time with a barrier.
        custom_explore_fn: Function from the selected configuration to the one that is used.

    Raises:
        ValueError: Bounds are missing or invalid, or a number is out of range.
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
        custom_explore_fn: Callable[[Config], Config] | None = None,
    ) -> None:
        if not hyperparam_bounds:
            raise ValueError(
                "PB2 needs `hyperparam_bounds`, the hyperparameters that it changes and their "
                "limits, such as {'lr': [1e-4, 1e-1]}."
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
        """By trial: time, score and hyperparameters at the start of its present interval."""
        self._pending: list[list[float]] = []
        """Hyperparameters selected since the latest observation."""

    def _fill_missing(self, config: Config) -> Config:
        drawn: Config = {}
        for key, (low, high) in self._bounds.items():
            if lookup(config, key) is None:
                drawn[key] = self._random.uniform(low, high)
                _set(config, key, drawn[key])
        return drawn

    def _record_score(self, trial: Trial, time: float, score: float) -> None:
        super()._record_score(trial, time, score)
        values = self._values(trial.config)
        before = self._latest.get(trial.trial_id)
        if not math.isfinite(score):
            self._latest.pop(trial.trial_id, None)
            return
        if before is not None and before[2] == values and time > before[0]:
            self._observed.append(
                [before[0], before[1], *values, (score - before[1]) / (time - before[0])]
            )
            self._observed = self._observed[-_MAX_KEPT:]
            self._pending = []
        self._latest[trial.trial_id] = (time, score, values)

    def _new_config(self, trial: Trial, donor: Trial) -> Config:
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
            _set(config, key, round(value) if isinstance(lookup(config, key), int) else value)
        config = apply_custom_explore(self._custom_explore_fn, config, self._random)
        values = self._values(config)
        self._pending.append(values)
        self._latest[trial.trial_id] = (time, score, values)
        return config

    def _values(self, config: Config) -> list[float]:
        return [float(lookup(config, key)) for key in self._bounds]


def _checked_bounds(key: str, value: object) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"hyperparam_bounds[{key!r}]={value!r} must be [min, max], two numbers.")
    low, high = value
    if not low <= high:
        raise ValueError(f"hyperparam_bounds[{key!r}]={value!r}: min must not exceed max.")
    return float(low), float(high)


def _set(config: Config, key: str, value: float) -> None:
    *parents, name = key.split("/")
    for parent in parents:
        config = config.setdefault(parent, {})
    config[name] = value
