"""`SearchRecord`: the record of a search for the dashboard and the command line.

    trials.jsonl     a line per change of a trial: {"time", "trial", "status", "iteration", …};
                     absent keys are unchanged
    metrics.jsonl    the numbers of every result, by trial
    trials.json      number of trials by status, and the best trial
    events.jsonl     failures: `trial_recover` if the trial restarts, otherwise `trial_error`

A restore reads `search_store` instead, so a failure to write the record is logged once and the
search continues. After a restore, trials that differ from their last line get a new line, which
replaces lines that a kill cut off. Results that are computed again are recorded again.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from syncline.runs import Files, RunDirectory
from syncline.runs.json_values import plain
from syncline.runs.record_files import read_pieces
from syncline.runs.run_directory import TRIALS_FILE
from syncline.runs.secrets import masked
from syncline.train.metric_values import flatten
from syncline.tune.experiment.trial import Trial
from syncline.tune.plain_pickle import is_plain
from syncline.tune.result import AUTO_RESULT_KEYS, TIME_TOTAL_S, TRAINING_ITERATION, Config, Metrics

logger = logging.getLogger("syncline")

_Line = dict[str, Any]
"""A line of `trials.jsonl`."""

FLUSH_EVERY_S = 0.25
"""Seconds for which lines may be buffered. After a kill, `update` writes lost lines again."""
ERROR_CHARACTERS = 4_000
"""Recorded characters of an error: its end, with the exception and the user's frames."""
TEXT_CHARACTERS = 1_000
"""Recorded characters of a string in a configuration."""
ITEMS = 100
"""Recorded items of a list, or of a dictionary inside a configuration."""
PARAMETERS = 2_000
"""Recorded entries of a configuration."""
DEPTH = 8
"""Recorded nesting depth of a configuration."""

_NOT_RECORDED = frozenset(AUTO_RESULT_KEYS) - {TIME_TOTAL_S}


@dataclass(frozen=True, kw_only=True)
class RunningTrial:
    """A trial with a process."""

    trial_id: str
    """Id in the search."""
    name: str
    """Display name."""
    attempt: int
    """Number of the start, from 1, since this process runs the search."""
    host: str
    """Name of the machine, or its address if the name is unknown."""
    pid: int
    """Process id."""
    is_local: bool
    """True if the process runs on this machine."""


class RunningTrials:
    """The running trials. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, RunningTrial] = {}
        self._attempts: dict[str, int] = {}

    def put(self, trial_id: str, name: str, *, host: str, pid: int, is_local: bool) -> None:
        """Add a start of a trial."""
        with self._lock:
            attempt = self._attempts[trial_id] = self._attempts.get(trial_id, 0) + 1
            self._running[trial_id] = RunningTrial(
                trial_id=trial_id, name=name, attempt=attempt, host=host, pid=pid, is_local=is_local
            )

    def discard(self, trial_id: str) -> None:
        """Remove a trial, if it runs."""
        with self._lock:
            self._running.pop(trial_id, None)

    def all(self) -> list[RunningTrial]:
        """Return the running trials in the order of their starts."""
        with self._lock:
            return list(self._running.values())

    def get(self, trial_id: str) -> RunningTrial | None:
        """Return a running trial; None if it does not run."""
        with self._lock:
            return self._running.get(trial_id)


@dataclass
class _Recorded:
    """State of a trial according to the record."""

    status: str = ""
    iteration: int = -1
    error: str = ""
    stopped_by: str = ""
    location: str = ""
    latest: int = 0
    """Iteration of the latest result."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers of the latest result."""
    config: object = None
    """The configuration object, to detect another one; its recorded form if read from the file."""


