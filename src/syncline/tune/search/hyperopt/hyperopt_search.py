"""`HyperOptSearch`: tree-structured Parzen estimators with HyperOpt, also for nested choices."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from syncline.tune.result import Config
from syncline.tune.search.library_searcher import LibraryObject, LibrarySearcher, Values
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.util import flatten_dict


class HyperOptSearch(LibrarySearcher):
    """Search with HyperOpt.

    Args:
        space: Search space, or dictionary of HyperOpt expressions, labelled by their keys. Default:
            the tuner's space.
        metric: Metric to optimize.
        mode: "min" or "max".
        points_to_evaluate: Initial configurations with all parameters.
        n_initial_points: Number of random trials before the estimators are fitted; None for
            HyperOpt's default.
        random_state_seed: Random seed.
        gamma: Fraction of the trials that count as good.

    Raises:
        ImportError: HyperOpt is not installed.
    """

    package = "hyperopt"
    conditional = True

    def __init__(
        self,
        space: Config | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: list[Config] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
    ) -> None:
        _hyperopt()
        options = {"n_startup_jobs": n_initial_points, "gamma": gamma}
        self._options = {name: value for name, value in options.items() if value is not None}
        self._random = np.random.RandomState(random_state_seed)
        self._domain: LibraryObject = None
        super().__init__(space, metric, mode, points_to_evaluate)

    @classmethod
    def _supports(cls, parameter: Parameter) -> bool:
        return True

    @classmethod
    def _convert_space(cls, space: SearchSpace) -> Config:
        return {key: _expression(parameter) for key, parameter in space.parameters.items()}

    def _create_optimizer(self) -> LibraryObject:
        hyperopt = _hyperopt()
        self._domain = hyperopt.base.Domain(_unchanged, self._library_space)
        return hyperopt.Trials()

    def _ask(self) -> tuple[LibraryObject, Config]:
        suggest = partial(_hyperopt().tpe.suggest, verbose=False, **self._options)
        documents = suggest(
            self._new_ids(), self._domain, self._optimizer, self._random.randint(2**31 - 1)
        )
        return self._running(documents)

    def _ask_point(self, point: Values) -> tuple[LibraryObject, Config]:
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

    def _drawn(self, point: Values) -> Config:
        if self._space is not None:
            return super()._drawn(point)
        return {
            key: _index_if_choice(self._library_space.get(key), key, value)
            for key, value in flatten_dict(point).items()
        }

    def _new_ids(self) -> list[int]:
        ids: list[int] = self._optimizer.new_trial_ids(1)
        self._optimizer.refresh()
        return ids

    def _running(self, documents: list[LibraryObject]) -> tuple[int, Config]:
        """Insert documents and return candidate and configuration. HyperOpt copies the documents;
        the candidate is the index of the copy.
        """
        self._optimizer.insert_trial_docs(documents)
        self._optimizer.refresh()
        values = _hyperopt().base.spec_from_misc(documents[0]["misc"])
        index = len(self._optimizer._dynamic_trials) - 1
        if self._space is not None:
            return index, self._space.config(values)
        return index, _plain(_hyperopt().space_eval(self._library_space, values))

    def _tell(self, candidate: int, loss: float, result: Values) -> None:
        self._end(candidate, "JOB_STATE_DONE", {"loss": loss, "status": "ok"})

    def _abandon(self, candidate: int) -> None:
        self._end(candidate, "JOB_STATE_ERROR", {"status": "fail"})

    def _end(self, candidate: int, state: str, result: Config) -> None:
        document = self._optimizer._dynamic_trials[candidate]
        document["state"] = getattr(_hyperopt().base, state)
        document["result"] = result
        self._optimizer.refresh()


def _hyperopt() -> LibraryObject:
    return HyperOptSearch.load("hyperopt")


def _expression(parameter: Parameter) -> LibraryObject:
    """Return the HyperOpt expression of `parameter`, labelled by its key. A choice draws an index
    and the parameters inside.
    """
    hp, label, step = _hyperopt().hp, parameter.key, parameter.step
    low, high = parameter.low, parameter.high
    if parameter.kind == "choice":
        return hp.choice(
            label,
            [
                [*map(_expression, inside), index]
                for index, inside in enumerate(parameter.conditional)
            ],
        )
    if parameter.distribution == "normal":
        return (
            hp.qnormal(label, parameter.mean, parameter.sd, step)
            if step
            else hp.normal(label, parameter.mean, parameter.sd)
        )
    if parameter.kind == "integer":
        step = step or 1
    if parameter.distribution == "log":
        bounds = math.log(low), math.log(high)
        return hp.qloguniform(label, *bounds, step) if step else hp.loguniform(label, *bounds)
    return hp.quniform(label, low, high, step) if step else hp.uniform(label, low, high)


def _index_if_choice(expression: LibraryObject, key: str, value: LibraryObject) -> LibraryObject:
    """Return the index of a choice, which HyperOpt draws, for its value."""
    if getattr(expression, "name", None) != "switch":
        return value
    choices = [option.obj for option in expression.pos_args[1:] if option.name == "literal"]
    if value not in choices:
        raise ValueError(f"{value!r} is not among the choices of {key!r}: {choices}.")
    return choices.index(value)


def _unchanged(config: LibraryObject) -> LibraryObject:
    return config


def _plain(value: LibraryObject) -> LibraryObject:
    """Convert a HyperOpt configuration to Python types."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
