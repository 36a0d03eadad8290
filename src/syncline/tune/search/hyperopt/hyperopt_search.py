"""Suggestions of HyperOpt's tree-structured Parzen estimators, for search spaces whose choices may
hold parameters of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from syncline.tune.search.library_searcher import LibrarySearcher, load_library
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.util import flatten_dict


class HyperOptSearch(LibrarySearcher):
    """Searches with HyperOpt.

    Args:
        space: a search space of ours, or a dictionary of HyperOpt's expressions, each labelled by
            its key. Left out: the tuner's.
        metric: the result to go by.
        mode: "min" or "max".
        points_to_evaluate: configurations to try first, each with all parameters.
        n_initial_points: how many trials are random before the estimators are fitted; None:
            HyperOpt's number.
        random_state_seed: makes the search repeatable.
        gamma: which fraction of the trials counts as good.
    """

    conditional = True

    def __init__(
        self,
        space: dict[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
    ) -> None:
        _hyperopt()
        options = {"n_startup_jobs": n_initial_points, "gamma": gamma}
        self._options = {name: value for name, value in options.items() if value is not None}
        self._random = np.random.RandomState(random_state_seed)
        self._domain: Any = None
        super().__init__(space, metric, mode, points_to_evaluate)

    def _converted(self, space: SearchSpace) -> dict[str, Any]:
        return {key: _expression(parameter) for key, parameter in space.parameters.items()}

    def _start(self) -> Any:
        hyperopt = _hyperopt()
        self._domain = hyperopt.base.Domain(_unchanged, self._library_space)
        return hyperopt.Trials()

    def _ask(self) -> tuple[Any, dict[str, Any]]:
        suggest = partial(_hyperopt().tpe.suggest, verbose=False, **self._options)
        documents = suggest(
            self._new_ids(), self._domain, self._optimizer, self._random.randint(2**31 - 1)
        )
        return self._running(documents)

    def _ask_for(self, point: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        drawn = self._drawn(point)
        (trial,) = self._new_ids()
        values = {label: [drawn[label]] if label in drawn else [] for label in self._domain.params}
        indices = {label: [trial] if found else [] for label, found in values.items()}
        description = {
            "tid": trial,
            "cmd": self._domain.cmd,
            "workdir": None,
            "idxs": indices,
            "vals": values,
        }
        return self._running(
            self._optimizer.new_trial_docs(
                [trial], [None], [self._domain.new_result()], [description]
            )
        )

    def _drawn(self, point: Mapping[str, Any]) -> dict[str, Any]:
        if self._space is not None:
            return self._space.drawn(point)
        return {
            key: _index_if_choice(self._library_space.get(key), key, value)
            for key, value in flatten_dict(point).items()
        }

    def _new_ids(self) -> list[int]:
        ids: list[int] = self._optimizer.new_trial_ids(1)
        self._optimizer.refresh()
        return ids

    def _running(self, documents: list[Any]) -> tuple[int, dict[str, Any]]:
        """HyperOpt keeps copies of the documents; a ticket is where its copy stands."""
        self._optimizer.insert_trial_docs(documents)
        self._optimizer.refresh()
        values = _hyperopt().base.spec_from_misc(documents[0]["misc"])
        place = len(self._optimizer._dynamic_trials) - 1
        if self._space is not None:
            return place, self._space.config(values)
        return place, _plain(_hyperopt().space_eval(self._library_space, values))

    def _tell(self, ticket: int, loss: float, result: Mapping[str, Any]) -> None:
        self._end(ticket, "JOB_STATE_DONE", {"loss": loss, "status": "ok"})

    def _take_back(self, ticket: int) -> None:
        self._end(ticket, "JOB_STATE_ERROR", {"status": "fail"})

    def _end(self, ticket: int, state: str, result: dict[str, Any]) -> None:
        document = self._optimizer._dynamic_trials[ticket]
        document["state"] = getattr(_hyperopt().base, state)
        document["result"] = result
        self._optimizer.refresh()


def _hyperopt() -> Any:
    return load_library("hyperopt", "hyperopt", "HyperOptSearch")


def _expression(parameter: Parameter) -> Any:
    """`parameter` for HyperOpt, labelled by its key. A choice chooses an index, and brings the
    parameters inside along.
    """
    hp, label, low, high, step = (
        _hyperopt().hp,
        parameter.key,
        parameter.low,
        parameter.high,
        parameter.step,
    )
    if parameter.kind == "choice":
        return hp.choice(
            label,
            [
                [*map(_expression, inside), index]
                for index, inside in enumerate(parameter.conditional)
            ],
        )
    if parameter.law == "normal":
        return (
            hp.qnormal(label, parameter.mean, parameter.sd, step)
            if step
            else hp.normal(label, parameter.mean, parameter.sd)
        )
    if parameter.kind == "integer":
        step = step or 1
    if parameter.law == "log":
        bounds = math.log(low), math.log(high)
        return hp.qloguniform(label, *bounds, step) if step else hp.loguniform(label, *bounds)
    return hp.quniform(label, low, high, step) if step else hp.uniform(label, low, high)


def _index_if_choice(expression: Any, key: str, value: Any) -> Any:
    """HyperOpt draws the index of a choice, where a point names the choice."""
    if getattr(expression, "name", None) != "switch":
        return value
    choices = [option.obj for option in expression.pos_args[1:] if option.name == "literal"]
    if value not in choices:
        raise ValueError(f"{value!r} is not among the choices of {key!r}: {choices}.")
    return choices.index(value)


def _unchanged(config: Any) -> Any:
    return config


def _plain(value: Any) -> Any:
    """A configuration of HyperOpt's in types of Python."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
