"""What a searcher is: something that suggests configurations and learns from what they gave.

Covered: the base class for searchers of our own and of users, with saving to files and feeding in
earlier results; the base class of those that wrap another. Not covered: how the controller drives
one, see `search_generator`.
"""

from __future__ import annotations

import copy
import inspect
import logging
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from syncline.tune.result import DONE

logger = logging.getLogger(__name__)


class Searcher:
    """Base class of searchers. Subclasses implement `suggest` and `on_trial_complete`, and call
    this constructor.

    `metric` names the result to go by and `mode` its better direction, "min" or "max". Both may be
    lists of the same length; a mode may then be "obs" too: observed without being optimized. What
    is left out, the tuner gives through `set_search_properties`.

    All methods are called from one thread. Every trial that was suggested gets one
    `on_trial_complete`, whatever became of it.
    """

    FINISHED: ClassVar[str] = "FINISHED"
    CKPT_FILE_TMPL: ClassVar[str] = "searcher-state-{}.pkl"

    def __init__(
        self, metric: str | list[str] | None = None, mode: str | list[str] | None = None
    ) -> None:
        check_metric_and_mode(metric, mode)
        self._metric: str | list[str] | None = metric
        self._mode: str | list[str] | None = mode

    @property
    def metric(self) -> Any:
        """The result, or list of results, that this searcher goes by; None while it is not
        known.
        """
        return self._metric

    @property
    def mode(self) -> Any:
        """The better direction of `metric`: "min" or "max", or a list of them; None while it is not
        known.
        """
        return self._mode

    def set_search_properties(
        self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Takes the tuner's metric, mode and search space, and what else `spec` says (such as
        `num_samples`).

        True if the searcher will search `config`. False if it has a space of its own, or takes
        none: as this base class, which fills in metric and mode where they are missing.
        """
        self._metric = self._metric or metric
        self._mode = self._mode or mode
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """The configuration of a new trial. None: not now, ask again when a trial has ended.
        FINISHED: no more at all.
        """
        raise NotImplementedError

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """A trial reported `result`, in which the metric may be missing or NaN."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """A trial ended. `result` is its last one, None if it has none; `error` says whether it
        failed.
        """
        raise NotImplementedError

    def on_pause(self, trial_id: str) -> None:
        """A scheduler paused the trial."""

    def on_unpause(self, trial_id: str) -> None:
        """A paused trial goes on."""

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Limits the trials that may run at once. True if the searcher sees to that itself; False,
        as here, if somebody else has to.
        """
        return False

    def add_evaluated_point(
        self,
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        """Learns from a point that was evaluated elsewhere: `value` is its metric, `pruned` says
        that it was stopped early.

        NotImplementedError where the searcher cannot.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot learn from points that were evaluated elsewhere."
        )

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Learns from the trials of an earlier search: a trial, a list of them, or the analysis or
        result grid of an experiment.

        Trials that never reported `metric` are left out, with a warning if none did.
        NotImplementedError where the searcher cannot.
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
                f"None of the trials reported {metric!r}, so there is nothing to learn from: check the name.",
                stacklevel=2,
            )

    def get_state(self) -> dict[str, Any]:
        """All that is needed to go on later. Optional: whoever keeps searchers falls back to
        `save`, then to pickling the whole.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement get_state().")

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state of `get_state`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement set_state().")

    def save(self, checkpoint_path: str) -> None:
        """Writes the state to the file `checkpoint_path`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement save().")

    def restore(self, checkpoint_path: str) -> None:
        """Goes on from a file of `save`."""
        raise NotImplementedError(f"{type(self).__name__} does not implement restore().")

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Saves into a directory, under a name that contains `session_str`; the file appears whole
        or not at all.
        """
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
        """Goes on from the file of `save_to_dir` whose name comes last; RuntimeError if there is
        none.
        """
        files = sorted(Path(checkpoint_dir).glob(self.CKPT_FILE_TMPL.format("*")))
        if not files:
            raise RuntimeError(
                f"{checkpoint_dir} holds no state of a searcher: no file is called {self.CKPT_FILE_TMPL.format('*')}."
            )
        self.restore(str(files[-1]))


class SearcherWrapper(Searcher):
    """Base of searchers that stand in front of another one, `searcher`: all that they do not change
    goes through to it.

    Its state is the wrapper's own, without that of the searcher inside.
    """

    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(
                f"{type(self).__name__} works with searchers, not with {searcher!r}. "
                "BasicVariantGenerator limits its trials itself: BasicVariantGenerator(max_concurrent=...)."
            )
        self.searcher = searcher

    @property
    def metric(self) -> Any:
        return self.searcher.metric

    @property
    def mode(self) -> Any:
        return self.searcher.mode

    def set_search_properties(
        self, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
    ) -> bool:
        return set_search_properties(self.searcher, metric, mode, config, **spec)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        return self.searcher.suggest(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
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
        parameters: dict[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: list[float] | None = None,
    ) -> None:
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def get_state(self) -> dict[str, Any]:
        # Copied together, so that what two entries share stays shared.
        return copy.deepcopy(
            {name: value for name, value in self.__dict__.items() if name != "searcher"}
        )

    def set_state(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def save(self, checkpoint_path: str) -> None:
        """Writes the state of the searcher inside, which can be restored with and without a
        wrapper.
        """
        self.searcher.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)


def set_search_properties(
    searcher: Searcher, metric: Any, mode: Any, config: dict[str, Any], **spec: Any
) -> bool:
    """`searcher.set_search_properties`, also of older searchers, whose method takes no `spec`."""
    parameters = inspect.signature(searcher.set_search_properties).parameters
    takes_spec = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    known = (
        spec if takes_spec else {name: value for name, value in spec.items() if name in parameters}
    )
    return searcher.set_search_properties(metric, mode, config, **known)


def check_metric_and_mode(metric: Any, mode: Any) -> None:
    """ValueError unless `mode` fits `metric`; either may be None."""
    modes = mode if isinstance(mode, list | tuple) else [] if mode is None else [mode]
    allowed = ("min", "max", "obs") if isinstance(mode, list | tuple) else ("min", "max")
    if wrong := [one for one in modes if one not in allowed]:
        raise ValueError(f"`mode` must be one of {', '.join(allowed)}, not {wrong[0]!r}.")
    if metric is None or mode is None:
        return
    if isinstance(metric, str) != isinstance(mode, str):
        raise ValueError(
            f"`metric` and `mode` must both be strings or both be lists: metric={metric!r}, mode={mode!r}."
        )
    if not isinstance(metric, str) and len(metric) != len(mode):
        raise ValueError(
            f"Every metric needs a mode: there are {len(metric)} metrics {metric} and {len(mode)} modes {mode}."
        )


def _trials_of(source: Any) -> Sequence[Any]:
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
