"""`View` takes `Snapshot`s of a search: everything that a display shows, as text. Also the texts of
summaries. Pure.

Numbers, durations and paths are formatted by `syncline.train.console.formatting`.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from syncline.runs.causes import cause_line
from syncline.storage import filesystem as directories
from syncline.train import metric_values
from syncline.train.checkpoint import Checkpoint
from syncline.train.console.formatting import (
    counted,
    duration,
    is_number,
    located,
    shortened,
    text_of,
)
from syncline.tune.console.trial_selection import TrialGroups, group_trials, select_trials
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import (
    AUTO_RESULT_KEYS,
    DEFAULT_METRIC,
    EXPR_ERROR_FILE,
    NODE_IP,
    PID,
    TIME_TOTAL_S,
    TIMESTEPS_TOTAL,
    TRAINING_ITERATION,
)

FAMILIAR_METRICS = {
    "mean_accuracy": "acc",
    "mean_loss": "loss",
    "episode_reward_mean": "reward",
    TIMESTEPS_TOTAL: "ts",
}
"""Metrics that always get a column if they are reported, with its heading."""
PROGRESS = {TRAINING_ITERATION: "iter", TIME_TOTAL_S: "total time (s)"}
"""The last columns, unless the program specifies the columns."""

Kind = Literal["name", "status", "location", "parameter", "metric", "progress"]
"""Content of a column."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table of trials."""

    heading: str
    kind: Kind
    is_numeric: bool = False
    """True to align the column on the right."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The trial with the best last value of the metric."""

    trial: str
    metric: str
    value: str
    iteration: int
    parameters: str
    """Text like `{'lr': 0.01}`."""
    checkpoint: str | None
    """Path or URI of its latest checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A trial that failed at least once."""

    trial: str
    times: int
    recovered: bool
    """True if the trial was restarted."""
    message: str
    """The last line of the error."""
    file: str
    """Path or URI of the complete error text."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A search at one moment."""

    counts: Mapping[str, int]
    """Number of trials per status."""
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    """One text per column; the second column is the status."""
    hidden: Mapping[str, int]
    """Number of trials without a row per status."""
    best: Best | None
    failures: Sequence[Failure]
    """The latest failures."""
    failed: int
    """Number of trials that failed at least once, displayed or not."""
    errored: int
    """Number of trials with status ERROR."""

    @property
    def total(self) -> int:
        """Number of trials."""
        return sum(self.counts.values())


