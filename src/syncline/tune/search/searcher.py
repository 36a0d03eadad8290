"""`Searcher`, the base class of algorithms that suggest configurations and learn from results;
`SearcherWrapper`, the base class of searchers around another one; and the capture of a searcher's
state.

Not covered: use by the controller (`search_generator.py`).
"""

from __future__ import annotations

import copy
import inspect
import logging
import pickle
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import cloudpickle

from syncline.tune.result import DONE, Config, Metrics

logger = logging.getLogger(__name__)

MetricNames: TypeAlias = str | Sequence[str] | None
"""Metric to optimize, or one for each of several objectives; None if unset."""
Modes: TypeAlias = str | Sequence[str] | None
""""min" or "max", or one for each of several objectives; None if unset."""

_unsaved_classes: set[type] = set()
"""Classes whose state cannot be saved and for which a warning has been logged."""


class Searcher:
    """Base class of searchers. Subclasses implement `suggest` and `on_trial_complete`, and call
    this constructor.

    One thread calls all methods. Each suggested trial gets one `on_trial_complete`, also after a
    failure.

    Args:
        metric: Metric to optimize, or a list for several objectives. Default: from `TuneConfig`.
        mode: "min" or "max", or a list with the same length as `metric`. In a list, "obs" is a
            metric that is only observed.

    Raises:
        ValueError: `mode` does not match `metric`.
    """

    FINISHED: ClassVar[str] = "FINISHED"
    CKPT_FILE_TMPL: ClassVar[str] = "searcher-state-{}.pkl"

    def __init__(self, metric: MetricNames = None, mode: Modes = None) -> None:
        check_metric_and_mode(metric, mode)
        self._metric = metric
        self._mode = mode

    @property
    def metric(self) -> MetricNames:
        """Metric or list of metrics; None if unset."""
        return self._metric

    @property
    def mode(self) -> Modes:
        """Mode or list of modes; None if unset."""
        return self._mode

    def set_search_properties(
        self, metric: MetricNames, mode: Modes, config: Config, **spec: object
    ) -> bool:
        """Set metric, mode and search space from the tuner.

        Args:
            metric: Metric of `TuneConfig`.
            mode: Mode of `TuneConfig`.
            config: The search space.
            **spec: Further settings of the search, such as `num_samples`.

        Returns:
            True if the searcher will search `config`; False if it has another space or does not
            support spaces. This base class sets metric and mode if they are unset, and returns
            False.
        """
        self._metric = self._metric or metric
        self._mode = self._mode or mode
        return False

    def suggest(self, trial_id: str) -> Config | str | None:
        """Return the configuration of a new trial, None if there is none until another trial ends,
        or FINISHED if there are no more.
        """
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: Metrics) -> None:
        """Handle a result, in which the metric may be missing or NaN."""

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        """Handle the end of a trial.

        Args:
            trial_id: Id of the trial.
            result: Last result; None if there is none.
            error: True if the trial failed.
        """
        raise NotImplementedError

    def on_pause(self, trial_id: str) -> None:
        """Handle a pause of the trial by a scheduler."""

    def on_unpause(self, trial_id: str) -> None:
        """Handle the continuation of a paused trial."""

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Limit the number of concurrent trials; return False, as here, if the searcher cannot."""
        return False

    def add_evaluated_point(
        self,
        parameters: Config,
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Learn from a configuration that was evaluated elsewhere.

        Args:
            parameters: The configuration.
            value: Its metric.
            error: True if the evaluation failed.
            pruned: True if the evaluation was stopped early.
            intermediate_values: Earlier values of the metric.

        Raises:
            NotImplementedError: The searcher does not support this.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not support configurations that were evaluated elsewhere."
        )

    def add_evaluated_trials(self, trials_or_analysis: object, metric: str) -> None:
        """Learn from the trials of an earlier search. Log a warning if no trial has the metric.

        Args:
            trials_or_analysis: A trial, a list of trials, or the analysis or result grid of an
                experiment.
            metric: Name of the metric; trials that never reported it are ignored.

        Raises:
            NotImplementedError: The searcher does not support this.
        """
        with_metric = [
            trial for trial in _trials_of(trials_or_analysis) if metric in trial.last_result
        ]
        for trial in with_metric:
            stopped_early = trial.status == "TERMINATED" and not trial.last_result.get(DONE, False)
            self.add_evaluated_point(
                trial.config,
                trial.last_result[metric],
                error=trial.status == "ERROR",
                pruned=stopped_early,
            )
        if not with_metric:
            warnings.warn(
                f"None of the trials reported {metric!r}, so the searcher learns nothing from "
                f"them. Check the name of the metric.",
                stacklevel=2,
            )

    def get_state(self) -> dict[str, object]:
        """Return the state of the searcher. Optional: without it, `save` is used, or else all
        attributes are pickled.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement get_state().")

    def set_state(self, state: dict[str, object]) -> None:
        """Restore a state of `get_state`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement set_state().")

    def save(self, checkpoint_path: str) -> None:
        """Write the state to a file."""
        raise NotImplementedError(f"{type(self).__name__} does not implement save().")

    def restore(self, checkpoint_path: str) -> None:
        """Restore the state from a file of `save`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement restore().")

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Save the state atomically to a file in a directory, named with `session_str`."""
        target = Path(checkpoint_dir, self.CKPT_FILE_TMPL.format(session_str))
        unfinished = target.with_name(f".{uuid.uuid4()}-tmp-{target.name}")
        try:
            self.save(str(unfinished))
        except NotImplementedError:
            logger.warning(
                "%s does not implement save(): nothing was written to %s.",
                type(self).__name__,
                checkpoint_dir,
            )
        else:
            unfinished.replace(target)

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Restore the state from the last file of `save_to_dir` in alphabetical order.

        Raises:
            RuntimeError: The directory has no such file.
        """
        files = sorted(Path(checkpoint_dir).glob(self.CKPT_FILE_TMPL.format("*")))
        if not files:
            raise RuntimeError(
                f"{checkpoint_dir} has no state of a searcher: no file is named "
                f"{self.CKPT_FILE_TMPL.format('*')}."
            )
        self.restore(str(files[-1]))


