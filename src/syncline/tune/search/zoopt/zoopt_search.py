"""`ZOOptSearch`: asynchronous sequential randomized coordinate shrinking with ZOOpt."""

from __future__ import annotations

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

_PRECISION = 1e-12


class ZOOptSearch(LibrarySearcher):
    """Search with ZOOpt (0.4.1 or later).

    ZOOpt has no seed argument; `numpy.random.seed` before the creation makes the search
    reproducible. A failed trial gets the worst result, because ZOOpt waits for all initial trials.

    Args:
        algo: "asracos" or "sracos".
        budget: Number of trials, equal to `num_samples`.
        dim_dict: Search space, or dictionary of ZOOpt's dimensions. Default: the tuner's space.
        metric: Metric to optimize.
        mode: "min" or "max".
        points_to_evaluate: Initial configurations with all parameters.
        parallel_num: Number of concurrent trials.
        **kwargs: Options of ZOOpt's optimizer.

    Raises:
        ImportError: ZOOpt is not installed.
        ValueError: `budget` is missing, or `algo` is unknown.
    """

    package = "zoopt"
    supported = "uniform numbers and choices"

    def __init__(
        self,
        algo: str = "asracos",
        budget: int | None = None,
        dim_dict: Config | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[Config] | None = None,
        parallel_num: int = 1,
        **kwargs: object,
    ) -> None:
        self.load("zoopt")
        if budget is None:
            raise ValueError(
                "ZOOptSearch needs `budget`, the number of trials. Set it to `num_samples`."
            )
        if algo.lower() not in ("asracos", "sracos"):
            raise ValueError(f"`algo` must be 'asracos' or 'sracos', not {algo!r}.")
        self._budget = budget
        self._parallel_num = parallel_num
        self._kwargs = kwargs
        self._random = RandomStates(None)
        self._decimals: list[LibraryObject] = []
        super().__init__(dim_dict, metric, mode, points_to_evaluate)

    @classmethod
    def _supports(cls, parameter: Parameter) -> bool:
        return parameter.distribution == "uniform"

    @classmethod
    def _convert_space(cls, space: SearchSpace) -> Config:
        return {key: _dimension(parameter) for key, parameter in space.parameters.items()}

    def _create_optimizer(self) -> LibraryObject:
        zoopt = self.load("zoopt")
        dimension = zoopt.Dimension2(list(self._library_space.values()))
        self._decimals = self.load("zoopt.utils.zoo_global").gl.float_precisions
        racos = self.load("zoopt.algos.opt_algorithms.racos.sracos")
        parameter = zoopt.Parameter(budget=self._budget)
        with self._globals():
            return racos.SRacosTune(
                dimension=dimension,
                parameter=parameter,
                parallel_num=self._parallel_num,
                **self._kwargs,
            )

    def _ask_point(self, point: Values) -> tuple[LibraryObject, Config] | str | None:
        drawn = self._drawn(point)
        asked = self._ask()
        if asked is None or isinstance(asked, str):
            return asked
        # Replace ZOOpt's solution, because its own option supports only one initial point.
        asked[0].set_x([drawn[key] for key in self._library_space])
        return asked[0], self._config(drawn)

    def _ask(self) -> tuple[LibraryObject, Config] | str | None:
        with self._globals():
            solution = self._optimizer.suggest()
            if solution is None and not self._candidates:
                # ZOOpt waits for the initial trials even if they have ended already.
                self._optimizer.semaphore = 1
                solution = self._optimizer.suggest()
        if solution is None:
            return None
        if isinstance(solution, str):
            return self.FINISHED
        return solution, self._config(dict(zip(self._library_space, solution.get_x(), strict=True)))

    def _tell(self, candidate: LibraryObject, loss: float, result: Values) -> None:
        with self._globals():
            self._optimizer.complete(candidate, loss)

    def _abandon(self, candidate: LibraryObject) -> None:
        # ZOOpt only ranks losses, so an infinite one is safe.
        self._tell(candidate, math.inf, {})

    @contextmanager
    def _globals(self) -> Iterator[None]:
        """Protect numpy's global state, and restore this space's decimals, which ZOOpt keeps in a
        module for the last created space.
        """
        self.load("zoopt.utils.zoo_global").gl.float_precisions = self._decimals
        with self._random.active():
            yield


def _dimension(parameter: Parameter) -> LibraryObject:
    types = ZOOptSearch.load("zoopt").ValueType
    if parameter.kind == "choice":
        # Indices, because ZOOpt would convert all choices to one type.
        return types.GRID, list(range(len(parameter.choices)))
    if parameter.kind == "integer":
        return types.DISCRETE, [parameter.low, parameter.high], True
    return types.CONTINUOUS, [parameter.low, parameter.high], parameter.step or _PRECISION
