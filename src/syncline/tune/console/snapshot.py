"""`View` makes a `Snapshot`: everything that a display says about a search at one moment, as texts.
Pure.

A view remembers which metrics it has found, so that columns do not come and go while trials do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from syncline.storage import filesystem as directories
from syncline.train import metric_values
from syncline.train.console.values import is_number, located, shortened, text_of
from syncline.tune.console import values
from syncline.tune.console.scan import Scan, choose, scan
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
"""Metrics that have a column wherever they are reported, with its heading."""
PROGRESS = {TRAINING_ITERATION: "iter", TIME_TOTAL_S: "total time (s)"}
"""The last columns, unless the program names its own."""

Kind = Literal["name", "status", "location", "parameter", "metric", "progress"]
"""What a column is about."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of the table of trials."""

    heading: str
    kind: Kind
    is_numeric: bool = False
    """Aligned at its right end."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The trial with the best latest value."""

    trial: str
    metric: str
    value: str
    iteration: int
    parameters: str
    """As in a program: `{'lr': 0.01}`."""
    checkpoint: str | None
    """Where its latest checkpoint lies, if there is one."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A trial that has failed."""

    trial: str
    times: int
    recovered: bool
    """It went on afterwards."""
    message: str
    """The last line of its error."""
    file: str
    """Where all of it can be read."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A search at one moment."""

    counts: Mapping[str, int]
    """Trials by state."""
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    """A text for each column. The state is in the second one."""
    hidden: Mapping[str, int]
    """Trials that have no row, by state."""
    best: Best | None
    failures: Sequence[Failure]
    """The latest ones."""
    failed: int
    """How many trials have failed, shown or not."""
    errored: int
    """How many of them have ended so."""

    @property
    def total(self) -> int:
        """How many trials there are."""
        return sum(self.counts.values())


@dataclass(kw_only=True)
class View:
    """What to show of a search."""

    metric: str | None = None
    """What the search optimises."""
    mode: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Flat keys of the configuration, with headings; empty for everything that was searched."""
    metrics: Mapping[str, str] | None = None
    """Keys of results, with headings; None for those that are found, then iterations and time."""
    found_metrics: int = 4
    """So many metrics are found at most."""
    length: int = 20
    """Characters of a value."""
    sort_by_metric: bool = False
    """Of the trials that have ended, show the best ones instead of the latest."""
    _found: dict[str, str] = field(default_factory=dict)

    def take(
        self, trials: Sequence[Trial], *, rows: int | None = 20, errors: int | None = 20
    ) -> Snapshot:
        """The search as it is now, with at most so many rows and errors; None for all."""
        metric = self.metric or self._only_metric()
        found = scan(trials, metric, self.mode)
        chosen = choose(found, rows, best_first=self.sort_by_metric)
        self._find_metrics(chosen)
        columns, table = self._table(chosen)
        shown = scan(chosen).counts
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
        """The latest metrics of one trial, those that have columns, by heading."""
        self._find_metrics([trial])
        held = {
            heading: metric_values.lookup(trial.last_result, key)
            for key, heading in (self.metrics or self._found).items()
        }
        return {heading: text_of(value) for heading, value in held.items() if value is not None}

    def _only_metric(self) -> str | None:
        """The one metric that trials report, where the program has not said which one counts."""
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
        parameters = self.parameters or values.short_names(
            sorted({key for trial in chosen for key in trial.evaluated_params})
        )
        metrics = {**self._found, **PROGRESS} if self.metrics is None else self.metrics
        parameter_values = {key: [_parameter(trial, key) for trial in chosen] for key in parameters}
        metric_values_of = {
            key: [metric_values.lookup(trial.last_result, key) for trial in chosen]
            for key in metrics
        }
        described: list[tuple[Column, list[str]]] = [
            (Column(heading="Trial name", kind="name"), [str(trial) for trial in chosen]),
            (Column(heading="status", kind="status"), [trial.status for trial in chosen]),
            (Column(heading="loc", kind="location"), [_location(trial) for trial in chosen]),
        ]
        described += [
            self._column(parameters[key], "parameter", held)
            for key, held in parameter_values.items()
        ]
        for key, held in metric_values_of.items():
            if any(value is not None for value in held):
                described.append(
                    self._column(metrics[key], "progress" if key in PROGRESS else "metric", held)
                )
        described = [
            (column, cells)
            for column, cells in described
            if column.kind != "location" or any(cells)
        ]
        return [column for column, _ in described], [
            list(row) for row in zip(*(cells for _, cells in described), strict=True)
        ]

    def _column(self, heading: str, kind: Kind, held: Sequence[Any]) -> tuple[Column, list[str]]:
        numeric = all(value is None or is_number(value) for value in held)
        column = Column(heading=shortened(heading, self.length), kind=kind, is_numeric=numeric)
        return column, [text_of(value, self.length) for value in held]

    def _best(self, found: Scan, metric: str | None) -> Best | None:
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
            parameters=values.parameters_text({key: _parameter(trial, key) for key in keys}),
            checkpoint=values.place(checkpoint) if checkpoint is not None else None,
        )


def _parameter(trial: Trial, key: str) -> Any:
    """The trainable's own value where it is a plain one, because a scheduler may have changed it;
    else what the search space gave.
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
        message=values.last_line(trial.exception, trial.error_text),
        file=located(path, local=storage.local, scheme=storage.storage_filesystem.type_name),
    )