def set_search_properties(
    searcher: Searcher, metric: MetricNames, mode: Modes, config: Config, **spec: object
) -> bool:
    """Call `searcher.set_search_properties`, without `spec` if an older searcher lacks it."""
    parameters = inspect.signature(searcher.set_search_properties).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        spec = {name: value for name, value in spec.items() if name in parameters}
    return searcher.set_search_properties(metric, mode, config, **spec)


def check_metric_and_mode(metric: MetricNames, mode: Modes) -> None:
    """Check that `mode` matches `metric`; either may be None.

    Raises:
        ValueError: It does not.
    """
    modes = mode if isinstance(mode, list | tuple) else [] if mode is None else [mode]
    allowed = ("min", "max", "obs") if isinstance(mode, list | tuple) else ("min", "max")
    if wrong := [one for one in modes if one not in allowed]:
        raise ValueError(f"`mode` must be one of {', '.join(allowed)}, not {wrong[0]!r}.")
    if metric is None or mode is None:
        return
    if isinstance(metric, str) != isinstance(mode, str):
        raise ValueError(
            f"`metric` and `mode` must both be strings or both be lists: metric={metric!r}, "
            f"mode={mode!r}."
        )
    if not isinstance(metric, str) and len(metric) != len(mode):
        raise ValueError(
            f"Every metric needs a mode: there are {len(metric)} metrics {metric} and {len(mode)} "
            f"modes {mode}."
        )


def _trials_of(source: object) -> Sequence[Any]:
    if isinstance(source, list | tuple):
        return source
    if isinstance(getattr(source, "last_result", None), Mapping):
        return [source]
    analysis = getattr(source, "_experiment_analysis", source)
    trials = getattr(analysis, "trials", None)
    if trials is None:
        raise TypeError(
            f"Expected a trial, a list of trials, or the analysis of an experiment, not {source!r}."
        )
    return list(trials)


@dataclass(frozen=True, kw_only=True)
class SearcherState:
    """State of one searcher, without that of a wrapped searcher."""

    kind: Literal["state", "file", "attributes", "none"]
    """Source of `value`: `get_state()`, the bytes that `save()` writes, the pickled attributes, or
    nothing.
    """

    value: Any


