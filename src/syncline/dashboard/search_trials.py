"""Trials of a search, computed from the lines of its record. Pure.

`TrialReader` reads lines of `trials.jsonl` incrementally and returns immutable `SearchSnapshot`s,
so one thread can read while another shows. Records are untrusted and their cost is bounded: invalid
values are dropped, texts are cut, and so are excess items of a trial. Secrets in configurations are
masked here. Not covered: filter and order (`search_table`), figures (`search_figures`).
"""

from __future__ import annotations

import itertools
import json
import math
import pprint
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from syncline.runs.causes import cause_line
from syncline.runs.json_values import JsonObject, Record, finite
from syncline.runs.secrets import masked, masked_text

Value = bool | int | float | str | None
Mode = Literal["min", "max"]

STATUSES = ("RUNNING", "PENDING", "PAUSED", "TERMINATED", "ERROR")
"""Trial statuses in display order."""
ENDED = frozenset({"TERMINATED", "ERROR"})

MAX_TRIALS = 100_000
MAX_METRICS = 500
"""Maximum metrics of a trial and of a search."""
MAX_PARAMETERS = 2_000
"""Maximum parameters of a trial."""
NAME_CHARACTERS = 255
TEXT_CHARACTERS = 1_000
ERROR_CHARACTERS = 10_000
_TEXTS = (("name", "name"), ("hostname", "host"), ("directory", "directory"))
"""Fields of lines, and the fields of `TrialView` that they set."""
_DEPTH = 8
_ITEMS = 100
_LARGER_IS_BETTER = (
    "acc",
    "score",
    "reward",
    "auc",
    "f1",
    "precision",
    "recall",
    "return",
    "bleu",
    "throughput",
)


@dataclass(frozen=True, kw_only=True)
class TrialView:
    """State of one trial after its latest line."""

    id: str
    """ID of the trial."""
    index: int
    """Position in the search, from 0."""
    name: str = ""
    """Display name."""
    status: str = "PENDING"
    """Status, one of `STATUSES`."""
    iteration: int = 0
    """Iteration of the latest result."""
    config: Record = field(default_factory=dict)
    """Configuration with secrets masked."""
    parameters: Mapping[str, Value] = field(default_factory=dict)
    """Flattened configuration, with names such as `a/b`."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Finite numbers of the latest result."""
    started: float | None = None
    """First start in seconds since the epoch."""
    changed: float | None = None
    """Time of the latest line."""
    host: str = ""
    """Latest host."""
    pid: int | None = None
    """Latest process ID."""
    error: str = ""
    """End of the traceback of the latest failure."""
    stopped_by: str = ""
    """Component that stopped the trial early: scheduler or search."""
    checkpoint: str = ""
    """Path of the latest checkpoint."""
    directory: str = ""
    """Directory below that of the search."""

    @property
    def time_s(self) -> float | None:
        """Training time: as reported, otherwise from start to end."""
        reported = self.metrics.get("time_total_s")
        if reported is not None:
            return reported
        if self.started is None or self.changed is None or self.status not in ENDED:
            return None
        return max(0.0, self.changed - self.started)

    @property
    def cause(self) -> str:
        """Line of the error that names its cause."""
        return cause_line(self.error)


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchSnapshot:
    """State of a search at one moment. Compared by identity, because comparing thousands of trials
    costs more than showing them.
    """

    trials: tuple[TrialView, ...] = ()
    """Trials in order of suggestion."""
    left_out: int = 0
    """Number of further trials."""

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Number of trials by status."""
        found = Counter(trial.status for trial in self.trials)
        return {status: found[status] for status in STATUSES if found[status]}

    @cached_property
    def by_id(self) -> Mapping[str, TrialView]:
        """Trials by ID."""
        return {trial.id: trial for trial in self.trials}

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Metric names, the most frequent first."""
        found: Counter[str] = Counter()
        for trial in self.trials:
            found.update(trial.metrics.keys())
        return tuple(name for name, _ in found.most_common(MAX_METRICS))

    @cached_property
    def varying(self) -> tuple[str, ...]:
        """Names of parameters that differ between trials, in order of the configuration."""
        names: dict[str, Value | object] = {}
        varying: dict[str, None] = {}
        for place, trial in enumerate(self.trials):
            for name, value in trial.parameters.items():
                if name not in names:
                    names[name] = value
                    if place:
                        varying[name] = None
                elif name not in varying and not _same(names[name], value):
                    varying[name] = None
            if len(varying) < len(names):
                varying.update((name, None) for name in names if name not in trial.parameters)
        return tuple(name for name in names if name in varying)[:MAX_PARAMETERS]

    def with_latest(self, latest: Mapping[str, tuple[int, Mapping[str, float]]]) -> SearchSnapshot:
        """Return a snapshot with later results of running trials: lines of `trials.jsonl` are only
        written when a status changes.
        """
        if not latest:
            return self
        changed = {
            trial_id: replace(trial, iteration=iteration, metrics=_numbers(metrics))
            for trial_id, (iteration, metrics) in latest.items()
            if (trial := self.by_id.get(trial_id)) is not None and iteration > trial.iteration
        }
        return SearchSnapshot(
            trials=tuple(changed.get(trial.id, trial) for trial in self.trials),
            left_out=self.left_out,
        )

    def best(self, metric: str, mode: Mode) -> TrialView | None:
        """Return the trial with the best latest value (the first of equal ones), or None."""
        return next(iter(ranked(self.trials, metric, mode)), None)