@dataclass(kw_only=True)
class View:
    """Display options of a search.

    A view remembers the metrics that it found, so that columns do not change with every snapshot.
    """

    metric: str | None = None
    """Metric to optimize."""
    mode: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)
    """Headings by flat key of the configuration; empty for all searched parameters."""
    metrics: dict[str, str] | None = None
    """Headings by key of results; None for the metrics found in results, iterations and time."""
    found_metrics: int = 4
    """Maximum number of metrics to find."""
    length: int = 20
    """Maximum characters of a value."""
    sort_by_metric: bool = False
    """True to show the best TERMINATED trials instead of the latest."""
    _found: dict[str, str] = field(default_factory=dict)

    def take(
        self, trials: Sequence[Trial], *, rows: int | None = 20, errors: int | None = 20
    ) -> Snapshot:
        """Return the current state with at most `rows` rows and `errors` errors; None for all."""
        metric = self.metric or self._only_metric()
        found = group_trials(trials, metric, self.mode)
        chosen = select_trials(found, rows, best_first=self.sort_by_metric)
        self._find_metrics(chosen)
        columns, table = self._table(chosen)
        shown = group_trials(chosen).counts
        failures = (
            found.failed if errors is None else found.failed[max(0, len(found.failed) - errors) :]
        )
        return Snapshot(
            counts=found.counts,
            columns=columns,
            rows=table,
            hidden={
                status: count - shown.get(status, 0)
                for status, count in found.counts.items()
                if count > shown.get(status, 0)
            },
            best=self._best(found, metric),
            failures=[_failure(trial) for trial in failures],
            failed=len(found.failed),
            errored=found.counts.get(Trial.ERROR, 0),
        )

    def numbers(self, trial: Trial) -> dict[str, str]:
        """Return the last metrics of one trial that have columns, by heading."""
        self._find_metrics([trial])
        held = {
            heading: metric_values.lookup(trial.last_result, key)
            for key, heading in (self.metrics or self._found).items()
        }
        return {heading: text_of(value) for heading, value in held.items() if value is not None}

    def _only_metric(self) -> str | None:
        """Return the metric if trials report only one and the program sets none."""
        return next(iter(self._found)) if len(self._found) == 1 else None

    def _find_metrics(self, chosen: Sequence[Trial]) -> None:
        if self.metrics is not None:
            return
        if self.metric and self.metric not in self._found:
            self._found = {
                self.metric: FAMILIAR_METRICS.get(self.metric, self.metric),
                **self._found,
            }
        for trial in chosen:
            for key, value in trial.last_result.items():
                if len(self._found) >= self.found_metrics:
                    return
                if key in FAMILIAR_METRICS:
                    self._found.setdefault(key, FAMILIAR_METRICS[key])
                elif key not in AUTO_RESULT_KEYS and is_number(value):
                    self._found.setdefault(key, "value" if key == DEFAULT_METRIC else key)

    def _table(self, chosen: Sequence[Trial]) -> tuple[list[Column], list[list[str]]]:
        parameters = self.parameters or short_names(
            sorted({key for trial in chosen for key in trial.evaluated_params})
        )
        metrics = {**self._found, **PROGRESS} if self.metrics is None else self.metrics
        described: list[tuple[Column, list[str]]] = [
            (Column(heading="Trial name", kind="name"), [str(trial) for trial in chosen]),
            (Column(heading="status", kind="status"), [trial.status for trial in chosen]),
        ]
        locations = [_location(trial) for trial in chosen]
        if any(locations):
            described.append((Column(heading="loc", kind="location"), locations))
        for key, heading in parameters.items():
            held = [_parameter(trial, key) for trial in chosen]
            described.append(self._column(heading, "parameter", held))
        for key, heading in metrics.items():
            held = [metric_values.lookup(trial.last_result, key) for trial in chosen]
            if any(value is not None for value in held):
                kind: Kind = "progress" if key in PROGRESS else "metric"
                described.append(self._column(heading, kind, held))
        return [column for column, _ in described], [
            list(row) for row in zip(*(cells for _, cells in described), strict=True)
        ]

    def _column(self, heading: str, kind: Kind, held: Sequence[object]) -> tuple[Column, list[str]]:
        numeric = all(value is None or is_number(value) for value in held)
        column = Column(heading=shortened(heading, self.length), kind=kind, is_numeric=numeric)
        return column, [text_of(value, self.length) for value in held]

    def _best(self, found: TrialGroups, metric: str | None) -> Best | None:
        if found.best is None or metric is None:
            return None
        trial = found.best
        keys = self.parameters or trial.evaluated_params or metric_values.flatten(trial.config)
        checkpoint = trial.checkpoint
        return Best(
            trial=str(trial),
            metric=metric,
            value=text_of(metric_values.lookup(trial.last_result, metric)),
            iteration=trial.iteration,
            parameters=parameters_text({key: _parameter(trial, key) for key in keys}),
            checkpoint=_checkpoint_text(checkpoint) if checkpoint is not None else None,
        )


def _parameter(trial: Trial, key: str) -> object:
    """Return the value in the trial's configuration, which a scheduler may have changed; else the
    suggested value.
    """
    value = metric_values.lookup(trial.config, key)
    return trial.evaluated_params.get(key) if value is None else value


def _location(trial: Trial) -> str:
    if trial.location:
        return trial.location
    host, pid = trial.last_result.get(NODE_IP), trial.last_result.get(PID)
    return f"{host}:{pid}" if host and pid else ""


def _failure(trial: Trial) -> Failure:
    storage = trial.storage
    path = directories.join(trial.path, EXPR_ERROR_FILE)
    return Failure(
        trial=str(trial),
        times=max(1, trial.num_failures),
        recovered=trial.status != Trial.ERROR,
        message=failure_cause(trial.exception, trial.error_text),
        file=located(path, local=storage.local, scheme=storage.storage_filesystem.type_name),
    )


