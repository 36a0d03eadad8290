"""Suggestions of BOHB (Falkner, Klein and Hutter: BOHB, ICML 2018) as HpBandSter has it. Its
scheduler is `HyperBandForBOHB`.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from syncline.tune.search.library_searcher import LibrarySearcher, RandomStates, load_library
from syncline.tune.search.parameters import Parameter, SearchSpace

logger = logging.getLogger(__name__)


class TuneBOHB(LibrarySearcher):
    """Searches with HpBandSter's BOHB, which learns at the budgets that `HyperBandForBOHB` gives
    the trials.

    Args:
        space: a search space of ours, or a `ConfigSpace.ConfigurationSpace`. Left out: the tuner's.
        bohb_config: options of HpBandSter's BOHB, such as `random_fraction`.
        metric: the result to go by.
        mode: "min" or "max".
        points_to_evaluate: configurations to try first, each with all parameters.
        seed: makes the search repeatable.
        max_concurrent: how many trials may run at once, paused ones not counted; 0: any number.
    """

    def __init__(
        self,
        space: Any = None,
        bohb_config: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        seed: int | None = None,
        max_concurrent: int = 0,
    ) -> None:
        _config_space()
        _bohb()
        self._bohb_config = dict(bohb_config or {})
        self._seed = seed
        self._random = RandomStates(seed)
        self._max_concurrent = max_concurrent
        self._running: set[str] = set()
        self._has_warned = False
        super().__init__(space, metric, mode, points_to_evaluate)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._max_concurrent = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if 0 < self._max_concurrent <= len(self._running):
            return None
        config = super().suggest(trial_id)
        if trial_id in self._tickets:
            self._running.add(trial_id)
        return config

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Learns from a result that ends a budget, which the scheduler has noted in it."""
        if trial_id not in self._tickets or self._metric not in result:
            return
        if "hyperband_info" not in result and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "TuneBOHB learns nothing, because results tell no budget: take HyperBandForBOHB as the scheduler."
            )
        budget = result.get("hyperband_info", {}).get("budget")
        if budget is None:
            return
        loss = self._loss(result)
        # HpBandSter counts infinite losses as bad ones, and only ranks.
        outcome = {"loss": math.inf if loss is None else loss}
        job = SimpleNamespace(
            result=outcome,
            kwargs={"budget": budget, "config": dict(self._tickets[trial_id])},
            exception=None,
        )
        with self._undisturbed():
            self._optimizer.new_result(job)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        self._tickets.pop(trial_id, None)
        self._running.discard(trial_id)

    def on_pause(self, trial_id: str) -> None:
        self._running.discard(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self._running.add(trial_id)

    def _converted(self, space: SearchSpace) -> Any:
        converted = _config_space().ConfigurationSpace()
        converted.add([_hyperparameter(parameter) for parameter in space.parameters.values()])
        return converted

    def _checked(self, space: Any) -> Any:
        if not isinstance(space, _config_space().ConfigurationSpace):
            raise TypeError(
                f"`space` must be a search space or a ConfigSpace.ConfigurationSpace, not {space!r}."
            )
        return space

    def _start(self) -> Any:
        if self._seed is not None:
            self._library_space.seed(self._seed)
        return _bohb().BOHB(self._library_space, **self._bohb_config)

    def _ask(self) -> tuple[dict[str, Any], dict[str, Any]]:
        with self._undisturbed():
            drawn, _ = self._optimizer.get_config(None)
        return drawn, self._config(drawn)

    def _ask_for(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        drawn = self._drawn(point)
        return drawn, self._config(drawn)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """HpBandSter draws from numpy's global state, and makes its libraries warn of what only
        concerns itself.
        """
        with self._random.in_use(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


def _config_space() -> Any:
    return load_library("ConfigSpace", "ConfigSpace", "TuneBOHB")


def _bohb() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_library(
            "hpbandster.optimizers.config_generators.bohb", "hpbandster", "TuneBOHB"
        )


def _hyperparameter(parameter: Parameter) -> Any:
    library = _config_space()
    if parameter.kind == "choice":
        return library.CategoricalHyperparameter(
            parameter.key, choices=list(range(len(parameter.choices)))
        )
    if parameter.law == "normal":
        raise parameter.refusal("TuneBOHB", "uniform and log-uniform numbers, and choices")
    kind = (
        library.UniformIntegerHyperparameter
        if parameter.kind == "integer"
        else library.UniformFloatHyperparameter
    )
    return kind(
        parameter.key, lower=parameter.low, upper=parameter.high, log=parameter.law == "log"
    )