class TrialReader:
    """Incremental reader of trial lines. For one thread.

    Args:
        prefix: Prefix of this search's trial IDs; trials of an earlier search are ignored. None
            accepts all.
    """

    def __init__(self, prefix: str | None = None) -> None:
        self._prefix = prefix
        self._known: dict[str, JsonObject] = {}
        self._views: dict[str, TrialView] = {}
        self._changed: set[str] = set()
        self._left_out: set[str] = set()

    def add(self, lines: Iterable[Record]) -> bool:
        """Add lines; return True if the state changed."""
        for line in lines:
            trial_id = line.get("trial")
            if not isinstance(trial_id, str) or not trial_id or len(trial_id) > NAME_CHARACTERS:
                continue
            if self._prefix and not trial_id.startswith(f"{self._prefix}_"):
                continue
            known = self._known.get(trial_id)
            if known is None:
                if len(self._known) >= MAX_TRIALS:
                    self._left_out.add(trial_id)
                    continue
                known = self._known[trial_id] = {
                    "id": trial_id,
                    "index": len(self._known),
                    "name": trial_id,
                }
            _update_fields(known, line)
            self._changed.add(trial_id)
        return bool(self._changed)

    def snapshot(self) -> SearchSnapshot:
        """Return the current state."""
        for trial_id in sorted(self._changed, key=lambda each: int(self._known[each]["index"])):
            self._views[trial_id] = TrialView(**self._known[trial_id])
        self._changed.clear()
        return SearchSnapshot(trials=tuple(self._views.values()), left_out=len(self._left_out))


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each name (`model/lr`) its shortest unique ending: `lr`, or `model/lr` if there is
    an `optimizer/lr` too.
    """
    ends = {
        name: [name.split("/", cut)[-1] for cut in range(name.count("/"), -1, -1)] for name in names
    }
    owners = Counter(end for each in ends.values() for end in each)
    return {
        name: next((end for end in each if end and owners[end] == 1), name)
        for name, each in ends.items()
    }


def ranked(trials: Iterable[TrialView], metric: str, mode: Mode) -> list[TrialView]:
    """Return the trials that have a value of the metric, the best first (stable)."""
    having = [trial for trial in trials if metric in trial.metrics]
    return sorted(having, key=lambda trial: trial.metrics[metric], reverse=mode == "max")


def objective(config: Record, metrics: Sequence[str]) -> tuple[str | None, Mode]:
    """Return the optimized metric and mode of the search; missing ones are guessed. The metric is
    None if nothing was reported.
    """
    reported = config.get("objective")
    metric, mode = (
        (reported.get("metric"), reported.get("mode"))
        if isinstance(reported, Mapping)
        else (None, None)
    )
    if not isinstance(metric, str) or not metric:
        metric = next((name for name in metrics if name != "time_total_s"), None)
    if mode == "min" or mode == "max":
        return metric, mode
    return metric, guessed_mode(metric or "")


def guessed_mode(metric: str) -> Mode:
    """Guess the mode of a metric from its name."""
    return "max" if any(word in metric.lower() for word in _LARGER_IS_BETTER) else "min"


def prefix_of(config: Record) -> str | None:
    """Return the prefix of the search's trial IDs, from its record."""
    trials = config.get("trials")
    prefix = trials.get("prefix") if isinstance(trials, Mapping) else None
    return prefix if isinstance(prefix, str) and prefix else None