def searcher_chain(searcher: object) -> Iterator[Searcher]:
    """Iterate over a searcher and its wrapped searchers, the outermost first."""
    while isinstance(searcher, Searcher):
        yield searcher
        searcher = getattr(searcher, "searcher", None)


def capture_states(searcher: Searcher) -> list[SearcherState]:
    """Return the states of a searcher and its wrapped searchers, the outermost first."""
    return [_capture_state(one) for one in searcher_chain(searcher)]


def restore_states(searcher: Searcher, states: list[SearcherState]) -> None:
    """Restore states of `capture_states`.

    Raises:
        ValueError: The number of searchers differs.
    """
    chain = list(searcher_chain(searcher))
    if len(chain) != len(states):
        raise ValueError(
            f"The saved search has {len(states)} nested searchers, but the given `search_alg` has "
            f"{len(chain)}: {' around '.join(type(one).__name__ for one in chain)}. Restore the "
            f"search with the same `search_alg`."
        )
    for one, state in zip(chain, states, strict=True):
        _restore_state(one, state)


def _capture_state(searcher: Searcher) -> SearcherState:
    try:
        return SearcherState(kind="state", value=searcher.get_state())
    except NotImplementedError:
        pass
    try:
        with tempfile.TemporaryDirectory(prefix="syncline-searcher-") as directory:
            file = Path(directory, "state")
            searcher.save(str(file))
            return SearcherState(kind="file", value=file.read_bytes())
    except NotImplementedError:
        pass
    try:
        own = {name: value for name, value in searcher.__dict__.items() if name != "searcher"}
        return SearcherState(kind="attributes", value=cloudpickle.dumps(own))
    except Exception as error:  # Pickling of attributes can raise any error.
        if type(searcher) not in _unsaved_classes:
            _unsaved_classes.add(type(searcher))
            logger.warning(
                "The state of %s cannot be saved (%s: %s), so a restored search would start it "
                "from scratch. Implement get_state() and set_state(), or save() and restore().",
                type(searcher).__name__,
                type(error).__name__,
                error,
            )
        return SearcherState(kind="none", value=None)


def _restore_state(searcher: Searcher, state: SearcherState) -> None:
    if state.kind == "state":
        searcher.set_state(state.value)
    elif state.kind == "file":
        with tempfile.TemporaryDirectory(prefix="syncline-searcher-") as directory:
            file = Path(directory, "state")
            file.write_bytes(state.value)
            searcher.restore(str(file))
    elif state.kind == "attributes":
        searcher.__dict__.update(pickle.loads(state.value))
    else:
        logger.warning(
            "%s starts from scratch: its state could not be saved.", type(searcher).__name__
        )


class SearcherWrapper(Searcher):
    """Base of searchers around another one, `searcher`, to which all methods are forwarded.

    The state does not contain the state of the inner searcher.
    """

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(
                f"{type(self).__name__} needs a Searcher, not {searcher!r}. To limit the trials of "
                f"a BasicVariantGenerator, use BasicVariantGenerator(max_concurrent=...)."
            )
        self.searcher = searcher

    @property
    def metric(self) -> MetricNames:
        return self.searcher.metric

    @property
    def mode(self) -> Modes:
        return self.searcher.mode

    def set_search_properties(
        self, metric: MetricNames, mode: Modes, config: Config, **spec: object
    ) -> bool:
        return set_search_properties(self.searcher, metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> Config | str | None:
        return self.searcher.suggest(trial_id)

    def on_trial_result(self, trial_id: str, result: Metrics) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: Metrics | None = None, error: bool = False
    ) -> None:
        self.searcher.on_trial_complete(trial_id, result=result, error=error)

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        return self.searcher.set_max_concurrency(max_concurrent)

    def add_evaluated_point(
        self,
        parameters: Config,
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def get_state(self) -> dict[str, object]:
        # One deepcopy call for all attributes keeps shared objects shared.
        return copy.deepcopy(
            {name: value for name, value in self.__dict__.items() if name != "searcher"}
        )

    def set_state(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)

    def save(self, checkpoint_path: str) -> None:
        """Write the state of the inner searcher, which can be restored without the wrapper."""
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)
