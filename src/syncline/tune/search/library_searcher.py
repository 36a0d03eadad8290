"""What the searchers have in common whose suggestions another library makes.

Covered: loading the library, which is named in the error if it is not installed; metric, mode and
search space from the constructor or from the tuner; points to start from; trials that failed, or
whose metric is missing or not finite, are never told to the library as results; saving, after which
the same calls give the same suggestions. A searcher of one library says how a space, a suggestion
and a result look there.
"""

from __future__ import annotations

import copy
import importlib
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np

from syncline.train import random_states
from syncline.tune.result import DEFAULT_METRIC
from syncline.tune.search.parameters import SearchSpace
from syncline.tune.search.sample import Domain
from syncline.tune.search.searcher import Searcher
from syncline.tune.search.util import flatten_dict, unflatten_list_dict


def load_library(module: str, package: str, searcher: str) -> ModuleType:
    """Imports `module` for `searcher`; an ImportError that says how to install it where that
    fails.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{searcher} needs {package}, which cannot be imported ({error}): pip install {package}",
            name=module,
        ) from error


class LibrarySearcher(Searcher):
    """Base class of searchers that adapt a library.

    Subclasses check in their constructor that the library is there (`load_library`), and implement
    the methods that raise NotImplementedError here. What the library hands out for a trial, and
    wants back with its result, is called its ticket. All of a searcher's attributes are pickled in
    its state: they keep no modules and no open files.
    """

    conditional = False
    """Whether choices may hold parameters of their own."""

    def __init__(
        self,
        space: Any,
        metric: Any = None,
        mode: Any = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        if points_to_evaluate is not None and not isinstance(points_to_evaluate, list | tuple):
            raise TypeError(
                f"`points_to_evaluate` must be a list of configurations, not {points_to_evaluate!r}."
            )
        self._points: list[Mapping[str, Any]] = [
            copy.deepcopy(point) for point in points_to_evaluate or []
        ]
        self._space: SearchSpace | None = None
        self._library_space: Any = None
        self._optimizer: Any = None
        self._tickets: dict[str, Any] = {}
        # By length, because Nevergrad's parameters refuse to be asked whether they are true.
        is_empty = isinstance(space, dict | list) and len(space) == 0
        if space is not None and not is_empty:
            self._take_space(space)

    def set_search_properties(
        self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
    ) -> bool:
        """True if the searcher will search `config`. False if it has a space of its own, or if
        metric or mode contradict the constructor's.

        ValueError if there is nothing to search in `config`, or something that this searcher
        cannot.
        """
        if (metric and self._metric not in (None, metric)) or (
            mode and self._mode not in (None, mode)
        ):
            return False
        self._metric = self._metric or metric
        self._mode = self._mode or mode
        if self._has_space():
            self._start_if_complete()
            return False
        if not holds_domains(config):
            raise ValueError(
                f"{type(self).__name__} finds nothing to search in {config!r}: put tune.uniform(...), tune.choice(...) or the like "
                "into the search space, or leave `search_alg` out."
            )
        self._take_space(config)
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The configuration of a new trial; None: not now; FINISHED: no more. RuntimeError while
        metric, mode or the space are missing.
        """
        self._start_if_complete()
        if self._optimizer is None:
            missing = "metric and mode are" if self._has_space() else "the search space is"
            raise RuntimeError(
                f"{type(self).__name__} cannot suggest anything, because {missing} not known: give them to the searcher, or let a Tuner "
                "do so (metric, mode and param_space)."
            )
        asked = self._ask_for(self._points[0]) if self._points else self._ask()
        if asked is None or isinstance(asked, str):
            return asked
        # A point that the library could not take now stays for the next time.
        self._points = self._points[1:]
        self._tickets[trial_id], config = asked
        return config

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells the library what the trial gave. One that failed, or gave no finite number, is
        taken back instead.
        """
        ticket = self._tickets.pop(trial_id, None)
        if ticket is None:
            return
        loss = None if error else self._loss(result)
        if loss is None:
            self._take_back(ticket)
        else:
            self._tell(ticket, loss, result or {})

    def get_state(self) -> dict[str, Any]:
        """A copy of everything, the library's random states included. NotImplementedError if
        something of it cannot be pickled.
        """
        try:
            return {"attributes": cloudpickle.dumps(self._attributes())}
        except Exception as error:  # whatever the library's pickling raises
            raise NotImplementedError(
                f"The state of {type(self).__name__} cannot be saved ({type(error).__name__}: {error})."
            ) from error

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state of `get_state`: the same calls give the same suggestions."""
        self.__dict__.update(cloudpickle.loads(state["attributes"]))

    def save(self, checkpoint_path: str) -> None:
        """Writes the state to the file `checkpoint_path`."""
        Path(checkpoint_path).write_bytes(cloudpickle.dumps(self.get_state()))

    def restore(self, checkpoint_path: str) -> None:
        """Goes on from a file of `save`."""
        self.set_state(cloudpickle.loads(Path(checkpoint_path).read_bytes()))

    def _attributes(self) -> dict[str, Any]:
        return self.__dict__

    def _has_space(self) -> bool:
        return self._library_space is not None

    def _take_space(self, space: Any) -> None:
        """Takes a space of ours, or one as the library has it."""
        if holds_domains(space):
            self._space = SearchSpace(space, type(self).__name__, self.conditional)
            self._library_space = self._converted(self._space)
        else:
            self._library_space = self._checked(space)
        self._start_if_complete()

    def _start_if_complete(self) -> None:
        if self._optimizer is not None or not self._mode or not self._has_space():
            return
        # Functions that return a bare number report it under this name.
        self._metric = self._metric or DEFAULT_METRIC
        self._optimizer = self._start()

    def _loss(self, result: Mapping[str, Any] | None) -> float | None:
        """The metric, so that less is better; None if it is missing or not finite."""
        value = (result or {}).get(self.metric)
        if value is None or not math.isfinite(value):
            return None
        return -float(value) if self._mode == "max" else float(value)

    def _config(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration for what the library drew, by key."""
        if self._space is not None:
            return self._space.config(drawn)
        nested: dict[str, Any] = unflatten_list_dict(
            {key: _plain(value) for key, value in drawn.items()}
        )
        return nested

    def _drawn(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """What the library would have drawn to give `point`."""
        return (
            self._space.drawn(point)
            if self._space is not None
            else flatten_dict(point, flatten_list=True)
        )

    def _checked(self, space: Any) -> Any:
        """A space of the library, as the program gave it, in the form that `_start` needs.
        TypeError if it is none.
        """
        return space

    def _converted(self, space: SearchSpace) -> Any:
        """`space` as the library has it. ValueError, which names the key, if the library cannot
        search it.
        """
        raise NotImplementedError

    def _start(self) -> Any:
        """The library's optimizer; metric, mode and space are known."""
        raise NotImplementedError

    def _ask(self) -> tuple[Any, dict[str, Any]] | str | None:
        """Ticket and configuration of a new suggestion; None: not now; FINISHED: no more."""
        raise NotImplementedError

    def _ask_for(self, point: Mapping[str, Any]) -> tuple[Any, dict[str, Any]] | str | None:
        """The same for a point that the program wants to be tried."""
        raise NotImplementedError

    def _tell(self, ticket: Any, loss: float, result: Mapping[str, Any]) -> None:
        """The trial of `ticket` gave `loss`, less being better, in `result`."""
        raise NotImplementedError

    def _take_back(self, ticket: Any) -> None:
        """The trial of `ticket` gave nothing that can be learnt from."""


class RandomStates:
    """Random states for a library that draws from the global ones of Python, numpy and torch.

    It gets its own while it works, and the program keeps its own.
    """

    def __init__(self, seed: int | None) -> None:
        """Without a seed, it is drawn from numpy's global state, so that a program that seeds that
        one repeats itself.
        """
        self._seed = int(np.random.randint(2**31 - 1)) if seed is None else seed
        self._states: dict[str, Any] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """The global states are these within the block."""
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


def holds_domains(space: Any) -> bool:
    """Whether there is a domain of ours, or a grid, in a nested search space."""
    if isinstance(space, dict):
        return set(space) == {"grid_search"} or any(map(holds_domains, space.values()))
    if isinstance(space, list | tuple):
        return any(map(holds_domains, space))
    return isinstance(space, Domain)


def _plain(value: Any) -> Any:
    """Numbers and strings of numpy as Python's."""
    return value.item() if isinstance(value, np.generic) else value
