"""`OptunaSearch`: TPE, Gaussian processes, CMA-ES or any other sampler of Optuna.

It supports our search spaces, Optuna's distributions and define-by-run functions, several
objectives, and intermediate values. Not covered: pruning, which schedulers do.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from syncline.suggestions import suggest_arguments
from syncline.tune.result import TRAINING_ITERATION, Config, Metrics
from syncline.tune.search.library_searcher import LibraryObject, LibrarySearcher, Values
from syncline.tune.search.parameters import Parameter, SearchSpace
from syncline.tune.search.util import flatten_dict, unflatten_dict

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.study import Study
    from optuna.trial import Trial

    Space: TypeAlias = Values | Callable[[Trial], Values | None]

logger = logging.getLogger(__name__)


@dataclass
class _Candidate:
    """Optuna's trial object of a running trial."""

    trial: Trial
    last_step: int = -1
    """Step of the last report; Optuna accepts one report per step."""


@suggest_arguments
class OptunaSearch(LibrarySearcher):
    """Search with Optuna (3.5 or later).

    A trial with a NaN or infinite metric, or that failed, is a failed trial in Optuna; one that
    ended without a metric is pruned.

    Args:
        space: Search space, dictionary of Optuna's distributions, or define-by-run function of an
            `optuna.Trial` that returns a dictionary of constants or None. Default: the tuner's
            space.
        metric: Metric to optimize, or a list for several objectives.
        mode: "min" or "max", or a list for several objectives.
        points_to_evaluate: Initial configurations. Optuna samples omitted parameters.
        sampler: Optuna sampler. Default: `TPESampler(seed=seed)`.
        study_name: Name of the study in `storage`, "optuna" by default. An existing study is
            continued.
        storage: Optuna storage of the study. Default: in memory, saved in the searcher's state. The
            state contains only a reference to other storages.
        seed: Random seed of the default sampler.
        evaluated_rewards: Known metrics of `points_to_evaluate`, which are then not run again.

    Raises:
        ImportError: Optuna is not installed.
        TypeError: An argument has the wrong type.
        ValueError: The arguments contradict each other.
    """

    package = "optuna"

    def __init__(
        self,
        space: Space | None = None,
        metric: str | list[str] | None = None,
        mode: str | list[str] | None = None,
        points_to_evaluate: list[Config] | None = None,
        sampler: BaseSampler | None = None,
        study_name: str | None = None,
        storage: BaseStorage | None = None,
        seed: int | None = None,
        evaluated_rewards: list[LibraryObject] | None = None,
    ) -> None:
        optuna = _optuna()
        if sampler is not None and not isinstance(sampler, optuna.samplers.BaseSampler):
            raise TypeError(
                f"`sampler` must be one of optuna.samplers, such as TPESampler(), not {sampler!r}."
            )
        if storage is not None and not isinstance(storage, optuna.storages.BaseStorage):
            raise TypeError(
                f"`storage` must be one of optuna.storages, such as RDBStorage(url), not "
                f"{storage!r}."
            )
        if sampler is not None and seed is not None:
            logger.warning(
                "OptunaSearch ignores seed=%s because a sampler is given. Set the seed of the "
                "sampler.",
                seed,
            )
        if evaluated_rewards and callable(space):
            raise TypeError(
                "`evaluated_rewards` need a space with named distributions, but `space` is a "
                "function, whose values have no known distributions."
            )
        self._sampler = sampler
        self._study_name = study_name or "optuna"
        self._storage = storage
        self._seed = seed
        super().__init__(space, metric, mode, points_to_evaluate, evaluated_rewards)

    def on_trial_result(self, trial_id: str, result: Metrics) -> None:
        """Report an intermediate value, unless there are several objectives."""
        candidate = self._candidates.get(trial_id)
        if candidate is None or isinstance(self._metric, list | tuple):
            return
        step = result.get(TRAINING_ITERATION, candidate.last_step + 1)
        value = result.get(str(self.metric))
        if value is not None and math.isfinite(value) and step > candidate.last_step:
            candidate.last_step = step
            try:
                candidate.trial.report(float(value), step)
            except RuntimeError:
                # After a restart, a persistent storage may already contain the end of the trial.
                logger.debug("Trial %s has already ended in Optuna's storage.", trial_id)

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        """Report the values, or the failure or pruning of the trial."""
        candidate = self._candidates.pop(trial_id, None)
        if candidate is None:
            return
        states = _optuna().trial.TrialState
        values = [(result or {}).get(metric) for metric, _ in self._objectives()]
        if error or any(value is not None and not math.isfinite(value) for value in values):
            told: Config = {"state": states.FAIL}
        elif None in values:
            told = {"state": states.PRUNED}
        else:
            told = {"values": [float(value) for value in values if value is not None]}
        # After a restart, a persistent storage may already contain the end of the trial.
        self._optimizer.tell(candidate.trial, skip_if_finished=True, **told)

    def add_evaluated_point(
        self,
        parameters: Config,
        value: LibraryObject,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Learn from a configuration that was evaluated elsewhere.

        Args:
            parameters: The configuration.
            value: Its metric, or a list for several objectives. A non-finite value is a failure.
            error: True if the evaluation failed.
            pruned: True if the evaluation was stopped early.
            intermediate_values: Earlier values of the metric.

        Raises:
            RuntimeError: Metric, mode or space are unset.
            TypeError: The space is a function.
        """
        self._start("learn from configurations")
        if callable(self._library_space):
            raise TypeError(
                "Configurations with known results need a space with named distributions, but "
                "`space` is a function."
            )
        optuna = _optuna()
        states = optuna.trial.TrialState
        params = self._params(self._searched(parameters))
        values = value if isinstance(value, list | tuple) else [value]
        failed = error or not all(math.isfinite(one) for one in values)
        self._optimizer.add_trial(
            optuna.trial.create_trial(
                state=states.FAIL if failed else states.PRUNED if pruned else states.COMPLETE,
                values=None if failed else list(map(float, values)),
                params=params,
                distributions={key: self._library_space[key] for key in params},
                intermediate_values=dict(enumerate(intermediate_values or [])),
            )
        )

    def _learn(self, point: Values, reward: LibraryObject) -> None:
        self.add_evaluated_point(dict(point), reward)

    def _objectives(self) -> list[tuple[str, str]]:
        """Return (metric, mode) of each objective, without metrics that are only observed."""
        assert self.metric is not None
        assert self.mode is not None
        metrics = [self.metric] if isinstance(self.metric, str) else self.metric
        modes = [self.mode] if isinstance(self.mode, str) else self.mode
        return [
            (metric, mode) for metric, mode in zip(metrics, modes, strict=True) if mode != "obs"
        ]

    def _start_if_ready(self) -> None:
        if isinstance(self._mode, list | tuple) and self._metric is None:
            raise ValueError(
                f"mode={self._mode} is a list, so `metric` must be a list of names as well."
            )
        super()._start_if_ready()

    def _check_space(self, space: LibraryObject) -> LibraryObject:
        if callable(space):
            return space
        flat = flatten_dict(space) if isinstance(space, dict) else {}
        base = _optuna().distributions.BaseDistribution
        if not flat or not all(isinstance(distribution, base) for distribution in flat.values()):
            raise TypeError(
                f"`space` must be a search space, a dictionary of Optuna's distributions, or a "
                f"function of a trial, not {space!r}."
            )
        return flat

    @classmethod
    def _convert_space(cls, space: SearchSpace) -> dict[str, BaseDistribution]:
        return {key: _distribution(parameter) for key, parameter in space.parameters.items()}

    def _create_optimizer(self) -> Study:
        optuna = _optuna()
        with quiet(optuna):
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
            return study

    def _ask(self) -> tuple[_Candidate, Config]:
        if callable(self._library_space):
            trial = self._optimizer.ask()
            return _Candidate(trial), _asked_by_function(self._library_space, trial)
        trial = self._optimizer.ask(self._library_space)
        values = trial.params
        if self._space is None:
            return _Candidate(trial), unflatten_dict(values)
        return _Candidate(trial), self._space.config_of(
            lambda parameter: _value(parameter, values[parameter.key])
        )

    def _ask_point(self, point: Values) -> tuple[_Candidate, Config]:
        self._optimizer.enqueue_trial(self._params(point))
        return self._ask()

    def _params(self, point: Values) -> Config:
        """Return the values of the point for Optuna."""
        space = self._space
        if space is None:
            return flatten_dict(point)
        values = space.values(point)
        drawn = {key: space.parameters[key].drawn(value)[key] for key, value in values.items()}
        return {
            key: drawn[key] if _by_index(space.parameters[key]) else value
            for key, value in values.items()
        }


def _optuna() -> LibraryObject:
    return OptunaSearch.load("optuna")


@contextmanager
def quiet(optuna: LibraryObject) -> Iterator[None]:
    """Suppress Optuna's message on stderr about a new study."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _distribution(parameter: Parameter) -> BaseDistribution:
    distributions = _optuna().distributions
    log = parameter.distribution == "log"
    # Optuna does not support steps on logarithmic scales, so values are rounded afterwards.
    step = None if log else parameter.step
    made: BaseDistribution
    if parameter.kind == "float":
        made = distributions.FloatDistribution(parameter.low, parameter.high, log=log, step=step)
    elif parameter.kind == "integer":
        made = distributions.IntDistribution(parameter.low, parameter.high, log=log, step=step or 1)
    else:
        choices = range(len(parameter.choices)) if _by_index(parameter) else parameter.choices
        made = distributions.CategoricalDistribution(choices)
    return made


def _by_index(parameter: Parameter) -> bool:
    """Return True if Optuna gets the indices of choices because it does not support their types."""
    return not all(
        isinstance(choice, bool | int | float | str | None) for choice in parameter.choices
    )


def _value(parameter: Parameter, value: LibraryObject) -> LibraryObject:
    """Return the trial's value for a value of Optuna."""
    if parameter.kind == "choice":
        return parameter.choices[value] if _by_index(parameter) else value
    return parameter.number(value) if parameter.step else value


def _asked_by_function(function: Callable[[Trial], Values | None], trial: Trial) -> Config:
    constants = function(trial)
    if constants is not None and not (
        isinstance(constants, dict) and all(isinstance(key, str) for key in constants)
    ):
        raise TypeError(
            f"The function `space` must return None, or a dictionary of constants by name, not "
            f"{constants!r}."
        )
    return unflatten_dict({**trial.params, **(constants or {})})
