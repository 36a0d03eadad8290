"""`BasicVariantGenerator`: grids and random draws, without learning from results. What a search
uses when no other searcher is given.

Covered: points to start from, a limit on trials at once, random states, going on from a saved state
at any trial. Configurations are made when they are asked for, so the size of a grid costs nothing.
Not covered: the random state of functions in the space that draw themselves.
"""

from __future__ import annotations

import difflib
import logging
import math
import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np

from syncline.tune.search.sample import (
    Domain,
    RandomSource,
    RandomState,
    as_random_source,
    fresh_generator,
)
from syncline.tune.search.search_algorithm import SearchAlgorithm, Suggestion
from syncline.tune.search.variant_generator import (
    ParsedSpace,
    Variants,
    flat_params,
    format_vars,
    joined,
)

logger = logging.getLogger(__name__)


class BasicVariantGenerator(SearchAlgorithm):
    """Goes through every combination of the grids, once for each of `num_samples`, and draws the
    rest.

    Args:
        points_to_evaluate: Configurations to begin with, as nested as the space. Each takes the
            place of one sample; parameters that it leaves out are drawn, and grids that it leaves
            out are gone through.
        max_concurrent: So many trials run at once at most; 0 means no limit.
        constant_grid_search: Whether all combinations of one sample share what is drawn, instead of
            drawing anew for each.
        random_state: Makes the search repeatable: a seed, or a numpy generator, which then moves
            on. None seeds from numpy's global state.
    """

    def __init__(
        self,
        points_to_evaluate: Sequence[dict[str, Any]] | None = None,
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
        """The spaces of the points that were not begun yet."""
        self._samples_left: float = 0
        self._total: float = 0
        self._variants: Variants | None = None
        """The sample that is being gone through."""
        self._counter = 0
        self._live: set[str] = set()

    def configure(
        self, metric: Any, mode: Any, param_space: dict[str, Any], num_samples: int
    ) -> None:
        """See SearchAlgorithm. ValueError and TypeError name the parameter that cannot be searched,
        or that only a point has.
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
        # Grids inside of values that are drawn show only when they come up.
        return max(self._total, self._counter)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
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


def _overlaid(space: Any, point: Any, path: tuple[Any, ...]) -> Any:
    """The space with the values of a point in the place of domains. ValueError if the point has a
    key that the space has not.
    """
    if isinstance(space, dict) and isinstance(point, dict):
        for key in point:
            if key not in space:
                close = difflib.get_close_matches(str(key), map(str, space), n=1)
                raise ValueError(
                    f"`points_to_evaluate` has a value for `{joined((*path, key))}`, which the search space has not"
                    + (
                        f"; did you mean `{joined((*path, close[0]))}`? "
                        if close
                        else f": it has {list(space)}. "
                    )
                    + "Add the key to `param_space`."
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
            "`points_to_evaluate` gives `%s` the value %r, which is not in the search space: %s.",
            joined(path),
            point,
            outside,
        )
    return point