def _checkpoint_text(checkpoint: Checkpoint) -> str:
    """Return the local path or the URI of a checkpoint."""
    return located(
        checkpoint.path,
        local=directories.is_local(checkpoint.filesystem),
        scheme=checkpoint.filesystem.type_name,
    )


# -- texts of values


def parameters_text(parameters: Mapping[str, object], length: int = 40) -> str:
    """Format parameters in one line: `{'lr': 0.01, 'layers': 2}`."""
    values = (
        f"{key!r}: {text_of(value, length) if is_number(value) else shortened(repr(value), length)}"
        for key, value in parameters.items()
    )
    return f"{{{', '.join(values)}}}"


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Map each flat key (`model/lr`) to its shortest unique suffix: `lr`, or `model/lr` if there is
    also `optimizer/lr`.
    """
    names = list(keys)
    owners: dict[str, int] = {}
    for key in names:
        for suffix in _suffixes(key):
            owners[suffix] = owners.get(suffix, 0) + 1
    return {
        key: next((suffix for suffix in _suffixes(key) if owners[suffix] == 1), key)
        for key in names
    }


def _suffixes(key: str) -> list[str]:
    """Return `c`, `b/c`, `a/b/c`."""
    parts = key.split("/")
    return ["/".join(parts[position:]) for position in range(len(parts) - 1, -1, -1)]


def failure_cause(error: BaseException | None, text: str = "") -> str:
    """Return the line that names the cause in the traceback `text`, or in `error` without a text,
    as in lists of runs.
    """
    if not text.strip() and error is not None:
        text = "".join(traceback.format_exception_only(error))
    return cause_line(text) or "unknown reason"


# -- texts of a summary


def status_text(snapshot: Snapshot, expected: int | float | None) -> str:
    """Return a text like `12 of 50 trials: 2 RUNNING, 10 TERMINATED`.

    The second number is omitted if it is unknown or reached.
    """
    total = snapshot.total
    known = expected is not None and not math.isinf(expected) and expected > total
    trials = (
        f"{total} of {int(expected)} trials"
        if known and expected is not None
        else counted(total, "trial")
    )
    states = ", ".join(f"{count} {status}" for status, count in snapshot.counts.items())
    return f"{trials}: {states}" if states else trials


def hidden_text(snapshot: Snapshot) -> str:
    """Return the number of trials without a row; "" if there are none."""
    if not snapshot.hidden:
        return ""
    states = ", ".join(f"{count} {status}" for status, count in snapshot.hidden.items())
    return f"... {counted(sum(snapshot.hidden.values()), 'more trial')} not shown ({states})"


def best_text(best: Best) -> str:
    """Return `train_00003 with loss=0.12 after 10 iterations and parameters={'lr': 0.01}`."""
    iterations = f" after {counted(best.iteration, 'iteration')}" if best.iteration else ""
    return (
        f"{best.trial} with {best.metric}={best.value}{iterations} and parameters={best.parameters}"
    )


def failure_text(failure: Failure) -> str:
    """Return a text like `train_00003 failed: ValueError: no data`."""
    times = f" {failure.times} times" if failure.times > 1 else ""
    restarted = " and was restarted" if failure.recovered else ""
    return f"{failure.trial} failed{times}{restarted}: {shortened(failure.message, 200)}"


def closing_lines(snapshot: Snapshot, running_for_s: float) -> list[str]:
    """Return the summary at the end of a search: the statuses, and the best trial with its
    checkpoint.
    """
    lines = [f"Tune: {status_text(snapshot, None)}, after {duration(running_for_s)}."]
    if snapshot.best is not None:
        lines.append(f"Best trial: {best_text(snapshot.best)}")
        if snapshot.best.checkpoint is not None:
            lines[-1] += f"; checkpoint: {snapshot.best.checkpoint}"
    return lines


def errors_line(snapshot: Snapshot) -> str | None:
    """Return the last error in one line; None if no trial has status ERROR."""
    ended = [failure for failure in snapshot.failures if not failure.recovered]
    if not ended:
        return None
    others = (
        f" ({counted(snapshot.errored - 1, 'more trial')} failed)" if snapshot.errored > 1 else ""
    )
    return f"{failure_text(ended[-1])}{others}; see {ended[-1].file}"
