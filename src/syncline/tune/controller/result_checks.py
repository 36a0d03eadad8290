"""Checks of a result before the search decides: required metrics, and the stopper's verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from syncline.suggestions import did_you_mean
from syncline.train import metric_values
from syncline.tune.controller.events import TrialStepped
from syncline.tune.error import TuneError
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import (
    AUTO_RESULT_KEYS,
    CHECKPOINT_DIR_NAME,
    CONFIG,
    DEFAULT_METRIC,
    DONE,
    EXPERIMENT_TAG,
    Metrics,
)
from syncline.tune.stopper import Stopper, unknown_keys_message


def check_result(
    result: Metrics, trainable: str, required: Mapping[str, str | None], stopper: Stopper | None
) -> None:
    """Check a result. One without any value of the trainable passes.

    Args:
        result: A complete result, including the keys that the library fills in.
        trainable: Name of the trainable, for the message.
        required: Required metrics by the name of their user.
        stopper: A stopper whose keys are required; None to skip that check.

    Raises:
        TuneError: A metric is missing; the message names the closest one that was reported.
    """
    own = _own_metrics(result)
    if not own:
        return
    if stopper is not None and (problem := unknown_keys_message(stopper, result)) is not None:
        raise TuneError(problem)
    for user, metric in required.items():
        if (
            metric is None
            or metric == DEFAULT_METRIC
            or metric_values.lookup(result, metric) is not None
        ):
            continue
        raise TuneError(
            f"{user} needs the metric {metric!r}, but the trainable {trainable!r} reported "
            f"{sorted(own)}.{did_you_mean(metric, own)} Report {metric!r} with every result, or "
            "use one of the reported metrics. Set TUNE_DISABLE_STRICT_METRIC_CHECKING=1 to allow "
            "results without it."
        )


def check_score_attribute(result: Metrics, attribute: str) -> None:
    """Check that a checkpoint with the metrics of `result` can be ranked by `attribute`. A result
    without any value of the trainable passes.

    Raises:
        TuneError: The metric is missing or not a number.
    """
    own = _own_metrics(result)
    if own:
        try:
            metric_values.check_score(result, attribute, own)
        except ValueError as error:
            raise TuneError(str(error)) from None


def _own_metrics(result: Metrics) -> list[str]:
    """Return the names of the trainable's metrics, without the ones that the library fills in."""
    metrics = {key: value for key, value in result.items() if key != CONFIG}
    return [key for key in metric_values.flatten(metrics) if key not in AUTO_RESULT_KEYS]


def full_result(trial: Trial, event: TrialStepped) -> Metrics:
    """Return the result with the keys that the controller fills in."""
    result = {**event.result, EXPERIMENT_TAG: trial.experiment_tag}
    if event.checkpoint is not None:
        result[CHECKPOINT_DIR_NAME] = event.checkpoint.path.rpartition("/")[2]
    return result


def stopper_verdict(event: TrialStepped, trial: Trial, stopper: Stopper) -> TrialStepped:
    """Return `event` with the verdict of `stopper` on its result."""
    if event.ended and (trial.last_result or event.earlier):
        return event  # it repeats a result that the stopper saw
    result = full_result(trial, event)
    stop_trial = not (event.ended or result.get(DONE)) and stopper(trial.trial_id, result)
    stop_all = stopper.stop_all()
    if not (stop_trial or stop_all):
        return event
    return replace(event, stop_trial=bool(stop_trial), stop_all=bool(stop_all))
