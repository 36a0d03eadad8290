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
)
from syncline.tune.search.parameters import Parameter, SearchSpace

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

    package = "HEBO"

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
        self.load("hebo.optimizers.hebo")
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(
                f"`max_concurrent` must be an integer of at least 1, not {max_concurrent!r}."
            )
        if random_state_seed is not None and not isinstance(random_state_seed, int):
            raise TypeError(
                f"`random_state_seed` must be an integer or None, not {random_state_seed!r}."
            )
        self._random = RandomStates(random_state_seed)
        self._max_concurrent = max_concurrent
        self._batch: list[Config] = []
        self._is_batch_full = False
        self._kwargs = kwargs
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards)

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
        self._start("learn from configurations")
        if not (error or pruned):
            self._learn(self._searched(parameters), value)

    @classmethod
    def _convert_space(cls, space: SearchSpace) -> LibraryObject:
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
            hebo = self.load("hebo.optimizers.hebo")
            return hebo.HEBO(space=self._library_space, **self._kwargs)

    def _learn(self, point: Values, reward: float) -> None:
        loss = self._loss({str(self.metric): reward})
        if loss is not None:
            self._tell(self._drawn(point), loss, {})

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

    def _tell(self, candidate: Config, loss: float, result: Values) -> None:
        frame: pd.DataFrame = self.load("pandas", package="pandas").DataFrame([candidate])
        with self._random.active():
            self._optimizer.observe(frame, np.array([[loss]]))


def _design_space() -> LibraryObject:
    return HEBOSearch.load("hebo.design_space.design_space")


def _parameter(parameter: Parameter) -> Config:
    if parameter.kind == "choice":
        return {
            "name": parameter.key,
            "type": "cat",
            "categories": list(range(len(parameter.choices))),
        }
    kind = {
        "float": {"uniform": "num", "log": "pow"},
        "integer": {"uniform": "int", "log": "pow_int"},
    }[parameter.kind][parameter.distribution]
    return {"name": parameter.key, "type": kind, "lb": parameter.low, "ub": parameter.high}
