"""Experiments of `syncline run --metric`: one `experiment.json` per run, together a ledger.

The file is written before the program starts, and again with the verdict before that is printed.
Both writes replace the file atomically and durably, so a kill at any moment loses no experiment: if
its run no longer runs, an experiment without a verdict was killed. Covered: local storage only.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field
from enum import Enum
from typing import Literal

from syncline.records import dataclass
from syncline.runs.json_values import JsonObject, encode, parse_json
from syncline.runs.record_files import LocalFiles

EXPERIMENT_FILE = "experiment.json"
DIFF_FILE = "working_tree.diff"
_LOCK_FILE = ".experiments.lock"
Mode = Literal["min", "max"]


class Verdict(str, Enum):
    """Result of an experiment, compared with the best one before it."""

    BETTER = "better"
    """Better than the best one, or the first one with a value."""
    WORSE = "worse"
    """Not better than the best one."""
    FAILED = "failed"
    """The program ended with an error, or without a value of the metric."""
    OVER_BUDGET = "over budget"
    """The program was ended after the time of its budget."""


class Revert(str, Enum):
    """State of the working tree after an experiment that was not better."""

    PENDING = "pending"
    """Files are being restored, or a kill prevented that."""
    DONE = "done"
    """All files are as in the best experiment."""
    PARTLY = "partly"
    """Files that changed during the experiment were left as they are."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The best experiment so far."""

    run: str
    """Name of its run."""
    value: float
    """Its value of the metric."""
    tree: str | None = None
    """Its working tree, as a git object; None outside a repository."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One run of a program that is compared with earlier ones."""

    run: str
    """Name of the run."""
    group: str
    """Experiments with the same group, metric and mode are compared."""
    number: int
    """Number of the experiment in its group, from 1."""
    command: tuple[str, ...]
    """Command line of the program."""
    metric: str
    """Metric to optimize."""
    mode: Mode
    """Minimize or maximize it."""
    budget_s: float | None = None
    """Seconds that the program may take; None for no limit."""
    started: float
    """Start in seconds since the epoch."""
    directory: str
    """Working directory of the program."""
    revision: str | None = None
    """Commit that is checked out; None outside a repository."""
    tree: str | None = None
    """Working tree before the program started, as a git object, also under the reference
    `refs/syncline/RUN`.
    """
    best: Best | None = None
    """The best experiment before this one."""
    keep_best: bool = False
    """Restore the working tree of the best experiment unless this one is better."""
    verdict: Verdict | None = None
    """None while the program runs, and after a kill."""
    value: float | None = None
    """Last value of the metric."""
    metrics: JsonObject = field(default_factory=dict)
    """Last value of each metric."""
    exit_code: int | None = None
    """Exit code of the program; negative for a signal."""
    took_s: float | None = None
    """Seconds that the program took."""
    error: str = ""
    """Reason of a failure, with the last lines of the output."""
    revert: Revert | None = None
    """State of the working tree if it is restored."""

    def as_json(self) -> JsonObject:
        """Return the fields as a dictionary of plain values."""
        return {
            **asdict(self),
            "verdict": None if self.verdict is None else self.verdict.value,
            "revert": None if self.revert is None else self.revert.value,
        }

    def is_better(self, value: float, best: Best | None) -> bool:
        """Return True if a value is better than that of the best experiment."""
        if value != value:
            return False
        if best is None:
            return True
        return value < best.value if self.mode == "min" else value > best.value

    def is_comparable(self, other: Experiment) -> bool:
        """Return True if the values of two experiments can be compared."""
        mine, others = ((one.group, one.metric, one.mode) for one in (self, other))
        return mine == others


_NUMBER = (int, float)
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "run": str,
    "started": _NUMBER,
    "value": (*_NUMBER, type(None)),
    "metrics": dict,
    "error": str,
}
"""Types of the fields with which readers compute."""


def from_json(found: JsonObject) -> Experiment:
    """Return an experiment from its fields.

    Raises:
        ValueError, TypeError, KeyError: They are not those of an experiment.
    """
    known = {name: found[name] for name in Experiment.__dataclass_fields__ if name in found}
    for name, kinds in _KINDS.items():
        if name in known and not isinstance(known[name], kinds):
            raise TypeError(f"{name}={known[name]!r:.80} is not that of an experiment")
    best, verdict, revert = known.get("best"), known.get("verdict"), known.get("revert")
    known["command"] = tuple(known["command"])
    known["best"] = None if best is None else Best(**{**best, "value": float(best["value"])})
    known["verdict"] = None if verdict is None else Verdict(verdict)
    known["revert"] = None if revert is None else Revert(revert)
    return Experiment(**known)


class Ledger:
    """The experiments below a local storage path. Several programs may use it.

    Args:
        directory: The storage path, which is created if missing.
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self._directory = directory

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other program decide about an experiment meanwhile."""
        descriptor = os.open(
            os.path.join(self._directory, _LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666
        )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def write(self, experiment: Experiment) -> None:
        """Write an experiment into the directory of its run, durably."""
        files = LocalFiles(os.path.join(self._directory, experiment.run))
        files.write(EXPERIMENT_FILE, encode(experiment.as_json()))

    def all(self) -> list[Experiment]:
        """Return all experiments, the earliest first. Damaged files are left out."""
        found = []
        with os.scandir(self._directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in names:
            experiment = read_experiment(os.path.join(self._directory, name))
            if experiment is not None:
                found.append(experiment)
        return sorted(found, key=lambda one: (one.started, one.run))

    def comparable(self, experiment: Experiment) -> list[Experiment]:
        """Return the other experiments with the same group, metric and mode."""
        return [
            one for one in self.all() if one.run != experiment.run and experiment.is_comparable(one)
        ]


def best_of(experiments: list[Experiment]) -> Best | None:
    """Return the best one of comparable experiments; None without a value."""
    best: Best | None = None
    for one in experiments:
        if (
            one.verdict in (Verdict.BETTER, Verdict.WORSE)
            and one.value is not None
            and one.is_better(one.value, best)
        ):
            best = Best(run=one.run, value=one.value, tree=one.tree)
    return best


def read_experiment(directory: str) -> Experiment | None:
    """Return the experiment of a run; None if its file is missing or damaged."""
    try:
        return experiment_of(LocalFiles(directory).read(EXPERIMENT_FILE))
    except OSError:
        return None


def experiment_of(data: bytes | None) -> Experiment | None:
    """Return the experiment in a file's content; None if that is missing, empty or damaged."""
    try:
        return from_json(parse_json(data)) if data else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
