"""`SearchGenerator`: makes a source of trials of any `Searcher`.

Covered: handing the space over, with errors for what a searcher cannot do; constants and functions
of the space around what the searcher suggests; the number of samples; the state of searcher and
wrappers. Not covered: grids, which only `basic_variant` goes through.
"""

from __future__ import annotations

import logging
import math
import pickle
from collections.abc import Collection, Iterable
from typing import Any

import cloudpickle

from syncline.tune.search import searcher_state
from syncline.tune.search.repeater import Repeater
from syncline.tune.search.sample import fresh_generator
from syncline.tune.search.search_algorithm import SearchAlgorithm, Suggestion
from syncline.tune.search.searcher import Searcher, check_metric_and_mode, set_search_properties
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
    """Runs what `searcher` suggests, `num_samples` times.

    Functions of the space (`sample_from`) are not the searcher's business: they are called with
    what it suggested. What a searcher took but suggests no value for is drawn at random. Results
    reach the searcher flat, with keys `a/b`.
    """

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(
                f"A search algorithm must be a BasicVariantGenerator or extend Searcher: {searcher!r} does neither."
            )
        self.searcher = searcher
        self._arguments: tuple[Any, Any, dict[str, Any], int] | None = None
        """Those of `configure`, with the space parsed."""
        self._samples: float = 0
        self._counter = 0
        self._finished = False
        self._source = fresh_generator()

    def configure(
        self, metric: Any, mode: Any, param_space: dict[str, Any], num_samples: int
    ) -> None:
        """See SearchAlgorithm. ValueError for a grid, for a space that the searcher does not take,
        and for a second metric or mode.
        """
        check_metric_and_mode(metric, mode)
        space, name = ParsedSpace.parse(param_space), _name(self.searcher)
        _refuse_grids(space, name)
        _refuse_second("metric", self.searcher.metric, metric, name)
        _refuse_second("mode", self.searcher.mode, mode, name)
        searched = {
            _anchor(space.skeleton, path): path
            for path, domain in space.domains
            if not domain.is_function()
        }
        functions = {
            _anchor(space.skeleton, path) for path, domain in space.domains if domain.is_function()
        }
        for_searcher = _without(space.skeleton, functions - set(searched))
        taken = set_search_properties(
            self.searcher, metric, mode, for_searcher, num_samples=num_samples
        )
        if searched and not taken:
            raise ValueError(
                f"{name} does not take `param_space`, in which {_listed(searched.values())} would have to be searched: it has a space "
                "of its own, or takes none. Leave the space out of the searcher, or leave only constants in `param_space`."
            )
        self.metric, self.mode = self.searcher.metric or metric, self.searcher.mode or mode
        self._arguments = (metric, mode, space.skeleton, num_samples)
        self._samples = math.inf if num_samples == -1 else num_samples
        _warn_of_rest(self.searcher, num_samples)

    def next_trial(self, trial_id: str) -> Suggestion | None:
        if self.is_finished():
            return None
        assert self._arguments is not None, "configure() comes first"
        suggested = self.searcher.suggest(trial_id)
        if not isinstance(suggested, dict):
            if suggested not in (None, Searcher.FINISHED):
                raise TypeError(
                    f"{_name(self.searcher)}.suggest() must return a dictionary, None or FINISHED, not {suggested!r}."
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
        # A searcher that had no more is asked again: its own limit may have been raised.
        self._finished = False
        self._samples += n

    @property
    def total_samples(self) -> float:
        return self._counter if self._finished else self._samples

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, flatten_dict(result))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
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
        state: bytes = cloudpickle.dumps((own, searcher_state.capture(self.searcher)))
        return state

    def set_state(self, state: bytes) -> None:
        own, states = pickle.loads(state)
        if self._arguments is None:
            # Searchers may leave what they are told here out of their own state.
            self.configure(*own["_arguments"])
        self.__dict__.update(own)
        searcher_state.restore(self.searcher, states)


def _name(searcher: Searcher) -> str:
    """The class that suggests, inside of all wrappers."""
    *_, innermost = searcher_state.layers(searcher)
    return type(innermost).__name__


def _warn_of_rest(searcher: Searcher, num_samples: int) -> None:
    for one in searcher_state.layers(searcher):
        if isinstance(one, Repeater) and num_samples != -1 and num_samples % one.repeat:
            logger.warning(
                "num_samples=%s is no multiple of repeat=%s: the last configuration has fewer repeats, and the searcher does not learn "
                "from it.",
                num_samples,
                one.repeat,
            )


def _refuse_grids(space: ParsedSpace, name: str) -> None:
    if space.grids:
        raise ValueError(
            f"`param_space` has a grid_search at {_listed(path for path, _ in space.grids)}, which {name} cannot go through: "
            "use tune.choice([...]) there, or leave `search_alg` out to try every value."
        )


def _refuse_second(kind: str, own: Any, given: Any, name: str) -> None:
    if (
        own is None
        or given is None
        or own == given
        or (isinstance(own, list | tuple) and given in own)
    ):
        return
    raise ValueError(
        f"There are two {kind}s: {name} has {kind}={own!r}, and the tuner was given {kind}={given!r}. Give it once."
    )


def _anchor(space: Any, path: Path) -> Path:
    """What a searcher suggests as a whole: the path, or the outermost list on it."""
    for depth, key in enumerate(path):
        space = space[key]
        if not isinstance(space, dict):
            return path[: depth + 1]
    return path


def _without(space: dict[Any, Any], paths: Collection[Path], here: Path = ()) -> dict[Any, Any]:
    """A copy of nested dictionaries that lacks `paths`."""
    return {
        key: _without(value, paths, (*here, key)) if isinstance(value, dict) else value
        for key, value in space.items()
        if (*here, key) not in paths
    }


def _listed(paths: Iterable[Path]) -> str:
    return ", ".join(f"`{joined(path)}`" for path in paths)
