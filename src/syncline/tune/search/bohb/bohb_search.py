"""`TuneBOHB`: BOHB (Falkner, Klein and Hutter: BOHB, ICML 2018) with HpBandSter. Use it with the
scheduler `HyperBandForBOHB`.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from syncline.tune.result import Config, Metrics
from syncline.tune.search.library_searcher import LibraryObject, LibrarySearcher, RandomStates
from syncline.tune.search.parameters import Parameter, SearchSpace

logger = logging.getLogger(__name__)


class TuneBOHB(LibrarySearcher):
    """Search with HpBandSter's BOHB, which models the metric at the budgets of `HyperBandForBOHB`.

    Args:
        space: Search space, or `ConfigSpace.ConfigurationSpace`. Default: the tuner's space.
        bohb_config: Options of HpBandSter's BOHB, such as `random_fraction`.
        metric: Metric to optimize.
        mode: "min" or "max".
        points_to_evaluate: Initial configurations with all parameters.
        seed: Random seed.
        max_concurrent: Maximal number of concurrent trials, excluding paused ones; 0 for no limit.

    Raises:
        ImportError: HpBandSter or ConfigSpace is not installed.
        TypeError: `space` is not a search space.
    """

    package = "hpbandster"

    def __init__(
        self,
        space: LibraryObject = None,
        bohb_config: Config | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[Config] | None = None,
        seed: int | None = None,
        max_concurrent: int = 0,
    ) -> None:
        _config_space()
        _bohb()
        self._bohb_config = dict(bohb_config or {})
        self._seed = seed
        self._random = RandomStates(seed)
        self._max_concurrent = max_concurrent
        self._running: set[str] = set()
        self._has_warned = False
        super().__init__(space, metric, mode, points_to_evaluate)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._max_concurrent = max_concurrent
        return True

    def suggest(self, trial_id: str) -> Config | str | None:
        if 0 < self._max_concurrent <= len(self._running):
            return None
        config = super().suggest(trial_id)
        if trial_id in self._candidates:
            self._running.add(trial_id)
        return config

    def on_trial_result(self, trial_id: str, result: Metrics) -> None:
        """Report a result at a budget, which the scheduler has added to it."""
        if trial_id not in self._candidates or self._metric not in result:
            return
        if "hyperband_info" not in result and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "TuneBOHB does not learn from results without a budget. Use the scheduler "
                "HyperBandForBOHB."
            )
        budget = result.get("hyperband_info", {}).get("budget")
        if budget is None:
            return
        loss = self._loss(result)
        # HpBandSter treats an infinite loss as a bad result, and only ranks losses.
        outcome = {"loss": math.inf if loss is None else loss}
        job = SimpleNamespace(
            result=outcome,
            kwargs={"budget": budget, "config": dict(self._candidates[trial_id])},
            exception=None,
        )
        with self._isolated():
            self._optimizer.new_result(job)

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        self._candidates.pop(trial_id, None)
        self._running.discard(trial_id)

    def on_pause(self, trial_id: str) -> None:
        self._running.discard(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self._running.add(trial_id)

    @classmethod
    def _convert_space(cls, space: SearchSpace) -> LibraryObject:
        converted = _config_space().ConfigurationSpace()
        converted.add([_hyperparameter(parameter) for parameter in space.parameters.values()])
        return converted

    def _check_space(self, space: LibraryObject) -> LibraryObject:
        if not isinstance(space, _config_space().ConfigurationSpace):
            raise TypeError(
                f"`space` must be a search space or a ConfigSpace.ConfigurationSpace, not "
                f"{space!r}."
            )
        return space

    def _create_optimizer(self) -> LibraryObject:
        if self._seed is not None:
            self._library_space.seed(self._seed)
        return _bohb().BOHB(self._library_space, **self._bohb_config)

    def _ask(self) -> tuple[Config, Config]:
        with self._isolated():
            drawn, _ = self._optimizer.get_config(None)
        return drawn, self._config(drawn)

    @contextmanager
    def _isolated(self) -> Iterator[None]:
        """Protect numpy's global state, and suppress warnings of HpBandSter's dependencies."""
        with self._random.active(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield


def _config_space() -> LibraryObject:
    return TuneBOHB.load("ConfigSpace", package="ConfigSpace")


def _bohb() -> LibraryObject:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TuneBOHB.load("hpbandster.optimizers.config_generators.bohb")


def _hyperparameter(parameter: Parameter) -> LibraryObject:
    library = _config_space()
    if parameter.kind == "choice":
        return library.CategoricalHyperparameter(
            parameter.key, choices=list(range(len(parameter.choices)))
        )
    kind = (
        library.UniformIntegerHyperparameter
        if parameter.kind == "integer"
        else library.UniformFloatHyperparameter
    )
    return kind(
        parameter.key,
        lower=parameter.low,
        upper=parameter.high,
        log=parameter.distribution == "log",
    )
