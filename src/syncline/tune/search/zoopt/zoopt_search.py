"""Suggestions of ZOOpt's asynchronous sequential randomized coordinate shrinking."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from syncline.tune.search.library_searcher import LibrarySearcher, RandomStates, load_library
from syncline.tune.search.parameters import Parameter, SearchSpace

_PRECISION = 1e-12


class ZOOptSearch(LibrarySearcher):
    """Searches with ZOOpt (0.4.1 or later).

    Args:
        algo: "asracos" or "sracos".
        budget: how many trials there will be; must be `num_samples`.
        dim_dict: a search space of ours, or a dictionary of ZOOpt's dimensions. Left out: the
            tuner's.
        metric: the result to go by.
        mode: "min" or "max".
        points_to_evaluate: configurations to try first, each with all parameters.
        parallel_num: how many trials run at once. **kwargs: for ZOOpt's optimizer.

    ZOOpt takes no seed: `numpy.random.seed`, called before, makes the search repeatable. A trial
    that failed counts as the worst, because ZOOpt waits for each of the first ones.
    """

    def __init__(
        self,
        algo: str = "asracos",
        budget: int | None = None,
        dim_dict: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        parallel_num: int = 1,
        **kwargs: Any,
    ) -> None:
        _zoopt()
        if budget is None:
            raise ValueError(
                "ZOOptSearch needs `budget`, the number of trials: give it the same number as `num_samples`."
            )
        if algo.lower() not in ("asracos", "sracos"):
            raise ValueError(f"`algo` must be 'asracos' or 'sracos', not {algo!r}.")
        self._budget = budget
        self._parallel_num = parallel_num
        self._kwargs = kwargs
        self._random = RandomStates(None)
        self._decimals: list[Any] = []
        super().__init__(dim_dict, metric, mode, points_to_evaluate)

    def _converted(self, space: SearchSpace) -> dict[str, Any]:
        return {key: _dimension(parameter) for key, parameter in space.parameters.items()}

    def _start(self) -> Any:
        zoopt = _zoopt()
        dimension = zoopt.Dimension2(list(self._library_space.values()))
        self._decimals = load_library(
            "zoopt.utils.zoo_global", "zoopt", "ZOOptSearch"
        ).gl.float_precisions
        racos = load_library("zoopt.algos.opt_algorithms.racos.sracos", "zoopt", "ZOOptSearch")
        parameter = zoopt.Parameter(budget=self._budget)
        with self._globals():
            return racos.SRacosTune(
                dimension=dimension,
                parameter=parameter,
                parallel_num=self._parallel_num,
                **self._kwargs,
            )

    def _ask_for(self, point: Mapping[str, Any]) -> tuple[Any, dict[str, Any]] | str | None:
        drawn = self._drawn(point)
        asked = self._ask()
        if asked is None or isinstance(asked, str):
            return asked
        # Instead of what ZOOpt would have tried. Its own way takes the first point only.
        asked[0].set_x([drawn[key] for key in self._library_space])
        return asked[0], self._config(drawn)

    def _ask(self) -> tuple[Any, dict[str, Any]] | str | None:
        with self._globals():
            solution = self._optimizer.suggest()
            if solution is None and not self._tickets:
                # ZOOpt waits for the first trials even if they ended before it began to wait.
                self._optimizer.semaphore = 1
                solution = self._optimizer.suggest()
        if solution is None:
            return None
        if isinstance(solution, str):
            return self.FINISHED
        return solution, self._config(dict(zip(self._library_space, solution.get_x(), strict=True)))

    def _tell(self, ticket: Any, loss: float, result: Mapping[str, Any]) -> None:
        with self._globals():
            self._optimizer.complete(ticket, loss)

    def _take_back(self, ticket: Any) -> None:
        # ZOOpt only ranks, so this poisons nothing.
        self._tell(ticket, math.inf, {})

    @contextmanager
    def _globals(self) -> Iterator[None]:
        """ZOOpt draws from numpy's global state, and keeps the decimals of the last space that was
        made in a module.
        """
        load_library(
            "zoopt.utils.zoo_global", "zoopt", "ZOOptSearch"
        ).gl.float_precisions = self._decimals
        with self._random.in_use():
            yield


def _zoopt() -> Any:
    return load_library("zoopt", "zoopt", "ZOOptSearch")


def _dimension(parameter: Parameter) -> Any:
    types = _zoopt().ValueType
    if parameter.kind == "choice":
        # By index, because ZOOpt would make all choices one type.
        return types.GRID, list(range(len(parameter.choices)))
    if parameter.law != "uniform":
        raise parameter.refusal("ZOOptSearch", "uniform numbers and choices")
    if parameter.kind == "integer":
        return types.DISCRETE, [parameter.low, parameter.high], True
    return types.CONTINUOUS, [parameter.low, parameter.high], parameter.step or _PRECISION
