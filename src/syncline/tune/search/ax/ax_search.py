"""`AxSearch`: Bayesian optimization with Ax, with constraints on parameters and metrics."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager

from syncline.tune.result import Config
from syncline.tune.search.library_searcher import (
    LibraryObject,
    LibrarySearcher,
    RandomStates,
    Values,
)
from syncline.tune.search.parameters import Parameter, SearchSpace


class AxSearch(LibrarySearcher):
    """Search with Ax (1.0 or later).

    Args:
        space: Search space, or list of Ax parameters. Default: the tuner's space.
        metric: Metric to optimize.
        mode: "min" or "max".
        points_to_evaluate: Initial configurations with all parameters.
        parameter_constraints: Constraints such as "x3 >= x4".
        outcome_constraints: Constraints on further metrics, such as "m1 <= 3.".
        ax_client: An `AxClient`. If it has an experiment, the arguments above must be omitted.
        **ax_kwargs: Options of a new `AxClient`, such as `random_seed`.

    Raises:
        ImportError: Ax is not installed.
        ValueError: `ax_client` has an experiment, and another argument is given.
    """

    package = "ax-platform"

    def __init__(
        self,
        space: LibraryObject = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[Config] | None = None,
        parameter_constraints: list[str] | None = None,
        outcome_constraints: list[str] | None = None,
        ax_client: LibraryObject = None,
        **ax_kwargs: LibraryObject,
    ) -> None:
        self.load("ax.service.ax_client")
        self._client = ax_client
        self._ax_kwargs = {"verbose_logging": False, **ax_kwargs}
        self._parameter_constraints = parameter_constraints
        self._outcome_constraints = outcome_constraints
        self._random = RandomStates(ax_kwargs.get("random_seed"))
        super().__init__(space, metric, mode, points_to_evaluate)
        if ax_client is not None and _has_experiment(ax_client):
            self._use_experiment(ax_client)

    def _use_experiment(self, client: LibraryObject) -> None:
        if (
            self._has_space()
            or self._metric
            or self._mode
            or self._parameter_constraints
            or self._outcome_constraints
        ):
            raise ValueError(
                "The `ax_client` has an experiment, which defines space, metric, mode and "
                "constraints. Omit these arguments."
            )
        objective = client.experiment.optimization_config.objective
        (self._metric,) = objective.metric_names
        self._mode = "min" if objective.minimize else "max"
        self._library_space = list(client.experiment.parameters)
        self._optimizer = client

    @classmethod
    def _convert_space(cls, space: SearchSpace) -> list[Config]:
        return [_parameter(parameter) for parameter in space.parameters.values()]

    def _drawn(self, point: Values) -> Config:
        drawn = super()._drawn(point)
        if self._space is None:
            return drawn
        return {
            key: str(value) if self._space.parameters[key].kind == "choice" else value
            for key, value in drawn.items()
        }

    def _create_optimizer(self) -> LibraryObject:
        ax = self.load("ax.service.ax_client")
        with _quiet():
            client = self._client or ax.AxClient(**self._ax_kwargs)
            client.create_experiment(
                parameters=self._library_space,
                objectives={self._metric: ax.ObjectiveProperties(minimize=self._mode == "min")},
                parameter_constraints=self._parameter_constraints,
                outcome_constraints=self._outcome_constraints,
            )
        return client

    def _ask(self) -> tuple[int, Config] | None:
        errors = self.load("ax.exceptions.generation_strategy")
        core_errors = self.load("ax.exceptions.core")
        try:
            with _quiet(), self._random.active():
                drawn, trial = self._optimizer.get_next_trial()
        except (errors.MaxParallelismReachedException, core_errors.DataRequiredError):
            return None
        return trial, self._config(drawn)

    def _ask_point(self, point: Values) -> tuple[int, Config]:
        drawn, trial = self._optimizer.attach_trial(self._drawn(point))
        return trial, self._config(drawn)

    def _tell(self, candidate: int, loss: float, result: Values) -> None:
        constrained = self._optimizer.experiment.optimization_config.outcome_constraints
        names = [
            self._metric,
            *(name for constraint in constrained for name in constraint.metric_names),
        ]
        values = {name: result.get(name) for name in names}
        if all(value is not None and math.isfinite(value) for value in values.values()):
            self._optimizer.complete_trial(
                candidate,
                raw_data={name: (float(value or 0), None) for name, value in values.items()},
            )
        else:
            self._abandon(candidate)

    def _abandon(self, candidate: int) -> None:
        self._optimizer.abandon_trial(candidate)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Ax's log lines on stderr about its generation strategy and seed."""
    handler = AxSearch.load("ax.utils.common.logger").ROOT_STREAM_HANDLER
    before = handler.level
    handler.setLevel(logging.ERROR)
    try:
        yield
    finally:
        handler.setLevel(before)


def _has_experiment(client: LibraryObject) -> bool:
    try:
        return client.experiment is not None
    except (AssertionError, ValueError):
        # Depending on its version, Ax raises either error if there is no experiment.
        return False


def _parameter(parameter: Parameter) -> Config:
    if parameter.kind == "choice" and len(parameter.choices) == 1:
        return {"name": parameter.key, "type": "fixed", "value": "0", "value_type": "str"}
    if parameter.kind == "choice":
        # Indices, because Ax supports choices of one simple type only; as strings, because Ax
        # orders numbers.
        indices = list(map(str, range(len(parameter.choices))))
        return {
            "name": parameter.key,
            "type": "choice",
            "values": indices,
            "value_type": "str",
            "is_ordered": False,
            "sort_values": False,
        }
    return {
        "name": parameter.key,
        "type": "range",
        "bounds": [parameter.low, parameter.high],
        "value_type": "int" if parameter.kind == "integer" else "float",
        "log_scale": parameter.distribution == "log",
    }
