"""`BasicVariantGenerator`: grid search and random search, the default search algorithm.

Configurations are generated lazily, so a large grid costs nothing. The random state of user
functions in the space is not managed.
"""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Sequence

import cloudpickle
import numpy as np

from syncline.suggestions import did_you_mean, suggest_arguments
from syncline.tune.result import Config, Metrics
from syncline.tune.search.sample import (
    Domain,
    RandomSource,
    RandomState,
    as_random_source,
    fresh_generator,
)
from syncline.tune.search.search_algorithm import SearchAlgorithm, Suggestion
from syncline.tune.search.searcher import MetricNames, Modes
from syncline.tune.search.spec_view import Value
from syncline.tune.search.variant_generator import (
    ParsedSpace,
    Variants,
    flat_params,
    format_vars,
    joined,
)

logger = logging.getLogger(__name__)


@suggest_arguments
class BasicVariantGenerator(SearchAlgorithm):
    """Try each combination of the grids once per sample, and draw the other parameters.

    Args:
        points_to_evaluate: Initial configurations, nested like the space. Each replaces one sample.
            Omitted parameters are drawn, and omitted grids are searched.
        max_concurrent: Maximal number of concurrent trials; 0 for no limit.
        constant_grid_search: If True, all combinations of one sample share the drawn values;
            otherwise each combination has its own.
        random_state: Seed, or numpy generator, which advances. With None, the seed comes from
            numpy's global state.

    Raises:
        ValueError: `max_concurrent` is negative.
    """

    def __init__(
        self,
        points_to_evaluate: Sequence[Config] | None = None,
        max_concurrent: int = 0,
        constant_grid_search: bool = False,
        random_state: RandomState = None,
    ) -> None:
        if max_concurrent < 0:
            raise ValueError(
                f"`max_concurrent` must be 0 (no limit) or more, not {max_concurrent}."
            )
        self.max_concurrent = max_concurrent
        self._points_to_evaluate = list(points_to_evaluate or [])
        self._constant_grid_search = constant_grid_search
        self._source: RandomSource | None = (
            None if random_state is None else as_random_source(random_state)
        )
        self._space = ParsedSpace.parse({})
        self._starts: list[ParsedSpace] = []
        """Spaces of initial points that have not started."""
        self._samples_left: float = 0
        self._total: float = 0
        self._variants: Variants | None = None
        """Variants of the current sample."""
        self._counter = 0
        self._live: set[str] = set()

    def configure(
        self, metric: MetricNames, mode: Modes, param_space: Config, num_samples: int
    ) -> None:
        """Set the search space (see `SearchAlgorithm`).

        Raises:
            ValueError: A parameter is invalid, or a point has a key that the space lacks.
            TypeError: A parameter is invalid.
        """
        self.metric, self.mode = metric, mode
        self._space = ParsedSpace.parse(param_space)
        self._starts = [
            ParsedSpace.parse(_overlaid(self._space.skeleton, point, ()))
            for point in self._points_to_evaluate
        ]
        self._variants, self._counter, self._live = None, 0, set()
        samples = math.inf if num_samples == -1 else num_samples
        self._samples_left = max(0, samples - len(self._starts))
        self._total = (
            sum(start.count_variants() for start in self._starts)
            + self._samples_left * self._space.count_variants()
        )
        if self._source is None:
            self._source = fresh_generator()

    def next_trial(self, trial_id: str) -> Suggestion | None:
        if self.is_finished() or 0 < self.max_concurrent <= len(self._live):
            return None
        assert self._source is not None, "configure() comes first"
        if self._variants is None:
            self._variants = self._begin_sample(self._source)
        drawn, config = self._variants.draw(self._source)
        if self._variants.exhausted:
            self._variants = None
        number = self._counter
        self._counter += 1
        self._live.add(trial_id)
        tag = f"{number}_{format_vars(drawn)}" if drawn else str(number)
        return Suggestion(config=config, evaluated_params=flat_params(drawn), tag=tag)

    def is_finished(self) -> bool:
        return self._variants is None and not self._starts and self._samples_left <= 0

    def add_samples(self, n: int) -> None:
        self._samples_left += n
        self._total += n * self._space.count_variants()

    @property
    def total_samples(self) -> float:
        # The size of grids inside drawn values is unknown until they are drawn.
        return max(self._total, self._counter)

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        self._live.discard(trial_id)

    def get_state(self) -> bytes:
        state: bytes = cloudpickle.dumps(self.__dict__)
        return state

    def set_state(self, state: bytes) -> None:
        self.__dict__.update(pickle.loads(state))

    def _begin_sample(self, source: RandomSource) -> Variants:
        if self._starts:
            return Variants(self._starts.pop(0), self._constant_grid_search, source)
        self._samples_left -= 1
        return Variants(self._space, self._constant_grid_search, source)


def _overlaid(space: Value, point: Value, path: tuple[Value, ...]) -> Value:
    """Return the space with domains replaced by the values of a point.

    Raises:
        ValueError: The point has a key that the space lacks.
    """
    if isinstance(space, dict) and isinstance(point, dict):
        for key in point:
            if key not in space:
                names = [joined((*path, other)) for other in space]
                raise ValueError(
                    f"`points_to_evaluate` has a value for `{joined((*path, key))}`, which is not "
                    f"in the search space.{did_you_mean(joined((*path, key)), names)} It has "
                    f"{', '.join(names)}. Correct the name, or add the key to `param_space`."
                )
        return {
            key: _overlaid(value, point[key], (*path, key)) if key in point else value
            for key, value in space.items()
        }
    if (
        isinstance(space, list | tuple)
        and isinstance(point, list | tuple)
        and len(space) == len(point)
    ):
        items = [
            _overlaid(old, new, (*path, index))
            for index, (old, new) in enumerate(zip(space, point, strict=True))
        ]
        return items if isinstance(space, list) else tuple(items)
    fits = space.is_valid(point) if isinstance(space, Domain) else space is point or space == point
    if not np.all(fits):
        outside = space.domain_str if isinstance(space, Domain) else repr(space)
        logger.warning(
            "`points_to_evaluate` has the value %r for `%s`, which is not in the search space: %s.",
            point,
            joined(path),
            outside,
        )
    return point
