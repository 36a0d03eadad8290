"""Suggestions of Ax: Bayesian optimization with BoTorch, with constraints on parameters and
outcomes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from syncline.tune.search.library_searcher import LibrarySearcher, RandomStates, load_library
from syncline.tune.search.parameters import Parameter, SearchSpace


class AxSearch(LibrarySearcher):
    """Searches with Ax (1.0 or later).

    Args:
        space: a search space of ours, or a list of Ax's parameters. Left out: the tuner's.
        metric: the result to go by.
        mode: "min" or "max".
        points_to_evaluate: configurations to try first, each with all parameters.
        parameter_constraints: such as "x3 >= x4".
        outcome_constraints: such as "m1 <= 3.", on results besides the metric.
        ax_client: a client to use; if it has an experiment already, that one says what is searched,
            and none of the above may be given. **ax_kwargs: for the `AxClient` otherwise, such as
            `random_seed`.
    """

    def __init__(
        self,
        space: Any = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        parameter_constraints: list[str] | None = None,
        outcome_constraints: list[str] | None = None,
        ax_client: Any = None,
        **ax_kwargs: Any,
    ) -> None:
        _ax()
        self._client = ax_client
        self._ax_kwargs = {"verbose_logging": False, **ax_kwargs}
        self._parameter_constraints = parameter_constraints
        self._outcome_constraints = outcome_constraints
        self._random = RandomStates(ax_kwargs.get("random_seed"))
        super().__init__(space, metric, mode, points_to_evaluate)
        if ax_client is not None and _has_experiment(ax_client):
            self._take_experiment(ax_client)

    def _take_experiment(self, client: Any) -> None:
        if (
            self._has_space()
            or self._metric
            or self._mode
            or self._parameter_constraints
            or self._outcome_constraints
        ):
            raise ValueError(
                "The `ax_client` has an experiment already: leave out space, metric, mode and constraints, which are in there."
            )
        objective = client.experiment.optimization_config.objective
        (self._metric,) = objective.metric_names
        self._mode = "min" if objective.minimize else "max"
        self._library_space = list(client.experiment.parameters)
        self._optimizer = client

    def _converted(self, space: SearchSpace) -> list[dict[str, Any]]:
        return [_parameter(parameter) for parameter in space.parameters.values()]

    def _drawn(self, point: Mapping[str, Any]) -> dict[str, Any]:
        drawn = super()._drawn(point)
        if self._space is None:
            return drawn
        return {
            key: str(value) if self._space.parameters[key].kind == "choice" else value
            for key, value in drawn.items()
        }

    def _start(self) -> Any:
        ax = _ax()
        with _quiet():
            client = self._client or ax.AxClient(**self._ax_kwargs)
            client.create_experiment(
                parameters=self._library_space,
                objectives={self._metric: ax.ObjectiveProperties(minimize=self._mode == "min")},
                parameter_constraints=self._parameter_constraints,
                outcome_constraints=self._outcome_constraints,
            )
        return client

    def _ask(self) -> tuple[int, dict[str, Any]] | None:
        errors = load_library("ax.exceptions.generation_strategy", "ax-platform", "AxSearch")
        core_errors = load_library("ax.exceptions.core", "ax-platform", "AxSearch")
        try:
            with _quiet(), self._random.in_use():
                drawn, trial = self._optimizer.get_next_trial()
        except (errors.MaxParallelismReachedException, core_errors.DataRequiredError):
            return None
        return trial, self._config(drawn)

    def _ask_for(self, point: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        drawn, trial = self._optimizer.attach_trial(self._drawn(point))
        return trial, self._config(drawn)

    def _tell(self, ticket: int, loss: float, result: Mapping[str, Any]) -> None:
        constrained = self._optimizer.experiment.optimization_config.outcome_constraints
        names = [
            self._metric,
            *(name for constraint in constrained for name in constraint.metric_names),
        ]
        values = {name: result.get(name) for name in names}
        if all(value is not None and math.isfinite(value) for value in values.values()):
            self._optimizer.complete_trial(
                ticket, raw_data={name: (float(value or 0), None) for name, value in values.items()}
            )
        else:
            self._take_back(ticket)

    def _take_back(self, ticket: int) -> None:
        self._optimizer.abandon_trial(ticket)


def _ax() -> Any:
    return load_library("ax.service.ax_client", "ax-platform", "AxSearch")


@contextmanager
def _quiet() -> Iterator[None]:
    """Ax tells on stderr what it plans, and what its seed means."""
    handler = load_library("ax.utils.common.logger", "ax-platform", "AxSearch").ROOT_STREAM_HANDLER
    before = handler.level
    handler.setLevel(logging.ERROR)
    try:
        yield
    finally:
        handler.setLevel(before)


def _has_experiment(client: Any) -> bool:
    try:
        return client.experiment is not None
    except (AssertionError, ValueError):
        # What Ax raises where there is none, depending on its version.
        return False


def _parameter(parameter: Parameter) -> dict[str, Any]:
    if parameter.kind == "choice" and len(parameter.choices) == 1:
        return {"name": parameter.key, "type": "fixed", "value": "0", "value_type": "str"}
    if parameter.kind == "choice":
        # By index, because Ax takes choices of one simple type only; as strings, because it has
        # ideas about the order of numbers.
        indices = list(map(str, range(len(parameter.choices))))
        return {
            "name": parameter.key,
            "type": "choice",
            "values": indices,
            "value_type": "str",
            "is_ordered": False,
            "sort_values": False,
        }
    if parameter.law == "normal":
        raise parameter.refusal("AxSearch", "uniform and log-uniform numbers, and choices")
    return {
        "name": parameter.key,
        "type": "range",
        "bounds": [parameter.low, parameter.high],
        "value_type": "int" if parameter.kind == "integer" else "float",
        "log_scale": parameter.law == "log",
    }
