"""Small fakes of Ax, ConfigSpace, HpBandSter, HEBO and ZOOpt, for searchers whose library no test
environment installs.

Each fake has the interface that its searcher uses. It draws from numpy's global state and prefers
the neighborhood of the best result. The quality of the real libraries is not tested.
"""

from __future__ import annotations

import importlib.util
import logging
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests import fake_libraries


def install_if_missing(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    """Install the fakes of a library until the test ends, unless the library is installed."""
    if library in MODULES and importlib.util.find_spec(library) is None:
        for name, content in MODULES[library].items():
            fake_libraries.install(monkeypatch, name, **content)


def draw(low: float, high: float, *, log: bool = False, near: float | None = None) -> float:
    if log:
        return math.exp(draw(math.log(low), math.log(high)))
    if near is None:
        return float(np.random.uniform(low, high))
    return float(np.clip(np.random.normal(near, (high - low) / 50), low, high))


# -- Ax


class MaxParallelismReachedException(Exception):
    pass


class DataRequiredError(Exception):
    pass


class ObjectiveProperties:
    def __init__(self, minimize: bool) -> None:
        self.minimize = minimize


class AxClient:
    MAX_RUNNING = 3

    def __init__(self, verbose_logging: bool = True, random_seed: int | None = None) -> None:
        self._experiment: Any = None

    @property
    def experiment(self) -> Any:
        assert self._experiment is not None, "Experiment not set on Ax client"
        return self._experiment

    def create_experiment(
        self,
        parameters: list[dict[str, Any]],
        objectives: dict[str, ObjectiveProperties],
        parameter_constraints: list[str] | None = None,
        outcome_constraints: list[str] | None = None,
    ) -> None:
        [(metric, properties)] = objectives.items()
        self._constraints = parameter_constraints or []
        self._experiment = SimpleNamespace(
            parameters={parameter["name"]: parameter for parameter in parameters},
            trials={},
            optimization_config=SimpleNamespace(
                objective=SimpleNamespace(metric_names=[metric], minimize=properties.minimize),
                outcome_constraints=[
                    SimpleNamespace(metric_names=[constraint.split()[0]])
                    for constraint in outcome_constraints or []
                ],
            ),
        )

    def get_next_trial(self) -> tuple[dict[str, Any], int]:
        running = [t for t in self.experiment.trials.values() if t.status.name == "RUNNING"]
        if len(running) >= self.MAX_RUNNING:
            raise MaxParallelismReachedException
        while True:
            values = {name: self._draw(one) for name, one in self.experiment.parameters.items()}
            if all(eval(constraint, {}, values) for constraint in self._constraints):
                return self.attach_trial(values)

    def attach_trial(self, values: dict[str, Any]) -> tuple[dict[str, Any], int]:
        number = len(self.experiment.trials)
        assert values.keys() == self.experiment.parameters.keys()
        self.experiment.trials[number] = SimpleNamespace(status=SimpleNamespace(name="RUNNING"))
        return values, number

    def complete_trial(self, number: int, raw_data: dict[str, tuple[float, None]]) -> None:
        assert all(math.isfinite(value) for value, _ in raw_data.values())
        self._end(number, "COMPLETED")

    def abandon_trial(self, number: int) -> None:
        self._end(number, "ABANDONED")

    def _end(self, number: int, status: str) -> None:
        trial = self.experiment.trials[number]
        assert trial.status.name == "RUNNING"
        trial.status.name = status

    @staticmethod
    def _draw(parameter: dict[str, Any]) -> Any:
        if parameter["type"] == "fixed":
            return parameter["value"]
        if parameter["type"] == "choice":
            return str(np.random.choice(parameter["values"]))
        value = draw(*parameter["bounds"], log=parameter.get("log_scale", False))
        return round(value) if parameter.get("value_type") == "int" else value


# -- ConfigSpace and HpBandSter


class Hyperparameter:
    def __init__(self, name: str, **options: Any) -> None:
        self.name, self.options = name, options

    def draw(self, near: float | None = None) -> Any:
        if "choices" in self.options:
            return self.options["choices"][np.random.randint(len(self.options["choices"]))]
        log = self.options.get("log", False)
        return draw(self.options["lower"], self.options["upper"], log=log, near=near)


class UniformFloatHyperparameter(Hyperparameter):
    pass


class UniformIntegerHyperparameter(Hyperparameter):
    def draw(self, near: float | None = None) -> Any:
        return round(super().draw(near))


class CategoricalHyperparameter(Hyperparameter):
    pass


class ConfigurationSpace:
    def __init__(self) -> None:
        self.hyperparameters: list[Hyperparameter] = []

    def add(self, added: Hyperparameter | list[Hyperparameter]) -> None:
        self.hyperparameters += added if isinstance(added, list) else [added]

    def seed(self, seed: int) -> None:
        assert isinstance(seed, int)


class BOHB:
    def __init__(self, space: ConfigurationSpace, random_fraction: float = 1.0) -> None:
        self.space, self.random_fraction = space, random_fraction
        self.best: tuple[float, dict[str, Any]] = (math.inf, {})

    def get_config(self, budget: float | None) -> tuple[dict[str, Any], dict[str, Any]]:
        near = self.best[1] if np.random.uniform() >= self.random_fraction else {}
        return {one.name: one.draw(near.get(one.name)) for one in self.space.hyperparameters}, {}

    def new_result(self, job: Any) -> None:
        assert job.exception is None
        assert job.kwargs["budget"] > 0
        if job.result["loss"] < self.best[0]:
            self.best = job.result["loss"], job.kwargs["config"]


# -- HEBO


class DesignSpace:
    def parse(self, parameters: list[dict[str, Any]]) -> DesignSpace:
        self.parameters = parameters
        return self


class HEBO:
    def __init__(self, space: DesignSpace, rand_sample: int | None = None) -> None:
        self.space = space
        self.y = np.zeros((0, 1))

    def suggest(self, n_suggestions: int) -> pd.DataFrame:
        return pd.DataFrame(
            [
                {one["name"]: self._draw(one) for one in self.space.parameters}
                for _ in range(n_suggestions)
            ]
        )

    def observe(self, frame: pd.DataFrame, y: np.ndarray) -> None:
        assert set(frame.columns) == {one["name"] for one in self.space.parameters}
        assert np.isfinite(y).all()
        self.y = np.vstack([self.y, y])

    @staticmethod
    def _draw(parameter: dict[str, Any]) -> Any:
        if parameter["type"] == "cat":
            return parameter["categories"][np.random.randint(len(parameter["categories"]))]
        value = draw(parameter["lb"], parameter["ub"], log=parameter["type"].startswith("pow"))
        return round(value) if parameter["type"].endswith("int") else value


# -- ZOOpt


class ValueType:
    DISCRETE, GRID, CONTINUOUS = range(3)


class Globals:
    """ZOOpt's module-level state: the decimals of the last created space."""

    def __init__(self) -> None:
        self.float_precisions: list[float | None] = []


GLOBALS = Globals()


class Dimension2:
    def __init__(self, dimensions: list[tuple[Any, ...]]) -> None:
        self.dimensions = dimensions
        GLOBALS.float_precisions = [
            one[2] if one[0] == ValueType.CONTINUOUS else None for one in dimensions
        ]


class Parameter:
    def __init__(self, budget: int) -> None:
        self.budget = budget


class Solution:
    def __init__(self, x: list[Any]) -> None:
        self.x = x

    def get_x(self) -> list[Any]:
        return self.x

    def set_x(self, x: list[Any]) -> None:
        self.x = x


class SRacosTune:
    """Return no suggestion after the initial ones until a result arrives, even if all results have
    arrived before.
    """

    INITIAL = 4

    def __init__(self, dimension: Dimension2, parameter: Parameter, parallel_num: int) -> None:
        self.dimensions, self.budget = dimension.dimensions, parameter.budget
        self.suggested = 0
        self.semaphore = 0
        self.best: tuple[float, list[Any]] = (math.inf, [])

    def suggest(self) -> Solution | str | None:
        if self.suggested >= self.budget:
            return "FINISHED"
        if self.suggested >= self.INITIAL and not self.semaphore:
            return None
        self.suggested += 1
        near = self.best[1] or [None] * len(self.dimensions)
        return Solution(
            [
                self._draw(dimension, step, value)
                for dimension, step, value in zip(
                    self.dimensions, GLOBALS.float_precisions, near, strict=True
                )
            ]
        )

    def complete(self, solution: Solution, loss: float) -> None:
        if loss < self.best[0]:
            self.best = (loss, solution.x)

    @staticmethod
    def _draw(dimension: tuple[Any, ...], step: float | None, near: Any) -> Any:
        kind, values = dimension[:2]
        if kind == ValueType.GRID:
            return values[np.random.randint(len(values))]
        if kind == ValueType.DISCRETE:
            return round(draw(*values))
        assert step is not None
        return round(draw(*values, near=near) / step) * step


MODULES: dict[str, dict[str, dict[str, Any]]] = {
    "ax": {
        "ax": {},
        "ax.service.ax_client": {"AxClient": AxClient, "ObjectiveProperties": ObjectiveProperties},
        "ax.exceptions.generation_strategy": {
            "MaxParallelismReachedException": MaxParallelismReachedException
        },
        "ax.exceptions.core": {"DataRequiredError": DataRequiredError},
        "ax.utils.common.logger": {"ROOT_STREAM_HANDLER": logging.NullHandler()},
    },
    "hpbandster": {
        "ConfigSpace": {
            "ConfigurationSpace": ConfigurationSpace,
            "CategoricalHyperparameter": CategoricalHyperparameter,
            "UniformFloatHyperparameter": UniformFloatHyperparameter,
            "UniformIntegerHyperparameter": UniformIntegerHyperparameter,
        },
        "hpbandster": {},
        "hpbandster.optimizers.config_generators.bohb": {"BOHB": BOHB},
    },
    "hebo": {
        "hebo": {},
        "hebo.design_space.design_space": {"DesignSpace": DesignSpace},
        "hebo.optimizers.hebo": {"HEBO": HEBO},
    },
    "zoopt": {
        "zoopt": {"ValueType": ValueType, "Dimension2": Dimension2, "Parameter": Parameter},
        "zoopt.utils.zoo_global": {"gl": GLOBALS},
        "zoopt.algos.opt_algorithms.racos.sracos": {"SRacosTune": SRacosTune},
    },
}
