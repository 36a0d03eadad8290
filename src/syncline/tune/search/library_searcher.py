"""`LibrarySearcher`, the base class of searchers that get their suggestions from a library.

It loads the library, takes metric, mode and search space from the constructor or the tuner, and
suggests initial points first. Failed trials and non-finite metrics are not reported to the library
as results. A restored searcher gives the same suggestions for the same calls. Subclasses convert
spaces, suggestions and results for one library.
"""

from __future__ import annotations

import copy
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import cloudpickle
import numpy as np

from syncline.core import random_states
from syncline.tune.result import DEFAULT_METRIC, Config, Metrics
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.sample import Domain
from syncline.tune.search.searcher import MetricNames, Modes, Searcher
from syncline.tune.search.util import flatten_dict, unflatten_list_dict

LibraryObject: TypeAlias = Any
"""An object of an optional library, whose types are unknown here."""
Values: TypeAlias = Mapping[str, Any]
"""Values by key."""


class LibrarySearcher(Searcher):
    """Base class of searchers that use a library.

    Subclasses call `load` in their constructor and implement the methods that raise
    NotImplementedError here. A candidate is the library's object for a suggestion, which it needs
    again with the result. All attributes are pickled in the state, so they must not contain modules
    or open files.
    """

    package: ClassVar[str]
    """Name of the library for `pip install`."""
    conditional = False
    """True if choices may contain parameters."""
    supported = "uniform and log-uniform numbers, and choices"
    """Parameters for which `_supports` is True, for errors."""

    def __init__(
        self,
        space: LibraryObject,
        metric: MetricNames = None,
        mode: Modes = None,
        points_to_evaluate: Sequence[Values] | None = None,
        evaluated_rewards: list[Any] | None = None,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        check_points(points_to_evaluate, evaluated_rewards)
        self._points: list[Values] = [copy.deepcopy(point) for point in points_to_evaluate or []]
        self._rewards: list[Any] = list(evaluated_rewards or [])
        """Known metrics of `_points`, for searchers that implement `_learn`."""
        self._space: SearchSpace | None = None
        self._library_space: LibraryObject = None
        self._optimizer: LibraryObject = None
        self._candidates: dict[str, LibraryObject] = {}
        # Compare the length, because Nevergrad's parameters cannot be converted to bool.
        is_empty = isinstance(space, dict | list) and len(space) == 0
        if space is not None and not is_empty:
            self._set_space(space)

    @classmethod
    def load(cls, module: str, package: str = "") -> LibraryObject:
        """Import a module of the library, or of another `package`.

        Raises:
            ImportError: The import failed; the message says how to install the package.
        """
        try:
            return import_module(module)
        except ImportError as error:
            package = package or cls.package
            raise ImportError(
                f"{cls.__name__} needs {package}, which cannot be imported ({error}). Install it "
                f"with `pip install {package}`.",
                name=module,
            ) from error

    def set_search_properties(
        self, metric: MetricNames, mode: Modes, config: Config, **spec: object
    ) -> bool:
        """Set metric, mode and search space.

        Returns:
            True if the searcher will search `config`; False if it has its own space, or another
            metric or mode.

        Raises:
            ValueError: `config` has no parameters, or one that this searcher does not support.
        """
        if (metric and self._metric not in (None, metric)) or (
            mode and self._mode not in (None, mode)
        ):
            return False
        self._metric = self._metric or metric
        self._mode = self._mode or mode
        if self._has_space():
            self._start_if_ready()
            return False
        if not contains_domains(config):
            raise ValueError(
                f"The search space {config!r} has no parameters for {type(self).__name__}. Add "
                f"parameters such as tune.uniform(...), or omit `search_alg`."
            )
        self._set_space(config)
        return True

    def suggest(self, trial_id: str) -> Config | str | None:
        """Suggest a configuration (see `Searcher`).

        Raises:
            RuntimeError: Metric, mode or space are unset.
        """
        self._start("suggest configurations")
        asked = self._ask_point(self._points[0]) if self._points else self._ask()
        if asked is None or isinstance(asked, str):
            return asked
        # Without a suggestion, the point remains for the next call.
        self._points = self._points[1:]
        self._candidates[trial_id], config = asked
        return config

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        """Report the result to the library, or abandon the candidate of a failed trial or a
        non-finite metric.
        """
        candidate = self._candidates.pop(trial_id, None)
        if candidate is None:
            return
        loss = None if error else self._loss(result)
        if loss is None:
            self._abandon(candidate)
        else:
            self._tell(candidate, loss, result or {})

    def get_state(self) -> dict[str, object]:
        """Return a copy of all attributes, including the library's random states.

        Raises:
            NotImplementedError: An attribute cannot be pickled.
        """
        try:
            return {"attributes": cloudpickle.dumps(self._attributes())}
        except Exception as error:  # Pickling of library objects can raise any error.
            raise NotImplementedError(
                f"The state of {type(self).__name__} cannot be saved "
                f"({type(error).__name__}: {error})."
            ) from error

    def set_state(self, state: Config) -> None:
        """Restore a state of `get_state`."""
        self.__dict__.update(cloudpickle.loads(state["attributes"]))

    def save(self, checkpoint_path: str) -> None:
        """Write the state to a file."""
        Path(checkpoint_path).write_bytes(cloudpickle.dumps(self.get_state()))

    def restore(self, checkpoint_path: str) -> None:
        """Restore the state from a file of `save`."""
        self.set_state(cloudpickle.loads(Path(checkpoint_path).read_bytes()))

    def _attributes(self) -> dict[str, object]:
        return self.__dict__

    @classmethod
    def convert_search_space(cls, spec: Config, **_: object) -> LibraryObject:
        """Return the space of the library for a `param_space`, without its constants. Older
        arguments of Ray are ignored.

        Raises:
            ValueError: The space has a parameter that the library does not support.
        """
        return cls._convert_space(cls._checked(SearchSpace(spec, cls.__name__, cls.conditional)))

    def _has_space(self) -> bool:
        return self._library_space is not None

    def _set_space(self, space: LibraryObject) -> None:
        """Set a space with our domains or one of the library's."""
        if contains_domains(space):
            self._space = self._checked(SearchSpace(space, type(self).__name__, self.conditional))
            self._library_space = self._convert_space(self._space)
        else:
            self._library_space = self._check_space(space)
        self._start_if_ready()

    @classmethod
    def _checked(cls, space: SearchSpace) -> SearchSpace:
        """Return the space. Raise ValueError for a parameter that the library does not support."""
        for parameter in space.parameters.values():
            if not cls._supports(parameter):
                raise ValueError(
                    f"{cls.__name__} does not support {parameter.key!r}, "
                    f"{parameter.described}: it supports {cls.supported}. Change the "
                    f"parameter, or use another searcher."
                )
        return space

    def _start(self, purpose: str) -> None:
        """Create the optimizer, if there is none.

        Raises:
            RuntimeError: Metric, mode or space are unset.
        """
        self._start_if_ready()
        if self._optimizer is None:
            missing = "metric and mode are" if self._has_space() else "the search space is"
            raise RuntimeError(
                f"{type(self).__name__} cannot {purpose}, because {missing} unset. Pass them to "
                f"the searcher or to the Tuner (metric, mode and param_space)."
            )

    def _start_if_ready(self) -> None:
        if self._optimizer is not None or not self._mode or not self._has_space():
            return
        # Trainables that return a number report it under this name.
        self._metric = self._metric or DEFAULT_METRIC
        self._optimizer = self._create_optimizer()
        if self._rewards:
            for point, reward in zip(self._points, self._rewards, strict=True):
                self._learn(point, reward)
            self._points = []

    def _loss(self, result: Values | None) -> float | None:
        """Return the metric as a value to minimize; None if it is missing or not finite."""
        value = (result or {}).get(str(self.metric))
        if value is None or not math.isfinite(value):
            return None
        return -float(value) if self._mode == "max" else float(value)

    def _config(self, drawn: Values) -> Config:
        """Return the configuration for drawn values by key."""
        if self._space is not None:
            return self._space.config(drawn)
        nested: Config = unflatten_list_dict(
            {key: _to_python(value) for key, value in drawn.items()}
        )
        return nested

    def _drawn(self, point: Values) -> Config:
        """Return the drawn values by key that give the configuration `point`."""
        if self._space is not None:
            return self._space.drawn(point)
        return flatten_dict(point, flatten_list=True)

    def _searched(self, config: Values) -> Values:
        """Return a configuration without keys that are not searched, such as constants."""
        space = self._space
        if space is None:
            return config
        return {key: value for key, value in config.items() if space.has_key(key)}

    @classmethod
    def _supports(cls, parameter: Parameter) -> bool:
        """Return True if the library supports the distribution of the parameter."""
        return parameter.distribution != "normal"

    def _check_space(self, space: LibraryObject) -> LibraryObject:
        """Return the library's space from the user's `space`; raise TypeError if it is not one."""
        return space

    @classmethod
    def _convert_space(cls, space: SearchSpace) -> LibraryObject:
        """Convert `space`, whose parameters are supported, for the library."""
        raise NotImplementedError

    def _create_optimizer(self) -> LibraryObject:
        """Create the library's optimizer. Metric, mode and space are set."""
        raise NotImplementedError

    def _learn(self, point: Values, reward: Any) -> None:
        """Learn that the configuration `point` has the metric `reward`."""
        raise NotImplementedError

    def _ask(self) -> tuple[LibraryObject, Config] | str | None:
        """Return candidate and configuration of a suggestion; None or FINISHED as `suggest`."""
        raise NotImplementedError

    def _ask_point(self, point: Values) -> tuple[LibraryObject, Config] | str | None:
        """Return candidate and configuration for an initial point. By default, the candidate
        consists of the drawn values.
        """
        drawn = self._drawn(point)
        return drawn, self._config(drawn)

    def _tell(self, candidate: LibraryObject, loss: float, result: Values) -> None:
        """Report `loss`, which is minimized, from `result`."""
        raise NotImplementedError

    def _abandon(self, candidate: LibraryObject) -> None:
        """Abandon the candidate of a trial without a usable result."""


class RandomStates:
    """Separate random states for a library that uses the global ones of Python, numpy and torch.

    Args:
        seed: Initial seed; None draws one from numpy's global state, so that
            `numpy.random.seed` makes programs reproducible.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = int(np.random.randint(2**31 - 1)) if seed is None else seed
        self._states: Values | None = None

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use these states as the global ones within the block."""
        before = random_states.capture()
        if self._states is None:
            _seed_all(self._seed)
        else:
            random_states.restore(self._states)
        try:
            yield
        finally:
            self._states = random_states.capture()
            random_states.restore(before)


def _seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        generator.manual_seed(seed)


def check_points(
    points_to_evaluate: Sequence[Values] | None, evaluated_rewards: list[Any] | None
) -> None:
    """Check a searcher's initial points and their known results.

    Raises:
        TypeError: The points are not a list of configurations, or the rewards not a list.
        ValueError: The number of rewards is wrong.
    """
    if points_to_evaluate is not None and not isinstance(points_to_evaluate, list | tuple):
        raise TypeError(
            f"`points_to_evaluate` must be a list of configurations, not {points_to_evaluate!r}."
        )
    for point in points_to_evaluate or ():
        if not isinstance(point, dict | list):
            raise TypeError(
                f"Items of `points_to_evaluate` must be dictionaries or lists, not {point!r}."
            )
    if not points_to_evaluate or not evaluated_rewards:
        return
    if not isinstance(evaluated_rewards, list):
        raise TypeError(
            f"`evaluated_rewards` must be a list of numbers, not {evaluated_rewards!r}."
        )
    if len(evaluated_rewards) != len(points_to_evaluate):
        raise ValueError(
            f"There are {len(evaluated_rewards)} `evaluated_rewards` for "
            f"{len(points_to_evaluate)} `points_to_evaluate`. Give one reward for each point, in "
            f"the same order."
        )


def contains_domains(space: object) -> bool:
    """Return True if a nested search space contains a domain or a grid."""
    if isinstance(space, dict):
        return set(space) == {"grid_search"} or any(map(contains_domains, space.values()))
    if isinstance(space, list | tuple):
        return any(map(contains_domains, space))
    return isinstance(space, Domain)


def _to_python(value: object) -> object:
    """Convert numpy scalars to Python types."""
    return value.item() if isinstance(value, np.generic) else value
