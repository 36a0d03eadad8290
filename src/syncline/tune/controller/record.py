"""`SearchRecord`: writes what happens in a search to its run directory, for people who look at it.

    trials.jsonl     a line at each change of a trial: {"time", "trial", "status", "iteration", …}; what it does not say is as before
    metrics.jsonl    the numbers of every result, by trial
    trials.json      how many trials have each status, and which is the best
    events.jsonl     failures of trials: `trial_recover` where the trial starts again, `trial_error` where it does not

Nothing is read back from there to go on with a search (`journal.py`): a record that cannot be
written is said once, and costs nothing else. After a restore, trials whose last line is not what
they are now get a line, so that what a kill has cut off comes after all. Results that are computed
again, because their trial went on from an earlier checkpoint, are recorded again.
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
from dataclasses import dataclass, field
from typing import Any

from syncline.runs import Files, RunDirectory
from syncline.runs.directory import TRIALS_FILE
from syncline.runs.lines import read_pieces
from syncline.runs.secrets import masked
from syncline.runs.values import plain
from syncline.train.metrics import flatten
from syncline.tune.controller.running import RunningTrials
from syncline.tune.experiment.trial import Trial
from syncline.tune.result import AUTO_RESULT_KEYS, TIME_TOTAL_S, TRAINING_ITERATION

logger = logging.getLogger("syncline")

COLLECT_S = 0.25
"""So long lines may wait for others. A kill loses them: `changes` makes up for those of trials
after a restore.
"""
ERROR_CHARACTERS = 4_000
"""So much of an error's text is recorded, its end: there stands what was raised, and the user's
frames.
"""
TEXT_CHARACTERS = 1_000
"""So much of a text in a configuration."""
ITEMS = 100
"""So many items of a list, or of a dictionary inside a configuration."""
PARAMETERS = 2_000
"""So many entries of a configuration itself."""
DEPTH = 8
"""So deep a configuration is followed."""

_NOT_RECORDED = frozenset(AUTO_RESULT_KEYS) - {TIME_TOTAL_S}


@dataclass
class _Told:
    """What the file says of a trial."""

    status: str = ""
    iteration: int = -1
    error: str = ""
    stopped_by: str = ""
    location: str = ""
    latest: int = 0
    """Iteration of its latest result."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The numbers of that."""
    config: Any = None
    """The configuration itself, to see whether it is another one now; its recorded form where it
    was read from the file.
    """


