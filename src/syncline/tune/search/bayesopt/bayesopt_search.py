"""Suggestions of bayesian-optimization: a Gaussian process over real numbers.

Works with its versions 1.4 and later, 2 and 3. Log-uniform parameters are searched by their
logarithm, quantized ones are rounded.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.tune.search.library_searcher import LibrarySearcher, load_library
from syncline.tune.search.parameters import SearchSpace
from syncline.tune.search.util import flatten_dict

logger = logging.getLogger(__name__)

_ACQUISITIONS = {
    "ucb": ("UpperConfidenceBound", "kappa"),
    "ei": ("ExpectedImprovement", "xi"),
    "poi": ("ProbabilityOfImprovement", "xi"),
}
_UTILITY = {"kind": "ucb", "kappa": 2.576, "xi": 0.0}


@dataclass(frozen=True)
class _Ticket:
    """A trial that runs."""

    drawn: dict[str, float]
    is_random: bool
    """Whether it is one of the first, which do not go by the model."""


class BayesOptSearch(LibrarySearcher):
    """Searches with bayesian-optimization.

    Args:
        space: a search space of ours with real numbers only, or a dictionary of (lower, upper).
            Left out: the tuner's.
        metric: the result to go by.
        mode: "min" or "max".
        points_to_evaluate: configurations to try first, each with all parameters.
        utility_kwargs: `kind` ("ucb", "ei" or "poi"), `kappa` for "ucb", `xi` for the others; the
            default is "ucb" with 2.576.
        random_state: makes the search repeatable.
        random_search_steps: how many trials are random. The first one that is not waits until all
            of these have ended.
        verbose: how much the library prints, 0 to 2.
        patience: the search ends when a configuration was suggested more often than this.
        skip_duplicate: do not try a configuration again.
        analysis: of an earlier experiment, to learn from.
        repeat_float_precision: after how many decimals two numbers count as the same.
    """

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        utility_kwargs: dict[str, Any] | None = None,
        random_state: int = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        repeat_float_precision: int = 5,
    ) -> None:
        _bayes_opt()
        if isinstance(repeat_float_precision, bool) or not isinstance(repeat_float_precision, int):
            raise TypeError(
                f"`repeat_float_precision` must be a whole number of decimals, not {repeat_float_precision!r}."
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
                f"utility_kwargs['kind'] must be one of {', '.join(_ACQUISITIONS)}, not {self._utility['kind']!r}."
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
        self._held_back: list[tuple[dict[str, float], float]] = []
        self._utility_function: Any = None
        super().__init__(space, metric, mode, points_to_evaluate)

    def register_analysis(self, analysis: Any) -> None:
        """Learns from the trials of an earlier experiment. RuntimeError while metric, mode and the
        search space are not known.
        """
        self._start_if_complete()
        if self._optimizer is None:
            raise RuntimeError(
                "BayesOptSearch cannot learn from an analysis before it knows metric, mode and the search space."
            )
        self._learn_from(self._optimizer, analysis)

    def _learn_from(self, optimizer: Any, analysis: Any) -> None:
        for trial in analysis.trials:
            loss = self._loss(trial.last_result)
            if loss is not None:
                config = (
                    trial.config
                    if self._space is None
                    else {k: v for k, v in trial.config.items() if self._space.knows(k)}
                )
                _register(optimizer, self._drawn(config), loss)

    def _attributes(self) -> dict[str, Any]:
        # Used up when the search starts, and full of what does not belong into the state of a
        # searcher.
        return (
            {**self.__dict__, "_analysis": None} if self._optimizer is not None else self.__dict__
        )

    def _drawn(self, point: Mapping[str, Any]) -> dict[str, Any]:
        drawn = super()._drawn(point)
        return {
            key: math.log(value) if self._is_log(key) else value for key, value in drawn.items()
        }

    def _config(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        return super()._config(
            {key: math.exp(value) if self._is_log(key) else value for key, value in drawn.items()}
        )

    def _is_log(self, key: str) -> bool:
        return self._space is not None and self._space.parameters[key].law == "log"

    def _converted(self, space: SearchSpace) -> dict[str, tuple[float, float]]:
        for parameter in space.parameters.values():
            if parameter.kind != "float" or parameter.law == "normal":
                raise parameter.refusal("BayesOptSearch", "uniform and log-uniform floats")
        bounds = {
            parameter.key: (parameter.low, parameter.high)
            for parameter in space.parameters.values()
        }
        logs = {key for key, parameter in space.parameters.items() if parameter.law == "log"}
        return {
            key: (math.log(low), math.log(high)) if key in logs else (low, high)
            for key, (low, high) in bounds.items()
        }

    def _start(self) -> Any:
        bayes_opt = _bayes_opt()
        options = {
            "f": None,
            "pbounds": self._library_space,
            "random_state": self._random_state,
            "verbose": self._verbose,
        }
        options["allow_duplicate_points"] = True
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

    def _ask(self) -> tuple[_Ticket, dict[str, Any]] | str | None:
        if self._random_left > 0:
            return self._asked(self._suggestion())
        if self._random_running > 0:
            return None
        while True:
            drawn = self._suggestion()
            if self._rounded(drawn) in self._failed:
                # The model cannot know of failures, and would come back to them for ever.
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
                    "BayesOptSearch has converged: it came to %s more than `patience` (%d) times, and ends the search. "
                    "For more trials, raise `patience` or widen the search space.",
                    self._config(drawn),
                    self._patience,
                )
                return self.FINISHED
            if self._tickets:
                # What the trials that still run give may lead elsewhere.
                return None

    def _ask_for(self, point: Mapping[str, Any]) -> tuple[_Ticket, dict[str, Any]]:
        return self._asked(self._drawn(point))

    def _asked(self, drawn: dict[str, float]) -> tuple[_Ticket, dict[str, Any]]:
        is_random = self._random_left > 0
        self._random_left -= is_random
        self._random_running += is_random
        self._suggested[self._rounded(drawn)] += 1
        return _Ticket(drawn, is_random), self._config(drawn)

    def _tell(self, ticket: _Ticket, loss: float, result: Mapping[str, Any]) -> None:
        self._held_back.append((ticket.drawn, loss))
        self._ended(ticket)

    def _take_back(self, ticket: _Ticket) -> None:
        self._failed.add(self._rounded(ticket.drawn))
        self._ended(ticket)

    def _ended(self, ticket: _Ticket) -> None:
        self._random_running -= ticket.is_random
        if self._random_left or self._random_running:
            # Once one result is known, suggestions are no longer random.
            return
        for drawn, loss in self._held_back:
            _register(self._optimizer, drawn, loss)
        self._held_back = []

    def _suggestion(self) -> dict[str, float]:
        drawn = (
            self._optimizer.suggest(self._utility_function)
            if self._utility_function is not None
            else self._optimizer.suggest()
        )
        return self._on_steps({key: float(value) for key, value in drawn.items()})

    def _on_steps(self, drawn: dict[str, float]) -> dict[str, float]:
        """What the trial will get, so that the model learns of that one."""
        return (
            self._drawn(flatten_dict(self._config(drawn), flatten_list=True))
            if self._space is not None
            else drawn
        )

    def _rounded(self, drawn: Mapping[str, float]) -> tuple[float, ...]:
        return tuple(round(drawn[key], self._decimals) for key in sorted(drawn))


def _bayes_opt() -> Any:
    return load_library("bayes_opt", "bayesian-optimization", "BayesOptSearch")


def _register(optimizer: Any, drawn: Mapping[str, float], loss: float) -> None:
    """The library maximizes."""
    optimizer.register(params=drawn, target=-loss)
