"""Comparison of runs: their configurations, metrics and environments as rows of a table. Pure.

Records are untrusted: values become short texts, and the number of rows is bounded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncline.dashboard.formatting import duration, number, printable
from syncline.runs import Run, RunSummary
from syncline.runs.json_values import Record, finite
from syncline.runs.metric_series import Series, numbers

MAX_RUNS = 20
"""Maximum runs that are compared."""
MAX_ROWS = 1_000
MAX_DEPTH = 6
TEXT_CHARACTERS = 300
_OWN = frozenset({"run_config/name", "run_config/storage_path"})
"""Configuration that differs between any two runs."""
_OWN_ENVIRONMENT = frozenset({"pid", "process", "git_diff"})


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """One value of all compared runs."""

    name: str
    """Name of the value."""
    values: tuple[str, ...]
    """Value of each run as text; "" if it has none."""

    @property
    def differs(self) -> bool:
        """True if not all values are equal."""
        return len(set(self.values)) > 1


def configuration_rows(runs: Sequence[Run]) -> list[ComparedRow]:
    """Return the configurations: that of the training function first, under its own names."""
    flats = []
    for run in runs:
        config = dict(run.config)
        own = config.pop("train_config", None)
        first = flat(own) if isinstance(own, Mapping) else {}
        flats.append({**first, **flat(config)})
    return _rows(flats, without=_OWN)


def environment_rows(runs: Sequence[Run]) -> list[ComparedRow]:
    """Return machines, programs, revisions and package versions."""
    return _rows([flat(run.environment) for run in runs], without=_OWN_ENVIRONMENT)


def metric_rows(summaries: Sequence[RunSummary]) -> list[ComparedRow]:
    """Return duration and reports, then the latest metrics or those of the best trial."""
    return _rows(
        [
            {
                "duration": duration(_duration(run)),
                "reports": number(run.reports),
                **{name: number(value) for name, value in numbers(run.metrics)},
            }
            for run in summaries
        ]
    )


def curve_member(run: Run, series: Series, name: str) -> str | None:
    """Return the member whose curve represents a run: the only rank, the best trial of a search
    with this metric, or None for the mean over all ranks.
    """
    members = series.members_of(name)
    if run.kind == "tune":
        best = best_trial(run)
        return best if best in members else next(iter(members), "")
    return members[0] if len(members) == 1 else None


def best_trial(run: Run) -> str | None:
    """Return the ID of the best trial of a search so far."""
    best = run.search.get("best")
    trial = best.get("trial") if isinstance(best, Mapping) else None
    return trial if isinstance(trial, str) else None


def flat(values: Record, prefix: str = "", depth: int = 0) -> dict[str, str]:
    """Return nested values under names such as `model/layers`, as texts."""
    found: dict[str, str] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            found |= flat(value, f"{name}/", depth + 1)
        else:
            found[printable(name, TEXT_CHARACTERS)] = _text(value)
        if len(found) >= MAX_ROWS:
            break
    return found


def _text(value: object) -> str:
    if isinstance(value, str):
        return printable(value, TEXT_CHARACTERS)
    if isinstance(value, float) and finite(value) is not None:
        return f"{value:g}"
    return printable(json.dumps(value, default=str, ensure_ascii=False), TEXT_CHARACTERS)


def _rows(
    flats: Sequence[Mapping[str, str]], without: frozenset[str] = frozenset()
) -> list[ComparedRow]:
    names = dict.fromkeys(name for one in flats for name in one if name not in without)
    return [
        ComparedRow(name=name, values=tuple(one.get(name, "") for one in flats))
        for name in list(names)[:MAX_ROWS]
    ]


def _duration(run: RunSummary) -> float | None:
    end = run.ended if run.ended is not None else run.last_activity
    return None if end is None or run.started is None else max(0.0, end - run.started)
