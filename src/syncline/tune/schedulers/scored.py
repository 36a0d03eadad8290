"""`ScoredScheduler`: what all schedulers share that compare trials by a metric at a time.

Covered: metric and mode, given here or by the search's configuration but not by both; scores, where
more is better whatever the mode and not-a-number is worse than everything; errors that name what a
result lacks. Not covered: any decision.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from syncline.core.error_messages import did_you_mean
from syncline.tune.result import AUTO_RESULT_KEYS, DEFAULT_METRIC
from syncline.tune.schedulers.trial_scheduler import FIFOScheduler

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial

logger = logging.getLogger(__name__)

Mode = Literal["min", "max"]
WORST = -math.inf
"""The score of a trial whose metric is not a number."""
_ABSENT = object()


class ScoredScheduler(FIFOScheduler):
    """A scheduler that compares trials.

    Args:
        time_attr: The key of results that says how far a trial is; it must not decrease while a
            trial runs.
        metric: The key of results that trials are compared by.
        mode: Whether a good `metric` is low, `"min"`, or high, `"max"`.

    Raises:
        ValueError: `mode` is neither.
    """

    def __init__(self, *, time_attr: str, metric: str | None, mode: str | None) -> None:
        super().__init__()
        self._time_attr = time_attr
        self._metric = metric
        self._mode: str | None = checked_mode(mode)
        self._warned_of_time = False
        self._metric_seen = False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take what the search's configuration says; False if one of the two was given to the
        scheduler already.
        """
        if (self._metric and metric) or (self._mode and mode):
            return False
        self._metric = metric or self._metric
        self._mode = checked_mode(mode) or self._mode
        if self._metric is None and self._mode:
            self._metric = DEFAULT_METRIC
        return True

    def _check_properties(self) -> None:
        if not self._metric or not self._mode:
            raise ValueError(
                f"{type(self).__name__} compares trials, but has metric={self._metric!r} and mode={self._mode!r}: give both to it, or to "
                f"`TuneConfig(metric=…, mode=…)`."
            )

    def _score(self, trial: Trial, result: Mapping[str, Any]) -> float:
        """The metric of `result`, more being better; `WORST` if it is not a number.

        Raises:
            RuntimeError: The result does not have it.
        """
        value = look_up(result, str(self._metric))
        if value is _ABSENT:
            raise RuntimeError(self._missing(trial, result, "metric", str(self._metric)))
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise RuntimeError(
                f"Trial {trial} reported {self._metric}={value!r}, which is no number, so {type(self).__name__} cannot compare it: report "
                f"a float, or choose another `metric`."
            ) from None
        if math.isnan(number):
            return WORST
        return number if self._mode == "max" else -number

    def _time_and_score(
        self, trial: Trial, result: Mapping[str, Any]
    ) -> tuple[float | None, float | None]:
        """How far and how good the trial is; None for what the result does not say, as where
        validation comes every few steps.

        A time that is missing is warned of once.

        Raises:
            RuntimeError: The metric has not been in any result so far: its name must be wrong.
        """
        if not self._has(result, self._time_attr):
            if not self._warned_of_time:
                self._warned_of_time = True
                logger.warning("%s", self._missing(trial, result, "time_attr", self._time_attr))
            return None, None
        if self._metric_seen and not self._has(result, str(self._metric)):
            return self._required_time(trial, result), None
        score = self._score(trial, result)
        self._metric_seen = True
        return self._required_time(trial, result), score

    def _required_time(self, trial: Trial, result: Mapping[str, Any]) -> float:
        """How far the trial is.

        Raises:
            RuntimeError: The result does not say.
        """
        value = look_up(result, self._time_attr)
        if value is _ABSENT:
            raise RuntimeError(self._missing(trial, result, "time_attr", self._time_attr))
        return value  # type: ignore[no-any-return]

    def _has(self, result: Mapping[str, Any], key: str) -> bool:
        return look_up(result, key) is not _ABSENT

    def _missing(self, trial: Trial, result: Mapping[str, Any], what: str, key: str) -> str:
        own = sorted(set(result) - set(AUTO_RESULT_KEYS))
        return (
            f"A result of trial {trial} has no {key!r}, the `{what}` of {type(self).__name__}, so nothing can be decided on it."
            f"{did_you_mean(key, result)} It has {', '.join(own) or 'nothing of its own'}: report {key!r} too, or change `{what}`."
        )


def checked_mode(mode: str | None) -> str | None:
    """`mode` itself.

    Raises:
        ValueError: It is neither None, nor `"min"`, nor `"max"`.
    """
    if mode is not None and mode not in get_args(Mode):
        raise ValueError(
            f"mode={mode!r} must be 'min' or 'max': should a good metric be low or high?"
        )
    return mode


def look_up(result: Mapping[str, Any], key: str) -> Any:
    """The value at `key`, which may be a path `a/b` into nested results; `_ABSENT` if there is
    none.
    """
    if key in result:
        return result[key]
    value: Any = result
    for part in key.split("/"):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value