class SearchRecord:
    """Buffers changes and results, and writes them four times a second. The thread of the search
    calls it; `flush` and `write_state` may come from another thread.

    Args:
        record: Run directory of the search.
        wall: Returns seconds since the epoch.
        address: Address of this machine, as in the locations of trials.
        running: Updated with the trials that run.
        objective: Metric to optimize and "min" or "max"; None if unknown.
        expected: Returns the expected number of trials; None without a limit.
        earlier: Existing lines of `trials.jsonl`, for a resumed search.
    """

    def __init__(
        self,
        record: RunDirectory,
        wall: Callable[[], float],
        *,
        address: str,
        running: RunningTrials,
        objective: tuple[str | None, str | None] = (None, None),
        expected: Callable[[], int | None] = lambda: None,
        earlier: Iterable[_Line] = (),
    ) -> None:
        self._record = record
        self._wall = wall
        self._address = address
        self._host = socket.gethostname()
        self._running = running
        self._metric, self._mode = objective
        self._expected = expected
        self._recorded = recorded_trials(earlier)
        self._lock = threading.Lock()
        self._results: list[tuple[float, str, Metrics]] = []
        self._lines: dict[str, _Line] = {}
        self._ran_at: dict[str, str] = {}
        self._flushed = 0.0
        self._failing = False

    def result(self, trial: Trial, result: Metrics) -> None:
        """Record a result. Its numbers must not change afterwards."""
        now = self._wall()
        with self._lock:
            self._results.append((now, trial.trial_id, result))
        self._flush_after(now)

    def ran_at(self, trial_id: str, location: str) -> None:
        """Record, with the next update, the process of a trial that has already ended."""
        self._ran_at[trial_id] = location

    def update(self, trials: Iterable[Trial]) -> None:
        """Record what changed in these trials."""
        for trial in trials:
            with self._lock:
                line = self._line(trial)
                if line is None:
                    continue
                # Merge the line into one that is not written yet.
                self._lines[trial.trial_id] = {**self._lines.get(trial.trial_id, {}), **line}
            self._update_running(trial)
            self._flush_after(line["time"])

    def failure(self, trial: Trial, *, restarts: bool) -> None:
        """Record a failure of a trial, which restarts or ends."""
        try:
            self._record.event(
                "trial_recover" if restarts else "trial_error",
                trial=trial.trial_id,
                name=trial.name,
                iteration=trial.iteration,
                error=trial.error_text[-ERROR_CHARACTERS:],
            )
        except OSError as error:
            self._warn(error)

    def flush(self) -> None:
        """Write buffered lines."""
        with self._lock:  # while writing, to keep the lines of a trial in order
            results, self._results = self._results, []
            lines, self._lines = self._lines, {}
            try:
                self._record.lines(TRIALS_FILE, lines.values())
                for time_s, trial_id, result in results:
                    recorded = self._recorded.setdefault(trial_id, _Recorded())
                    recorded.latest = result.get(TRAINING_ITERATION) or 0
                    recorded.metrics = numbers(result)
                    self._record.report(recorded.latest, trial_id, recorded.metrics, time_s)
            except OSError as error:
                self._warn(error)

    def write_state(self) -> None:
        """Write the number of trials by status, and the best trial."""
        with self._lock:
            counts = Counter(each.status for each in self._recorded.values() if each.status)
            state = {
                "trials": counts,
                "expected": self._expected(),
                "results": sum(each.latest for each in self._recorded.values()),
            }
            best = self._best()
        try:
            self._record.write_search({**state, "best": best})
        except OSError as error:
            self._warn(error)

    def _best(self) -> dict[str, object] | None:
        """Return the trial with the best latest value."""
        metric = self._metric or ""
        values = {
            trial_id: value
            for trial_id, recorded in self._recorded.items()
            if (value := recorded.metrics.get(metric, math.nan)) == value
        }
        if not values or self._mode not in ("min", "max"):
            return None
        best = (max if self._mode == "max" else min)(values, key=lambda trial_id: values[trial_id])
        recorded = self._recorded[best]
        return {
            "trial": best,
            "iteration": recorded.latest,
            "metrics": {metric: values[best], **recorded.metrics},
        }

    def _flush_after(self, now: float) -> None:
        """Flush if the last time is long ago: a batched line costs a third of a single one."""
        if not self._flushed <= now < self._flushed + FLUSH_EVERY_S:
            self._flushed = now
            self.flush()

    def _line(self, trial: Trial) -> _Line | None:
        """Return what changed in a trial; None without a change."""
        recorded = self._recorded.setdefault(trial.trial_id, _Recorded())
        location = trial.location or self._ran_at.pop(trial.trial_id, "") or recorded.location
        error = trial.error_text[-ERROR_CHARACTERS:]
        now = (trial.status, trial.iteration, trial.stopped_by, error, location)
        is_same_config = recorded.config is trial.config or (
            recorded.status != "" and _is_recorded(trial.config, recorded.config)
        )
        if is_same_config and now == (
            recorded.status,
            recorded.iteration,
            recorded.stopped_by,
            recorded.error,
            recorded.location,
        ):
            return None
        line: _Line = {
            "time": self._wall(),
            "trial": trial.trial_id,
            "status": trial.status,
            "iteration": trial.iteration,
        }
        if not is_same_config:
            line |= {
                "name": trial.name,
                "directory": trial.relative_logdir,
                "config": recorded_config(trial.config),
            }
        if trial.last_result and trial.iteration != recorded.iteration:
            line["metrics"] = numbers(trial.last_result)
        if error != recorded.error:
            line["error"] = error or None
        if trial.stopped_by != recorded.stopped_by:
            line["stopped_by"] = trial.stopped_by or None
        if location != recorded.location:
            host, pid, _ = self._process_at(location)
            line |= {
                "hostname": host,
                "pid": pid,
                "location": location,
                "started": trial.start_time,
            }
        if trial.checkpoint is not None:
            line["checkpoint"] = trial.checkpoint.path
        recorded.status, recorded.iteration, recorded.stopped_by = now[:3]
        recorded.error, recorded.location, recorded.config = error, location, trial.config
        return line

    def _update_running(self, trial: Trial) -> None:
        if trial.status != Trial.RUNNING:
            self._running.discard(trial.trial_id)
        elif trial.location:
            host, pid, is_local = self._process_at(trial.location)
            self._running.put(trial.trial_id, trial.name, host=host, pid=pid, is_local=is_local)

    def _process_at(self, location: str) -> tuple[str, int, bool]:
        """Return host, process id, and whether the host is this machine, of an `address:pid`."""
        address, _, pid = location.rpartition(":")
        is_local = address == self._address
        return self._host if is_local else address, int(pid) if pid.isdecimal() else 0, is_local

    def _warn(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning(
                "The record of the search for the dashboard cannot be written (%s); the search "
                "continues.",
                error,
            )


def numbers(result: Metrics) -> dict[str, float]:
    """Return the reported numbers, nested ones as `a/b`, and `time_total_s`."""
    found: dict[str, float] = {}
    for key, value in result.items():
        if key in _NOT_RECORDED:
            continue
        kind = type(value)
        if kind is float or kind is int:
            found[key] = value
        elif isinstance(value, Mapping):
            inner = flatten({key: value})
            found.update(
                (name, number)
                for name, number in inner.items()
                if type(number) is float or type(number) is int
            )
        elif isinstance(value, (int, float)) and kind is not bool:  # for instance numpy.float64
            found[key] = float(value)
    return found


def recorded_config(config: Config) -> Config:
    """Return a configuration in plain values, without secrets, and shortened."""
    kept: Config = {}
    for key, value in itertools.islice(config.items(), PARAMETERS):
        kept[str(key)] = _bounded({key: value}, DEPTH)[str(key)]
    found: Config = masked(kept)
    return found


def _is_recorded(config: Config, recorded: object) -> bool:
    """Return True if `recorded` is the recorded form of a configuration."""
    # Most configurations are recorded as they are, and a restore compares those of all trials.
    return (is_plain(config) and config == recorded) or recorded_config(config) == recorded


def _bounded(value: Any, depth: int) -> Any:
    """Return a value in plain values, shortened."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARACTERS else value[:TEXT_CHARACTERS] + "…"
    if value is None or isinstance(value, (int, float)):
        return value
    if depth == 0:
        return "…"
    if isinstance(value, Mapping):
        items = itertools.islice(value.items(), ITEMS)
        return {
            str(key): plain({key: item})[key] if key == "env_vars" else _bounded(item, depth - 1)
            for key, item in items
        }
    if isinstance(value, (list, tuple)):
        return [_bounded(item, depth - 1) for item in value[:ITEMS]] + (
            ["…"] if len(value) > ITEMS else []
        )
    if getattr(value, "ndim", None) == 0:  # a NumPy scalar, or a tensor with one number
        return value.item()
    return _bounded(plain(value), depth - 1)


def recorded_trials(lines: Iterable[_Line]) -> dict[str, _Recorded]:
    """Return the state of each trial after these lines of `trials.jsonl`."""
    trials: dict[str, _Recorded] = {}
    for line in lines:
        trial = trials.setdefault(str(line.get("trial")), _Recorded())
        trial.status = str(line.get("status", trial.status))
        trial.iteration = trial.latest = int(line.get("iteration", trial.iteration))
        metrics = line.get("metrics", trial.metrics)
        trial.metrics = numbers(metrics) if isinstance(metrics, dict) else {}
        trial.error = str(line.get("error", trial.error) or "")
        trial.stopped_by = str(line.get("stopped_by", trial.stopped_by) or "")
        trial.location = str(line.get("location", trial.location))
        trial.config = line.get("config", trial.config)
    return trials


def read_trial_lines(files: Files) -> list[_Line]:
    """Return the lines of `trials.jsonl`, without damaged ones."""
    lines: list[_Line] = []
    for piece in read_pieces(files, TRIALS_FILE):
        lines += _parsed(piece.split(b"\n")[:-1])
    return [line for line in lines if isinstance(line.get("iteration", 0), int)]


def _parsed(texts: list[bytes]) -> list[_Line]:
    """Return the lines that are JSON objects."""
    try:  # a call for all of them takes a third of the time
        found = json.loads(b"[" + b",".join(texts) + b"]")
    except ValueError:
        found = []
    if len(found) != len(texts):
        found = []
        for text in texts:
            with suppress(ValueError):
                found.append(json.loads(text))
    return [line for line in found if isinstance(line, dict)]
