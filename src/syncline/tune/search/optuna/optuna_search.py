"""Suggestions of Optuna: TPE, Gaussian processes, CMA-ES, NSGA-II, quasi-Monte Carlo or any other
of its samplers.

Covered: our search spaces, Optuna's distributions and functions that ask a trial for values (and so
may ask one because of another); several metrics; reports between, as Optuna's intermediate values.
Pruning is not: that is the schedulers' work.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from syncline.tune.result import TRAINING_ITERATION
from syncline.tune.search.library_searcher import LibrarySearcher, load_library
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.util import flatten_dict, unflatten_dict, validate_warmstart

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import Trial

    Space: TypeAlias = Mapping[str, Any] | Callable[[Trial], Mapping[str, Any] | None]

logger = logging.getLogger(__name__)


@dataclass
class _Ticket:
    """A trial of Optuna's that runs."""

    trial: Trial
    last_step: int = -1
    """The step of its last report; Optuna takes each step once."""


class OptunaSearch(LibrarySearcher):
    """Searches with Optuna (3.5 or later).

    Args:
        space: a search space of ours, a dictionary of Optuna's distributions, or a function that
            asks an `optuna.Trial` for values and returns further constants as a dictionary, or
            None. Left out: the tuner's `param_space`.
        metric: the result to go by; a list of them for several objectives.
        mode: "min" or "max"; a list if `metric` is one.
        points_to_evaluate: configurations to try first. They may leave parameters out, which Optuna
            then draws.
        sampler: Optuna's sampler; the default is `TPESampler(seed=seed)`.
        study_name: the name of the study in `storage`, "optuna" by default; a study that is there
            already is continued.
        storage: where the study is kept; the default is in memory, saved with the searcher's state.
            Of a storage, the state keeps the reference only.
        seed: for the default sampler.
        evaluated_rewards: the known metrics of `points_to_evaluate`, which are then not tried but
            learnt from.

    A trial whose metric is NaN or infinite, or that failed, is a failed trial to Optuna; one that
    ended without a metric is pruned.
    """

    def __init__(
        self,
        space: Space | None = None,
        metric: str | list[str] | None = None,
        mode: str | list[str] | None = None,
        points_to_evaluate: list[dict[str, Any]] | None = None,
        sampler: BaseSampler | None = None,
        study_name: str | None = None,
        storage: BaseStorage | None = None,
        seed: int | None = None,
        evaluated_rewards: list[Any] | None = None,
    ) -> None:
        optuna = _optuna()
        if sampler is not None and not isinstance(sampler, optuna.samplers.BaseSampler):
            raise TypeError(
                f"`sampler` must be one of optuna.samplers, such as TPESampler(), not {sampler!r}."
            )
        if storage is not None and not isinstance(storage, optuna.storages.BaseStorage):
            raise TypeError(
                f"`storage` must be one of optuna.storages, such as RDBStorage(url), not {storage!r}."
            )
        if sampler is not None and seed is not None:
            logger.warning(
                "OptunaSearch ignores seed=%s, because it was given a sampler: give the seed to the sampler.",
                seed,
            )
        validate_warmstart(
            [], points_to_evaluate, evaluated_rewards, validate_point_name_lengths=False
        )
        if evaluated_rewards and callable(space):
            raise TypeError(
                "`evaluated_rewards` need a space with named distributions: a function as `space` cannot tell what its values mean."
            )
        self._sampler = sampler
        self._study_name = study_name or "optuna"
        self._storage = storage
        self._seed = seed
        self._rewards = list(evaluated_rewards or [])
        super().__init__(space, metric, mode, points_to_evaluate)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Reports an intermediate value, unless there are several objectives."""
        ticket = self._tickets.get(trial_id)
        if ticket is None or isinstance(self._metric, list | tuple):
            return
        value, step = result.get(self.metric), result.get(TRAINING_ITERATION, ticket.last_step + 1)
        if value is not None and math.isfinite(value) and step > ticket.last_step:
            ticket.last_step = step
            try:
                ticket.trial.report(float(value), step)
            except RuntimeError:
                # A storage outlives the program: after a restart, it may know already that the
                # trial ended.
                logger.debug("Optuna's storage holds trial %s as ended.", trial_id)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tells Optuna the values, or that the trial failed or was pruned."""
        ticket = self._tickets.pop(trial_id, None)
        if ticket is None:
            return
        states = _optuna().trial.TrialState
        values = [(result or {}).get(metric) for metric, _ in self._objectives()]
        if error or any(value is not None and not math.isfinite(value) for value in values):
            told: dict[str, Any] = {"state": states.FAIL}
        elif None in values:
            told = {"state": states.PRUNED}
        else:
            told = {"values": [float(value) for value in values if value is not None]}
        # A storage outlives the program: after a restart, it may know the end of the trial already.
        self._study.tell(ticket.trial, skip_if_finished=True, **told)

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Learns from a point that was evaluated elsewhere; `value` is a list with several
        objectives. A metric that is not finite counts as an error. RuntimeError while metric, mode
        or the space are not known; TypeError if the space is a function.
        """
        self._start_if_complete()
        if self._optimizer is None:
            raise RuntimeError(
                "OptunaSearch cannot learn from points before it knows metric, mode and the search space: give it all three."
            )
        self._add_point(self._optimizer, parameters, value, error, pruned, intermediate_values)

    @property
    def _study(self) -> Study:
        study: Study = self._optimizer
        return study

    def _objectives(self) -> list[tuple[str, str]]:
        """Metric and mode of each; what is only observed is left out."""
        several = isinstance(self._metric, list | tuple)
        metrics, modes = (self.metric, self.mode) if several else ([self.metric], [self.mode])
        return [
            (metric, mode) for metric, mode in zip(metrics, modes, strict=True) if mode != "obs"
        ]

    def _start_if_complete(self) -> None:
        if isinstance(self._mode, list | tuple) and self._metric is None:
            raise ValueError(
                f"mode={self._mode} is a list: several objectives need `metric`, a list of their names."
            )
        super()._start_if_complete()

    def _checked(self, space: Any) -> Any:
        if callable(space):
            return space
        flat = flatten_dict(space) if isinstance(space, dict) else {}
        base = _optuna().distributions.BaseDistribution
        if not flat or not all(isinstance(distribution, base) for distribution in flat.values()):
            raise TypeError(
                f"`space` must be a search space, a dictionary of Optuna's distributions, or a function of a trial, not {space!r}."
            )
        return flat

    def _converted(self, space: SearchSpace) -> dict[str, BaseDistribution]:
        return {key: _distribution(parameter) for key, parameter in space.parameters.items()}

    def _start(self) -> Study:
        optuna = _optuna()
        with _quiet(optuna):
            study: Study = optuna.create_study(
                storage=self._storage,
                sampler=self._sampler or optuna.samplers.TPESampler(seed=self._seed),
                pruner=optuna.pruners.NopPruner(),
                study_name=self._study_name,
                directions=[
                    "minimize" if mode == "min" else "maximize" for _, mode in self._objectives()
                ],
                load_if_exists=True,
            )
        if self._rewards:
            for point, reward in zip(self._points, self._rewards, strict=True):
                self._add_point(study, point, reward)
            self._points = []
        return study

    def _ask(self) -> tuple[_Ticket, dict[str, Any]]:
        if callable(self._library_space):
            trial = self._study.ask()
            return _Ticket(trial), _asked_by_function(self._library_space, trial)
        trial = self._study.ask(self._library_space)
        values = trial.params
        if self._space is None:
            return _Ticket(trial), unflatten_dict(values)
        return _Ticket(trial), self._space.config_of(
            lambda parameter: _value(parameter, values[parameter.key])
        )

    def _ask_for(self, point: Mapping[str, Any]) -> tuple[_Ticket, dict[str, Any]]:
        values = flatten_dict(point) if self._space is None else self._params(self._space, point)
        self._study.enqueue_trial(values)
        return self._ask()

    def _params(self, space: SearchSpace, point: Mapping[str, Any]) -> dict[str, Any]:
        """The point's values as Optuna knows them."""
        values = space.values(point)
        drawn = {key: space.parameters[key].drawn(value)[key] for key, value in values.items()}
        return {
            key: drawn[key] if _by_index(space.parameters[key]) else value
            for key, value in values.items()
        }

    def _add_point(
        self,
        study: Study,
        point: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        if callable(self._library_space):
            raise TypeError(
                "Points with known results need a space with named distributions, not a function as `space`."
            )
        optuna = _optuna()
        states = optuna.trial.TrialState
        params = (
            self._params(self._space, self._searched(point))
            if self._space is not None
            else flatten_dict(point)
        )
        values = value if isinstance(value, list | tuple) else [value]
        failed = error or not all(math.isfinite(one) for one in values)
        study.add_trial(
            optuna.trial.create_trial(
                state=states.FAIL if failed else states.PRUNED if pruned else states.COMPLETE,
                values=None if failed else list(map(float, values)),
                params=params,
                distributions={key: self._library_space[key] for key in params},
                intermediate_values=dict(enumerate(intermediate_values or [])),
            )
        )

    def _searched(self, point: Mapping[str, Any]) -> Mapping[str, Any]:
        """A configuration without what is not searched: trials of earlier experiments bring their
        constants along.
        """
        assert self._space is not None
        return {key: value for key, value in point.items() if self._space.knows(key)}


def _optuna() -> Any:
    return load_library("optuna", "optuna", "OptunaSearch")


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Optuna announces every study on stderr."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _distribution(parameter: Parameter) -> BaseDistribution:
    distributions = _optuna().distributions
    log = parameter.law == "log"
    # Optuna has no steps on logarithmic scales: those are rounded afterwards.
    step = None if log else parameter.step
    made: BaseDistribution
    if parameter.law == "normal":
        raise parameter.refusal("OptunaSearch", "uniform and log-uniform numbers, and choices")
    if parameter.kind == "float":
        made = distributions.FloatDistribution(parameter.low, parameter.high, log=log, step=step)
    elif parameter.kind == "integer":
        made = distributions.IntDistribution(parameter.low, parameter.high, log=log, step=step or 1)
    else:
        choices = range(len(parameter.choices)) if _by_index(parameter) else parameter.choices
        made = distributions.CategoricalDistribution(choices)
    return made


def _by_index(parameter: Parameter) -> bool:
    """Whether Optuna is given the indices of choices, because it cannot keep the choices."""
    return not all(
        isinstance(choice, bool | int | float | str | None) for choice in parameter.choices
    )


def _value(parameter: Parameter, value: Any) -> Any:
    """The value that the trial gets for what Optuna gave."""
    if parameter.kind == "choice":
        return parameter.choices[value] if _by_index(parameter) else value
    return parameter.number(value) if parameter.step else value


def _asked_by_function(
    function: Callable[[Trial], Mapping[str, Any] | None], trial: Trial
) -> dict[str, Any]:
    constants = function(trial)
    if constants is not None and not (
        isinstance(constants, dict) and all(isinstance(key, str) for key in constants)
    ):
        raise TypeError(
            f"The function given as `space` must return None, or a dictionary of constants by name, not {constants!r}."
        )
    return unflatten_dict({**trial.params, **(constants or {})})
