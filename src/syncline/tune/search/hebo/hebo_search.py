"""Suggestions of HEBO: heteroscedastic evolutionary Bayesian optimization. Trials are suggested
batch by batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.tune.search.library_searcher import LibrarySearcher, RandomStates, load_library
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.util import validate_warmstart

if TYPE_CHECKING:
    import pandas as pd


class HEBOSearch(LibrarySearcher):
    """Searches with HEBO (0.3.5 or later). Its first trials are random; 16 or more make sense.

    Args:
        space: a search space of ours, or a HEBO `DesignSpace`. Left out: the tuner's.
        metric: the result to go by.
        mode: "min" or "max".
        points_to_evaluate: configurations to try first, each with all parameters.
        evaluated_rewards: the known metrics of `points_to_evaluate`, which are then not tried but
            learnt from.
        random_state_seed: makes the search repeatable.
        max_concurrent: how many trials make a batch; a `ConcurrencyLimiter`'s number replaces it.
            **kwargs: for HEBO's optimizer.
    """

    def __init__(
        self,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        evaluated_rewards: list[float] | None = None,
        random_state_seed: int | None = None,
        max_concurrent: int = 8,
        **kwargs: Any,
    ) -> None:
        _hebo()
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ValueError(
                f"`max_concurrent` must be a whole number above 0, not {max_concurrent!r}."
            )
        if random_state_seed is not None and not isinstance(random_state_seed, int):
            raise TypeError(
                f"`random_state_seed` must be a whole number or None, not {random_state_seed!r}."
            )
        validate_warmstart(
            [], points_to_evaluate, evaluated_rewards, validate_point_name_lengths=False
        )
        self._rewards = list(evaluated_rewards or [])
        self._random = RandomStates(random_state_seed)
        self._max_concurrent = max_concurrent
        self._batch: list[dict[str, Any]] = []
        self._is_batch_full = False
        self._kwargs = kwargs
        super().__init__(space, metric, mode, points_to_evaluate)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._max_concurrent = max_concurrent
        return True

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Learns from a point that was evaluated elsewhere. Failed and pruned ones are left out,
        intermediate values are not used.

        RuntimeError while metric, mode or the space are not known.
        """
        self._start_if_complete()
        if self._optimizer is None:
            raise RuntimeError(
                "HEBOSearch cannot learn from points before it knows metric, mode and the search space: give it all three."
            )
        if self._space is not None:
            parameters = {key: item for key, item in parameters.items() if self._space.knows(key)}
        loss = None if error or pruned else self._loss({self.metric: value})
        if loss is not None:
            self._observe(self._optimizer, self._drawn(parameters), loss)

    def _converted(self, space: SearchSpace) -> Any:
        return (
            _design_space()
            .DesignSpace()
            .parse([_parameter(parameter) for parameter in space.parameters.values()])
        )

    def _checked(self, space: Any) -> Any:
        if not isinstance(space, _design_space().DesignSpace):
            raise TypeError(f"`space` must be a search space or a HEBO DesignSpace, not {space!r}.")
        return space

    def _start(self) -> Any:
        with self._random.in_use():
            optimizer = _hebo().HEBO(space=self._library_space, **self._kwargs)
        if self._rewards:
            for point, reward in zip(self._points, self._rewards, strict=True):
                loss = self._loss({self.metric: reward})
                if loss is not None:
                    self._observe(optimizer, self._drawn(point), loss)
            self._points = []
        return optimizer

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if not self._tickets:
            self._is_batch_full = False
        config = super().suggest(trial_id)
        self._is_batch_full = len(self._tickets) >= self._max_concurrent or self._is_batch_full
        return config

    def _ask(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        if self._is_batch_full:
            return None
        if not self._batch:
            with self._random.in_use():
                self._batch = self._optimizer.suggest(n_suggestions=self._max_concurrent).to_dict(
                    "records"
                )
        drawn = self._batch.pop(0)
        return drawn, self._config(drawn)

    def _ask_for(self, point: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        drawn = self._drawn(point)
        return drawn, self._config(drawn)

    def _tell(self, ticket: dict[str, Any], loss: float, result: Mapping[str, Any]) -> None:
        self._observe(self._optimizer, ticket, loss)

    def _take_back(self, ticket: dict[str, Any]) -> None:
        """HEBO need not be told every suggestion."""

    def _observe(self, optimizer: Any, drawn: Mapping[str, Any], loss: float) -> None:
        frame: pd.DataFrame = load_library("pandas", "pandas", "HEBOSearch").DataFrame([drawn])
        with self._random.in_use():
            optimizer.observe(frame, np.array([[loss]]))


def _hebo() -> Any:
    return load_library("hebo.optimizers.hebo", "HEBO", "HEBOSearch")


def _design_space() -> Any:
    return load_library("hebo.design_space.design_space", "HEBO", "HEBOSearch")


def _parameter(parameter: Parameter) -> dict[str, Any]:
    if parameter.kind == "choice":
        return {
            "name": parameter.key,
            "type": "cat",
            "categories": list(range(len(parameter.choices))),
        }
    if parameter.law == "normal":
        raise parameter.refusal("HEBOSearch", "uniform and log-uniform numbers, and choices")
    kind = {
        "float": {"uniform": "num", "log": "pow"},
        "integer": {"uniform": "int", "log": "pow_int"},
    }[parameter.kind][parameter.law]
    return {"name": parameter.key, "type": kind, "lb": parameter.low, "ub": parameter.high}
