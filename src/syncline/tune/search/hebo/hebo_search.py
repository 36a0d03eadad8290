"""`HEBOSearch`: heteroscedastic evolutionary Bayesian optimization with HEBO, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from syncline.tune.result import Config
from syncline.tune.search.library_searcher import (
    LibraryObject,
    LibrarySearcher,
    RandomStates,
    Values,
    load_library,
)
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.util import validate_warmstart

if TYPE_CHECKING:
    import pandas as pd


class HEBOSearch(LibrarySearcher):
    """Search with HEBO (0.3.5 or later). The first trials are random; use 16 or more trials.

    Args:
        space: Search space, or HEBO `DesignSpace`. Default: the tuner's space.
        metric: Metric to optimize.
        mode: "min" or "max".
        points_to_evaluate: Initial configurations with all parameters.
        evaluated_rewards: Known metrics of `points_to_evaluate`, which are then not run again.
        random_state_seed: Random seed.
        max_concurrent: Batch size; the limit of a `ConcurrencyLimiter` replaces it.
        **kwargs: Options of HEBO's optimizer.

    Raises:
        ImportError: HEBO is not installed.
        TypeError: An argument has the wrong type.
        ValueError: `max_concurrent` is not an integer of at least 1.
    """

    def __init__(
        self,
        space: LibraryObject = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[Config] | None = None,
        evaluated_rewards: list[float] | None = None,
        random_state_seed: int | None = None,
        max_concurrent: int = 8,
        **kwargs: object,
    ) -> None:
        _hebo()
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(
                f"`max_concurrent` must be an integer of at least 1, not {max_concurrent!r}."
            )
        if random_state_seed is not None and not isinstance(random_state_seed, int):
            raise TypeError(
                f"`random_state_seed` must be an integer or None, not {random_state_seed!r}."
            )
        validate_warmstart(
            [], points_to_evaluate, evaluated_rewards, validate_point_name_lengths=False
        )
        self._rewards = list(evaluated_rewards or [])
        self._random = RandomStates(random_state_seed)
        self._max_concurrent = max_concurrent
        self._batch: list[Config] = []
        self._is_batch_full = False
        self._kwargs = kwargs
        super().__init__(space, metric, mode, points_to_evaluate)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._max_concurrent = max_concurrent
        return True

    def add_evaluated_point(
        self,
        parameters: Config,
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Learn from a configuration that was evaluated elsewhere. Failed and pruned evaluations
        and intermediate values are ignored.

        Raises:
            RuntimeError: Metric, mode or space are unset.
        """
        self._start_if_ready()
        if self._optimizer is None:
            raise RuntimeError(
                "HEBOSearch needs metric, mode and the search space before it can learn from "
                "configurations. Pass all three to it."
            )
        if self._space is not None:
            parameters = {key: item for key, item in parameters.items() if self._space.has_key(key)}
        loss = None if error or pruned else self._loss({str(self.metric): value})
        if loss is not None:
            self._observe(self._optimizer, self._drawn(parameters), loss)

    def _convert_space(self, space: SearchSpace) -> LibraryObject:
        return (
            _design_space()
            .DesignSpace()
            .parse([_parameter(parameter) for parameter in space.parameters.values()])
        )

    def _check_space(self, space: LibraryObject) -> LibraryObject:
        if not isinstance(space, _design_space().DesignSpace):
            raise TypeError(f"`space` must be a search space or a HEBO DesignSpace, not {space!r}.")
        return space

    def _create_optimizer(self) -> LibraryObject:
        with self._random.active():
            optimizer = _hebo().HEBO(space=self._library_space, **self._kwargs)
        if self._rewards:
            for point, reward in zip(self._points, self._rewards, strict=True):
                loss = self._loss({str(self.metric): reward})
                if loss is not None:
                    self._observe(optimizer, self._drawn(point), loss)
            self._points = []
        return optimizer

    def suggest(self, trial_id: str) -> Config | str | None:
        if not self._candidates:
            self._is_batch_full = False
        config = super().suggest(trial_id)
        self._is_batch_full = len(self._candidates) >= self._max_concurrent or self._is_batch_full
        return config

    def _ask(self) -> tuple[Config, Config] | None:
        if self._is_batch_full:
            return None
        if not self._batch:
            with self._random.active():
                self._batch = self._optimizer.suggest(n_suggestions=self._max_concurrent).to_dict(
                    "records"
                )
        drawn = self._batch.pop(0)
        return drawn, self._config(drawn)

    def _ask_point(self, point: Values) -> tuple[Config, Config]:
        drawn = self._drawn(point)
        return drawn, self._config(drawn)

    def _tell(self, candidate: Config, loss: float, result: Values) -> None:
        self._observe(self._optimizer, candidate, loss)

    def _abandon(self, candidate: Config) -> None:
        """Do nothing: HEBO does not need a result for each suggestion."""

    def _observe(self, optimizer: LibraryObject, drawn: Values, loss: float) -> None:
        frame: pd.DataFrame = load_library("pandas", "pandas", "HEBOSearch").DataFrame([drawn])
        with self._random.active():
            optimizer.observe(frame, np.array([[loss]]))


def _hebo() -> LibraryObject:
    return load_library("hebo.optimizers.hebo", "HEBO", "HEBOSearch")


def _design_space() -> LibraryObject:
    return load_library("hebo.design_space.design_space", "HEBO", "HEBOSearch")


def _parameter(parameter: Parameter) -> Config:
    if parameter.kind == "choice":
        return {
            "name": parameter.key,
            "type": "cat",
            "categories": list(range(len(parameter.choices))),
        }
    if parameter.distribution == "normal":
        raise parameter.unsupported_error(
            "HEBOSearch", "uniform and log-uniform numbers, and choices"
        )
    kind = {
        "float": {"uniform": "num", "log": "pow"},
        "integer": {"uniform": "int", "log": "pow_int"},
    }[parameter.kind][parameter.distribution]
    return {"name": parameter.key, "type": kind, "lb": parameter.low, "ub": parameter.high}