def expected_of(config: Record) -> int | None:
    """Return the total number of trials, from the record; None if unlimited or unknown."""
    trials = config.get("trials")
    expected = finite(trials.get("expected")) if isinstance(trials, Mapping) else None
    return int(expected) if expected is not None and 0 <= expected < 10**9 else None


def as_json(config: Record) -> str:
    """Return a configuration as JSON."""
    return json.dumps(config, indent=2, ensure_ascii=False)


def as_python(config: Record) -> str:
    """Return a configuration as a Python dictionary."""
    return pprint.pformat(_python(config), width=100, sort_dicts=False)


class _FloatLiteral(float):
    """Float without a Python literal (NaN, infinity)."""

    def __repr__(self) -> str:
        return f'float("{float(self)}")'


def _python(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _python(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_python(item) for item in value]
    return _FloatLiteral(value) if isinstance(value, float) and not math.isfinite(value) else value


def _update_fields(news: JsonObject, line: Record) -> None:
    """Update the fields of a `TrialView` with a line."""
    moment = finite(line.get("time"))
    if moment is not None:
        news["changed"] = moment
    status = line.get("status")
    if isinstance(status, str) and status in STATUSES:
        news["status"] = status
        if status == "RUNNING":
            news.setdefault("started", moment)
    if (started := finite(line.get("started"))) is not None:
        news["started"] = started
    if (iteration := _count(line.get("iteration"))) is not None:
        news["iteration"] = iteration
    if (pid := _count(line.get("pid"))) is not None:
        news["pid"] = pid
    for key, target in _TEXTS:
        if isinstance(line.get(key), str):
            news[target] = line[key][:NAME_CHARACTERS]
    for key in ("stopped_by", "checkpoint"):
        if key in line:
            news[key] = (
                masked_text(line[key][:TEXT_CHARACTERS]) if isinstance(line[key], str) else ""
            )
    if "error" in line:
        news["error"] = (
            masked_text(line["error"][-ERROR_CHARACTERS:]) if isinstance(line["error"], str) else ""
        )
    if isinstance(line.get("metrics"), dict):
        news["metrics"] = _numbers(line["metrics"])
    if isinstance(line.get("config"), dict):
        config = masked(_bounded(line["config"], _DEPTH, MAX_PARAMETERS))
        news |= {
            "config": config,
            "parameters": dict(itertools.islice(_flat(config), MAX_PARAMETERS)),
        }


def _numbers(metrics: Record) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in metrics.items():
        number = finite(value)
        if number is not None:
            found[name[:NAME_CHARACTERS]] = number
            if len(found) == MAX_METRICS:
                break
    return found


def _count(value: object) -> int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
        else None
    )


def _bounded(value: object, depth: int, items: int = _ITEMS) -> Any:
    """Return a JSON value of bounded size and depth."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARACTERS else value[:TEXT_CHARACTERS] + "…"
    if isinstance(value, dict):
        if depth == 0:
            return "…"
        kept = list(value.items())[:items]
        return {str(key)[:NAME_CHARACTERS]: _bounded(item, depth - 1) for key, item in kept}
    if isinstance(value, list):
        return [_bounded(item, depth - 1) for item in value[:items]] if depth else "…"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**1000:
        return f"{str(value)[:20]}…" if value.bit_length() < 10_000 else "…"
    return value


def _flat(config: Record, prefix: str = "") -> Iterable[tuple[str, Value]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}/")
        elif isinstance(value, list):
            yield name, json.dumps(value, ensure_ascii=False)[:NAME_CHARACTERS]
        elif isinstance(value, str):
            yield name, value[:NAME_CHARACTERS]
        elif isinstance(value, float) and not math.isfinite(value):
            yield name, str(value)
        elif value is None or isinstance(value, (bool, int, float)):
            yield name, value


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other
