"""`SearchGenerator`, the source of trials from a `Searcher`."""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Collection, Iterable
from typing import Any

import cloudpickle

from syncline.tune.result import Config, Metrics
from syncline.tune.search.repeater import Repeater
from syncline.tune.search.sample import fresh_generator
from syncline.tune.search.search_algorithm import SearchAlgorithm, Suggestion
from syncline.tune.search.searcher import (
    MetricNames,
    Modes,
    Searcher,
    capture_states,
    check_metric_and_mode,
    restore_states,
    searcher_chain,
    set_search_properties,
)
from syncline.tune.search.util import flatten_dict, merge_dicts
from syncline.tune.search.variant_generator import (
    ParsedSpace,
    Path,
    Variants,
    flat_params,
    format_vars,
    joined,
    leaves,
    value_at,
)

logger = logging.getLogger(__name__)


class SearchGenerator(SearchAlgorithm):
    """Source of `num_samples` trials from a searcher.

    Functions of the space (`sample_from`) are called with the suggested values. Parameters for
    which the searcher suggests no value are drawn at random. Results are flattened to keys `a/b`
    for the searcher.

    Args:
        searcher: The searcher.

    Raises:
        TypeError: `searcher` is not a Searcher.
    """

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(
                f"A search algorithm must be a BasicVariantGenerator or extend Searcher, but "
                f"{searcher!r} does neither."
            )
        self.searcher = searcher
        self._arguments: tuple[MetricNames, Modes, Config, int] | None = None
        """Arguments of `configure`, with the template of the space."""
        self._samples: float = 0
        self._counter = 0
        self._finished = False
        self._source = fresh_generator()

    def configure(
        self, metric: MetricNames, mode: Modes, param_space: Config, num_samples: int
    ) -> None:
        """Configure the searcher (see `SearchAlgorithm`).

        Raises:
            ValueError: The space has a grid or is not supported by the searcher, or the searcher
                has another metric or mode.
        """
        check_metric_and_mode(metric, mode)
        space, name = ParsedSpace.parse(param_space), _innermost_name(self.searcher)
        if space.grids:
            raise ValueError(
                f"`param_space` has a grid_search at {_listed(path for path, _ in space.grids)}, "
                f"which {name} does not support. Use tune.choice([...]), or omit `search_alg` to "
                f"try all values."
            )
        _check_same("metric", self.searcher.metric, metric, name)
        _check_same("mode", self.searcher.mode, mode, name)
        searched = {
            _unit(space.skeleton, path): path
            for path, domain in space.domains
            if not domain.is_function()
        }
        functions = {
            _unit(space.skeleton, path) for path, domain in space.domains if domain.is_function()
        }
        for_searcher = _without(space.skeleton, functions - set(searched))
        accepted = set_search_properties(
            self.searcher, metric, mode, for_searcher, num_samples=num_samples
        )
        if searched and not accepted:
            raise ValueError(
                f"{name} has its own search space or does not support spaces, but `param_space` "
                f"has parameters to search: {_listed(searched.values())}. Omit the space of the "
                f"searcher, or keep only constants in `param_space`."
            )
        self.metric, self.mode = self.searcher.metric or metric, self.searcher.mode or mode
        self._arguments = (metric, mode, space.skeleton, num_samples)
        self._samples = math.inf if num_samples == -1 else num_samples
        _warn_of_incomplete_group(self.searcher, num_samples)

    def next_trial(self, trial_id: str) -> Suggestion | None:
        if self.is_finished():
            return None
        assert self._arguments is not None, "configure() comes first"
        suggested = self.searcher.suggest(trial_id)
        if not isinstance(suggested, dict):
            if suggested not in (None, Searcher.FINISHED):
                raise TypeError(
                    f"{_innermost_name(self.searcher)}.suggest() must return a dictionary, None or "
                    f"FINISHED, not {suggested!r}."
                )
            self._finished = suggested is not None
            return None
        space = ParsedSpace.parse(merge_dicts(self._arguments[2], suggested))
        drawn, config = Variants(space, constant_grid_search=False, source=self._source).draw(
            self._source
        )
        given = leaves({(key,): value for key, value in suggested.items()})
        drawn = {path: value_at(config, path) for path, _ in given} | drawn
        number = self._counter
        self._counter += 1
        return Suggestion(
            config=config, evaluated_params=flat_params(drawn), tag=f"{number}_{format_vars(drawn)}"
        )

    def is_finished(self) -> bool:
        return self._finished or self._counter >= self._samples

    def add_samples(self, n: int) -> None:
        # Ask a finished searcher again, because its limit may have been raised as well.
        self._finished = False
        self._samples += n

    @property
    def total_samples(self) -> float:
        return self._counter if self._finished else self._samples

    def on_trial_result(self, trial_id: str, result: Metrics) -> None:
        self.searcher.on_trial_result(trial_id, flatten_dict(result))

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        self.searcher.on_trial_complete(
            trial_id, result=flatten_dict(result) if result else None, error=error
        )

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def get_state(self) -> bytes:
        own = {name: value for name, value in self.__dict__.items() if name != "searcher"}
        state: bytes = cloudpickle.dumps((own, capture_states(self.searcher)))
        return state

    def set_state(self, state: bytes) -> None:
        own, states = pickle.loads(state)
        if self._arguments is None:
            # The state of a searcher need not contain the properties that are set here.
            self.configure(*own["_arguments"])
        self.__dict__.update(own)
        restore_states(self.searcher, states)


def _innermost_name(searcher: Searcher) -> str:
    *_, innermost = searcher_chain(searcher)
    return type(innermost).__name__


def _warn_of_incomplete_group(searcher: Searcher, num_samples: int) -> None:
    for one in searcher_chain(searcher):
        if isinstance(one, Repeater) and num_samples != -1 and num_samples % one.repeat:
            logger.warning(
                "num_samples=%s is not a multiple of repeat=%s: the last configuration has fewer "
                "repeats, and its results are not reported to the searcher.",
                num_samples,
                one.repeat,
            )


def _check_same(name: str, own: MetricNames, given: MetricNames, searcher: str) -> None:
    if own is None or given is None or own == given:
        return
    if isinstance(own, list | tuple) and given in own:
        return
    raise ValueError(
        f"{searcher} has {name}={own!r}, but the tuner has {name}={given!r}. Set the {name} in one "
        f"place."
    )


def _unit(space: Any, path: Path) -> Path:
    """Return the path of the value that a searcher suggests as a unit: `path`, or the outermost
    list that contains it.
    """
    for depth, key in enumerate(path):
        space = space[key]
        if not isinstance(space, dict):
            return path[: depth + 1]
    return path


def _without(space: Config, paths: Collection[Path], here: Path = ()) -> Config:
    """Return a copy of nested dictionaries without `paths`."""
    return {
        key: _without(value, paths, (*here, key)) if isinstance(value, dict) else value
        for key, value in space.items()
        if (*here, key) not in paths
    }


def _listed(paths: Iterable[Path]) -> str:
    return ", ".join(f"`{joined(path)}`" for path in paths)
