"""Reported results of trials: `read_history` reads all results of a trial, `best_trial` compares
trials by a metric. Tables (`syncline.tune.analysis`) and figures (`syncline.tune.plots`) use both.

Not covered: writing `result.json` (JSON Lines), `progress.csv` (`syncline.tune.logger`) and
`results.jsonl` (`results_file`).
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Literal, TypeAlias, get_args

from pyarrow import fs as pyarrow_fs

from syncline.storage import filesystem as directories
from syncline.suggestions import did_you_mean
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import (
    AUTO_RESULT_KEYS,
    EXPR_PROGRESS_FILE,
    EXPR_RESULT_FILE,
    TRIAL_ID,
    Metrics,
)
from syncline.tune.results_file import read_results

FileType: TypeAlias = Literal["json", "csv"]
"""Preferred file of a trial's results."""

Scope: TypeAlias = Literal["last", "avg", "all", "last-5-avg", "last-10-avg"]
"""Compared value of a metric: the last, the average of all, of the last five or ten, or ("all") the
best one.
"""
SCOPES: tuple[str, ...] = get_args(Scope)


def read_history(
    filesystem: pyarrow_fs.FileSystem, trial_path: str, first: FileType = "json"
) -> list[Metrics] | None:
    """Return all results of a trial in order, without a line that a kill cut off: those in
    `results.jsonl` of the search, else those in files of the trial's directory. Results from
    `progress.csv` are flat. Return None if there are none of these files.
    """
    results = read_results(filesystem, trial_path)
    if results is not None:
        return results
    for kind in (first, "csv" if first == "json" else "json"):
        name = EXPR_RESULT_FILE if kind == "json" else EXPR_PROGRESS_FILE
        data = directories.read_bytes(filesystem, directories.join(trial_path, name))
        if data is not None:
            text = data.decode("utf-8", "replace")
            return _from_json(text) if kind == "json" else _from_csv(text)
    return None


def _from_json(text: str) -> list[Metrics]:
    rows: list[Metrics] = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _from_csv(text: str) -> list[Metrics]:
    lines = [line for line in csv.reader(StringIO(text)) if line]
    if not lines:
        return []
    names = lines[0]
    return [
        {
            name: cell if name == TRIAL_ID else _parsed(cell)
            for name, cell in zip(names, line, strict=True)
        }
        for line in lines[1:]
        if len(line) == len(names)
    ]


def _parsed(text: str) -> str | float | bool | None:
    """Parse a cell: a number, a truth value, None, or the text itself."""
    if text in ("", "None"):
        return None
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check_mode(mode: str | None, where: str) -> None:
    """Check a mode; None is valid.

    Raises:
        ValueError: It is neither "min" nor "max".
    """
    if mode not in (None, "min", "max"):
        raise ValueError(f'{where}: mode={mode!r} is unknown: pass "min" or "max".')


def best_trial(
    trials: Iterable[Trial],
    metric: str,
    mode: str,
    scope: str = "last",
    *,
    filter_nan_and_inf: bool = True,
) -> Trial | None:
    """Return the trial with the best value, the first of equal ones; None if no trial has a value.

    Args:
        trials: Trials to compare.
        metric: Key in results, `a/b` if nested.
        mode: "min" or "max".
        scope: One of `Scope`.
        filter_nan_and_inf: Ignore trials with an infinite value or NaN.

    Raises:
        ValueError: Unknown `scope`.
    """
    if scope not in SCOPES:
        raise ValueError(f"scope={scope!r} is unknown: pass one of {list(SCOPES)}.")
    statistic = mode if scope == "all" else scope
    best: Trial | None = None
    best_value = 0.0
    for trial in trials:
        summary = trial.summary(metric)
        if summary is None:
            continue
        value = summary[statistic]
        if filter_nan_and_inf and not math.isfinite(value):
            continue
        if best is None or (value > best_value if mode == "max" else value < best_value):
            best, best_value = trial, value
    return best


def known_metrics(trials: Iterable[Trial]) -> list[str]:
    """Return the keys of all reported numbers, the trainable's own ones first."""
    names = {name: None for trial in trials for name in trial.metric_analysis}
    return sorted(names, key=lambda name: (name in AUTO_RESULT_KEYS, name))


def no_best_trial(metric: str, trials: Sequence[Trial], *, filter_nan_and_inf: bool) -> str:
    """Return the reason why `best_trial` found none, with the closest metric."""
    names = known_metrics(trials)
    if metric in names:
        hint = (
            " that is finite: fix the trainable, or pass `filter_nan_and_inf=False`"
            if filter_nan_and_inf
            else ""
        )
        return f"No trial has a value of {metric!r}{hint}."
    if not names:
        return f"No trial has reported {metric!r}, or any other number: check `results.errors`."
    own = [name for name in names if name not in AUTO_RESULT_KEYS] or names
    return (
        f"No trial has reported a number under {metric!r}.{did_you_mean(metric, names)} "
        f"Reported are {own}."
    )
