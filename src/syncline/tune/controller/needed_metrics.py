"""What the search needs of a result, and what is said where a trainable does not report it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from syncline.train import metrics as metric_values
from syncline.tune.error import TuneError
from syncline.tune.result import AUTO_RESULT_KEYS, CONFIG, DEFAULT_METRIC
from syncline.tune.stopper import Stopper
from syncline.tune.stopper.make import unknown_keys_message


def check_result(
    result: Mapping[str, Any],
    trainable: str,
    needed: Mapping[str, str | None],
    stopper: Stopper | None,
) -> None:
    """Whether a result has what is needed of it. One in which the trainable has reported nothing at
    all passes.

    Args:
        result: As it came, with the keys that are filled in.
        trainable: Its name.
        needed: Metrics, by who needs them.
        stopper: Whose keys are looked for, too.

    Raises:
        TuneError: Something is missing; with the nearest name that is there.
    """
    own = [
        key
        for key in metric_values.flatten(
            {key: value for key, value in result.items() if key != CONFIG}
        )
        if key not in AUTO_RESULT_KEYS
    ]
    if not own:
        return
    if stopper is not None and (problem := unknown_keys_message(stopper, result)) is not None:
        raise TuneError(problem)
    for who, metric in needed.items():
        if (
            metric is None
            or metric == DEFAULT_METRIC
            or metric_values.lookup(result, metric) is not None
        ):
            continue
        near = difflib.get_close_matches(metric, own, n=1, cutoff=0.5)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise TuneError(
            f"{who} needs the metric {metric!r}, but the trainable {trainable!r} reported {sorted(own)}.{meant} Report it with every "
            "result, or name one of these. (TUNE_DISABLE_STRICT_METRIC_CHECKING=1 lets results without it pass.)"
        )