class SearchRecord:
    """Collects what happens, and writes it four times a second. Told by the thread that runs the
    search; `flush` may come from another.

    Args:
        record: The search's run directory. wall: Seconds since the epoch. address: Of this machine,
        as it is in the locations of trials. running: Is told who runs. objective: The metric that
        is to get better, and "min" or "max"; None where that is not known. expected: Gives how many
        trials there will be; None where there is no end. earlier: The lines of `trials.jsonl` that
        are there already, for a search that goes on.
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
        earlier: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self._record = record
        self._wall = wall
        self._address = address
        self._host = socket.gethostname()
        self._running = running
        self._metric, self._mode = objective
        self._expected = expected
        self._told = told_by(earlier)
        self._lock = threading.Lock()
        self._results: list[tuple[float, str, Mapping[str, Any]]] = []
        self._lines: dict[str, dict[str, Any]] = {}
        self._flushed = 0.0
        self._failing = False

    def result(self, trial: Trial, result: Mapping[str, Any]) -> None:
        """A trial has reported `result`, in whose numbers nothing is changed any more."""
        now = self._wall()
        with self._lock:
            self._results.append((now, trial.trial_id, result))
        self._flush_after(now)

    def changes(self, trials: Iterable[Trial]) -> None:
        """These trials may be something else than their last lines say."""
        for trial in trials:
            with self._lock:
                line = self._line(trial)
                if line is None:
                    continue
                # One that has not been written yet takes the news in.
                self._lines[trial.trial_id] = {**self._lines.get(trial.trial_id, {}), **line}
            self._tell_running(trial)
            self._flush_after(line["time"])

    def failure(self, trial: Trial, *, goes_on: bool) -> None:
        """A trial has failed; whether it starts again."""
        event, error = (
            "trial_recover" if goes_on else "trial_error",
            trial.error_text[-ERROR_CHARACTERS:],
        )
        try:
            self._record.event(
                event, trial=trial.trial_id, name=trial.name, iteration=trial.iteration, error=error
            )
        except OSError as problem:
            self._say(problem)

    def flush(self) -> None:
        """Write what is collected."""
        with self._lock:  # until it is written: lines of a trial must not overtake one another
            results, self._results = self._results, []
            lines, self._lines = self._lines, {}
            try:
                for line in lines.values():
                    self._record.line(TRIALS_FILE, line)
                for time_s, trial_id, result in results:
                    told, iteration = (
                        self._told.setdefault(trial_id, _Told()),
                        result.get(TRAINING_ITERATION) or 0,
                    )
                    told.latest, told.metrics = iteration, numbers(result)
                    self._record.report(iteration, trial_id, told.metrics, time_s)
            except OSError as error:
                self._say(error)

    def write_state(self) -> None:
        """Write how far the search is."""
        with self._lock:
            counts = Counter(told.status for told in self._told.values() if told.status)
            state = {
                "trials": counts,
                "expected": self._expected(),
                "results": sum(told.latest for told in self._told.values()),
            }
            best = self._best()
        try:
            self._record.write_search({**state, "best": best})
        except OSError as error:
            self._say(error)

    def _best(self) -> dict[str, Any] | None:
        """The trial with the best latest value."""
        metric = self._metric or ""
        having = {
            trial_id: value
            for trial_id, told in self._told.items()
            if (value := told.metrics.get(metric, math.nan)) == value
        }
        if not having or self._mode not in ("min", "max"):
            return None
        best = (max if self._mode == "max" else min)(having, key=lambda trial_id: having[trial_id])
        told = self._told[best]
        return {
            "trial": best,
            "iteration": told.latest,
            "metrics": {metric: having[best], **told.metrics},
        }

    def _flush_after(self, now: float) -> None:
        """Written together, a line costs a third of what it costs alone."""
        if not self._flushed <= now < self._flushed + COLLECT_S:
            self._flushed = now
            self.flush()

    def _line(self, trial: Trial) -> dict[str, Any] | None:
        """What is new about a trial; None if nothing is."""
        told = self._told.setdefault(trial.trial_id, _Told())
        location = trial.location or told.location
        now = (
            trial.status,
            trial.iteration,
            trial.stopped_by,
            trial.error_text[-ERROR_CHARACTERS:],
            location,
        )
        is_same_config = told.config is trial.config or (
            told.status != "" and told.config == recorded_config(trial.config)
        )
        if is_same_config and now == (
            told.status,
            told.iteration,
            told.stopped_by,
            told.error,
            told.location,
        ):
            return None
        line: dict[str, Any] = {
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
        if trial.last_result and trial.iteration != told.iteration:
            line["metrics"] = numbers(trial.last_result)
        if now[3] != told.error:
            line["error"] = now[3] or None
        if trial.stopped_by != told.stopped_by:
            line["stopped_by"] = trial.stopped_by or None
        if location != told.location:
            host, pid, _ = self._place_of(location)
            line |= {
                "hostname": host,
                "pid": pid,
                "location": location,
                "started": trial.start_time,
            }
        if trial.checkpoint is not None:
            line["checkpoint"] = trial.checkpoint.path
        told.status, told.iteration, told.stopped_by, told.error, told.location = now
        told.config = trial.config
        return line

    def _tell_running(self, trial: Trial) -> None:
        if trial.status != Trial.RUNNING:
            self._running.discard(trial.trial_id)
        elif trial.location:
            host, pid, is_here = self._place_of(trial.location)
            self._running.put(trial.trial_id, trial.name, host=host, pid=pid, is_here=is_here)

    def _place_of(self, location: str) -> tuple[str, int, bool]:
        """The machine and the process that an `address:pid` means, and whether it is one of this
        machine.
        """
        address, _, pid = location.rpartition(":")
        is_here = address == self._address
        return self._host if is_here else address, int(pid) if pid.isdecimal() else 0, is_here

    def _say(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning(
                "what happens in the search cannot be recorded for the dashboard (%s); the search goes on.",
                error,
            )


def numbers(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers that the trainable reported, `a/b` where they are nested, and `time_total_s`."""
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
        elif isinstance(value, (int, float)) and kind is not bool:  # NumPy's double, for instance
            found[key] = float(value)
    return found


def recorded_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration in plain values, without secrets, and with what would fill pages left out."""
    kept: dict[str, Any] = {}
    for key, value in itertools.islice(config.items(), PARAMETERS):
        kept[str(key)] = _bounded({key: value}, DEPTH)[str(key)]
    found: dict[str, Any] = masked(kept)
    return found


def _bounded(value: Any, depth: int) -> Any:
    """The beginning of a value, in plain values."""
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
    if getattr(value, "ndim", None) == 0:  # a NumPy scalar, or a tensor of one number
        return value.item()
    return _bounded(plain(value), depth - 1)


def told_by(lines: Iterable[Mapping[str, Any]]) -> dict[str, _Told]:
    """What lines of `trials.jsonl` say about each trial together."""
    told: dict[str, _Told] = {}
    for line in lines:
        trial = told.setdefault(str(line.get("trial")), _Told())
        trial.status = str(line.get("status", trial.status))
        trial.iteration = trial.latest = int(line.get("iteration", trial.iteration))
        metrics = line.get("metrics", trial.metrics)
        trial.metrics = numbers(metrics) if isinstance(metrics, dict) else {}
        trial.error = str(line.get("error", trial.error) or "")
        trial.stopped_by = str(line.get("stopped_by", trial.stopped_by) or "")
        trial.location = str(line.get("location", trial.location))
        trial.config = line.get("config", trial.config)
    return told


def earlier_lines(files: Files) -> list[dict[str, Any]]:
    """The lines of `trials.jsonl` so far, without those that are damaged."""
    lines: list[dict[str, Any]] = []
    for piece in read_pieces(files, TRIALS_FILE):
        for text in piece.split(b"\n")[:-1]:
            try:
                line = json.loads(text)
                if isinstance(line, dict) and isinstance(line.get("iteration", 0), int):
                    lines.append(line)
            except ValueError:
                continue
    return lines
