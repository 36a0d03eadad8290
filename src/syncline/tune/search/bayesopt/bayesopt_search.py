"""`BayesOptSearch`: a Gaussian process over real numbers with bayesian-optimization 1.4 or later.

Log-uniform parameters are searched by their logarithm, quantized ones are rounded.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from syncline.tune.result import Config
from syncline.tune.search.library_searcher import LibraryObject, LibrarySearcher, Values
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.util import flatten_dict

logger = logging.getLogger(__name__)

_ACQUISITIONS = {
    "ucb": ("UpperConfidenceBound", "kappa"),
    "ei": ("ExpectedImprovement", "xi"),
    "poi": ("ProbabilityOfImprovement", "xi"),
}
_UTILITY = {"kind": "ucb", "kappa": 2.576, "xi": 0.0}


@dataclass(frozen=True)
class _Candidate:
    """Suggestion of a running trial."""

    drawn: dict[str, float]
    is_random: bool
    """True if it is an initial random suggestion, independent of the model."""


class BayesOptSearch(LibrarySearcher):
    """Search with bayesian-optimization.

    Args:
        space: Search space with real numbers only, or dictionary of (lower, upper). Default: the
            tuner's space.
        metric: Metric to optimize.
        mode: "min" or "max".
        points_to_evaluate: Initial configurations with all parameters.
        utility_kwargs: `kind` ("ucb", "ei" or "poi"), `kappa` for "ucb", `xi` for the others.
            Default: "ucb" with 2.576.
        random_state: Random seed.
        random_search_steps: Number of initial random trials. The first trial of the model waits
            until all of them have ended.
        verbose: Verbosity of the library, 0 to 2.
        patience: Number of suggestions of the same configuration that ends the search.
        skip_duplicate: If True, do not run a configuration again.
        analysis: Analysis of an earlier experiment to learn from.
        repeat_float_precision: Number of decimals in the comparison of configurations.

    Raises:
        ImportError: bayesian-optimization is not installed.
        TypeError: `repeat_float_precision` is not an integer.
        ValueError: An argument is out of range.
    """

    package = "bayesian-optimization"
    supported = "uniform and log-uniform floats"

    def __init__(
        self,
        space: Config | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[Config] | None = None,
        utility_kwargs: Config | None = None,
        random_state: int = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: LibraryObject = None,
        repeat_float_precision: int = 5,
    ) -> None:
        self.load("bayes_opt")
        if isinstance(repeat_float_precision, bool) or not isinstance(repeat_float_precision, int):
            raise TypeError(
                f"`repeat_float_precision` must be an integer, not {repeat_float_precision!r}."
            )
        if repeat_float_precision < 0:
            raise ValueError(
                f"`repeat_float_precision` must be 0 or more, not {repeat_float_precision}."
            )
        if patience <= 0:
            raise ValueError(f"`patience` must be above 0, not {patience}.")
        self._utility = dict(utility_kwargs or _UTILITY)
        if self._utility.get("kind", "ucb") not in _ACQUISITIONS:
            raise ValueError(
                f"utility_kwargs['kind'] must be one of {', '.join(_ACQUISITIONS)}, not "
                f"{self._utility['kind']!r}."
            )
        self._random_state = random_state
        self._random = np.random.RandomState(random_state)
        self._failed: set[tuple[float, ...]] = set()
        self._random_left = random_search_steps
        self._verbose = verbose
        self._patience = patience
        self._skip_duplicate = skip_duplicate
        self._analysis = analysis
        self._decimals = repeat_float_precision
        self._suggested: Counter[tuple[float, ...]] = Counter()
        self._random_running = 0
        self._unregistered: list[tuple[dict[str, float], float]] = []
        self._utility_function: LibraryObject = None
        super().__init__(space, metric, mode, points_to_evaluate)

    def register_analysis(self, analysis: LibraryObject) -> None:
        """Learn from the trials of an earlier experiment.

        Raises:
            RuntimeError: Metric, mode or space are unset.
        """
        self._start("learn from an analysis")
        self._learn_from(self._optimizer, analysis)

    def _learn_from(self, optimizer: LibraryObject, analysis: LibraryObject) -> None:
        for trial in analysis.trials:
            loss = self._loss(trial.last_result)
            if loss is not None:
                _register(optimizer, self._drawn(self._searched(trial.config)), loss)

    def _attributes(self) -> Config:
        # The analysis is not needed after the start, and is large.
        if self._optimizer is None:
            return self.__dict__
        return {**self.__dict__, "_analysis": None}

    def _drawn(self, point: Values) -> Config:
        drawn = super()._drawn(point)
        return {
            key: math.log(value) if self._is_log(key) else value for key, value in drawn.items()
        }

    def _config(self, drawn: Values) -> Config:
        return super()._config(
            {key: math.exp(value) if self._is_log(key) else value for key, value in drawn.items()}
        )

    def _is_log(self, key: str) -> bool:
        return self._space is not None and self._space.parameters[key].distribution == "log"

    @classmethod
    def _supports(cls, parameter: Parameter) -> bool:
        return parameter.kind == "float" and super()._supports(parameter)

    @classmethod
    def _convert_space(cls, space: SearchSpace) -> dict[str, tuple[float, float]]:
        return {
            key: (math.log(parameter.low), math.log(parameter.high))
            if parameter.distribution == "log"
            else (parameter.low, parameter.high)
            for key, parameter in space.parameters.items()
        }

    def _create_optimizer(self) -> LibraryObject:
        bayes_opt = self.load("bayes_opt")
        options = {
            "f": None,
            "pbounds": self._library_space,
            "random_state": self._random_state,
            "verbose": self._verbose,
            "allow_duplicate_points": True,
        }
        if hasattr(bayes_opt, "UtilityFunction") and not hasattr(bayes_opt, "acquisition"):
            self._utility_function = bayes_opt.UtilityFunction(**self._utility)
        else:
            name, constant = _ACQUISITIONS[self._utility.get("kind", "ucb")]
            value = self._utility.get(constant, _UTILITY[constant])
            options["acquisition_function"] = getattr(bayes_opt.acquisition, name)(
                **{constant: value}
            )
        optimizer = bayes_opt.BayesianOptimization(**options)
        if self._analysis is not None:
            self._learn_from(optimizer, self._analysis)
        return optimizer

    def _ask(self) -> tuple[_Candidate, Config] | str | None:
        if self._random_left > 0:
            return self._asked(self._suggestion())
        if self._random_running > 0:
            return None
        while True:
            drawn = self._suggestion()
            if self._rounded(drawn) in self._failed:
                # The model does not know of failures and would suggest them again.
                return self._asked(
                    self._on_steps(
                        {
                            key: self._random.uniform(*bounds)
                            for key, bounds in self._library_space.items()
                        }
                    )
                )
            times = self._suggested[self._rounded(drawn)] + 1
            if times == 1 or (times <= self._patience and not self._skip_duplicate):
                return self._asked(drawn)
            self._suggested[self._rounded(drawn)] = times
            if times > self._patience:
                logger.warning(
                    "BayesOptSearch has converged and ends the search: it suggested %s more than "
                    "`patience` (%d) times. For more trials, increase `patience` or widen the "
                    "search space.",
                    self._config(drawn),
                    self._patience,
                )
                return self.FINISHED
            if self._candidates:
                # Results of running trials may change the suggestion.
                return None

    def _ask_point(self, point: Values) -> tuple[_Candidate, Config]:
        return self._asked(self._drawn(point))

    def _asked(self, drawn: dict[str, float]) -> tuple[_Candidate, Config]:
        is_random = self._random_left > 0
        self._random_left -= is_random
        self._random_running += is_random
        self._suggested[self._rounded(drawn)] += 1
        return _Candidate(drawn, is_random), self._config(drawn)

    def _tell(self, candidate: _Candidate, loss: float, result: Values) -> None:
        self._unregistered.append((candidate.drawn, loss))
        self._end(candidate)

    def _abandon(self, candidate: _Candidate) -> None:
        self._failed.add(self._rounded(candidate.drawn))
        self._end(candidate)

    def _end(self, candidate: _Candidate) -> None:
        self._random_running -= candidate.is_random
        if self._random_left or self._random_running:
            # The library's suggestions are random only until it has a result.
            return
        for drawn, loss in self._unregistered:
            _register(self._optimizer, drawn, loss)
        self._unregistered = []

    def _suggestion(self) -> dict[str, float]:
        if self._utility_function is not None:
            drawn = self._optimizer.suggest(self._utility_function)
        else:
            drawn = self._optimizer.suggest()
        return self._on_steps({key: float(value) for key, value in drawn.items()})

    def _on_steps(self, drawn: dict[str, float]) -> dict[str, float]:
        """Round to the values of the trial, so that the model learns from these."""
        if self._space is None:
            return drawn
        return self._drawn(flatten_dict(self._config(drawn), flatten_list=True))

    def _rounded(self, drawn: Mapping[str, float]) -> tuple[float, ...]:
        return tuple(round(drawn[key], self._decimals) for key in sorted(drawn))


def _register(optimizer: LibraryObject, drawn: Mapping[str, float], loss: float) -> None:
    optimizer.register(params=drawn, target=-loss)  # The library maximizes.
