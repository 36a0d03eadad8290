"""State of a trainable: its trial (`TrialInfo`), its `Clock`, its counters (`Progress`), and the
files that complete a class trainable's checkpoint.

A checkpoint directory holds the files of the trainable; `_dict_checkpoint.pkl` if `save_checkpoint`
returned a dictionary; and `.tune_metadata`, JSON with the counters and with the path inside the
directory that `save_checkpoint` returned, which older programs expect in `load_checkpoint`.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import cloudpickle

from syncline.train.storage.context import StorageContext
from syncline.tune.execution.placement_groups import PlacementGroupFactory
from syncline.tune.result import (
    EPISODES_THIS_ITER,
    EPISODES_TOTAL,
    ITERATIONS_SINCE_RESTORE,
    TIME_SINCE_RESTORE,
    TIME_THIS_ITER_S,
    TIME_TOTAL_S,
    TIMESTEPS_THIS_ITER,
    TIMESTEPS_TOTAL,
    TRAINING_ITERATION,
    Config,
    Metrics,
)

METADATA_FILE = ".tune_metadata"
DICTIONARY_FILE = "_dict_checkpoint.pkl"
_PATH = "path"
_TOTALS = "totals"


def trainable_name(trainable: object) -> str:
    """Return the name of a function, of a class, or of the function in a partial; a registered name
    is returned as it is.
    """
    if isinstance(trainable, str):
        return trainable
    while isinstance(trainable, functools.partial):
        trainable = trainable.func
    name = getattr(trainable, "__name__", None) or type(trainable).__name__
    return "lambda" if name == "<lambda>" else str(name)


@dataclass(frozen=True, kw_only=True)
class TrialInfo:
    """The trial of a trainable. The defaults are for a trainable without a search."""

    trial_id: str = "default"
    """Id in the search."""
    trial_name: str = "default"
    """Display name."""
    trial_dir: str | None = None
    """Directory of the trial on this machine; None without a search."""
    experiment_name: str = "default"
    """Name of the search."""
    resources: PlacementGroupFactory | None = None
    """Reserved resources; None without a search."""
    storage: StorageContext | None = None
    """Directory of the trial on the storage; None without a search."""


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Source of the time for a trainable."""

    wall: Callable[[], float] = time.time
    """Returns seconds since the epoch."""
    steady: Callable[[], float] = time.monotonic
    """Returns monotonic seconds, for durations."""


@dataclass(kw_only=True)
class Progress:
    """Counters of one trainable over all its starts."""

    iteration: int = 0
    """Number of results."""
    time_total_s: float = 0.0
    """Seconds of all iterations."""
    timesteps_total: float | None = None
    """Sum of `timesteps_this_iter`; None if it was never reported."""
    episodes_total: float | None = None
    """Sum of `episodes_this_iter`; None if it was never reported."""
    iterations_since_restore: int = 0
    """Number of results since this start."""
    time_since_restore: float = 0.0
    """Seconds of the iterations since this start."""
    timesteps_since_restore: float = 0
    """Steps since this start."""

    @classmethod
    def after(cls, result: Metrics) -> Progress:
        """Return the counters of a trainable restored to `result`, or to a value of `totals`."""
        return cls(
            iteration=int(result.get(TRAINING_ITERATION) or 0),
            time_total_s=float(result.get(TIME_TOTAL_S) or 0.0),
            timesteps_total=result.get(TIMESTEPS_TOTAL),
            episodes_total=result.get(EPISODES_TOTAL),
        )

    def totals(self) -> Metrics:
        """Return the counters that survive a restart, under their keys in results."""
        return {
            TRAINING_ITERATION: self.iteration,
            TIME_TOTAL_S: self.time_total_s,
            TIMESTEPS_TOTAL: self.timesteps_total,
            EPISODES_TOTAL: self.episodes_total,
        }

    def count(self, result: Metrics, took_s: float) -> None:
        """Count a result and fill in missing totals; its `time_this_iter_s` overrides `took_s`."""
        took_s = float(result.get(TIME_THIS_ITER_S, took_s))
        self.iteration += 1
        self.iterations_since_restore += 1
        self.time_total_s += took_s
        self.time_since_restore += took_s
        steps, episodes = result.get(TIMESTEPS_THIS_ITER), result.get(EPISODES_THIS_ITER)
        if steps is not None:
            self.timesteps_total = (self.timesteps_total or 0) + steps
            self.timesteps_since_restore += steps
        if episodes is not None:
            self.episodes_total = (self.episodes_total or 0) + episodes
        if self.timesteps_total is not None:
            result.setdefault(TIMESTEPS_TOTAL, self.timesteps_total)
        if self.episodes_total is not None:
            result.setdefault(EPISODES_TOTAL, self.episodes_total)
        result.setdefault(TRAINING_ITERATION, self.iteration)
        result[TIME_THIS_ITER_S] = took_s

    def filled(self) -> Metrics:
        """Return the counters that overwrite reported values."""
        filled: Metrics = {
            TIME_TOTAL_S: self.time_total_s,
            TIME_SINCE_RESTORE: self.time_since_restore,
            ITERATIONS_SINCE_RESTORE: self.iterations_since_restore,
        }
        if self.timesteps_since_restore:
            filled["timesteps_since_restore"] = self.timesteps_since_restore
        return filled


@dataclass(frozen=True, kw_only=True)
class SavedState:
    """Content of a checkpoint."""

    state: str | Config
    """Argument of `load_checkpoint`: the directory, a path in it, or a dictionary."""
    totals: Metrics
    """Counters; empty for a directory that no trainable wrote."""


def write_state(directory: str, returned: object, totals: Metrics) -> None:
    """Complete a checkpoint after `save_checkpoint(directory)` returned `returned`.

    Raises:
        ValueError: A path outside `directory`.
        TypeError: Neither a path nor a dictionary nor None.
    """
    inside = "."
    if isinstance(returned, Mapping):
        with open(os.path.join(directory, DICTIONARY_FILE), "wb") as file:
            cloudpickle.dump(dict(returned), file)
    elif returned is not None:
        inside = _path_inside(directory, returned)
    with open(os.path.join(directory, METADATA_FILE), "w", encoding="utf-8") as file:
        json.dump({_PATH: inside, _TOTALS: dict(totals)}, file)


def read_state(directory: str) -> SavedState:
    """Read a checkpoint. A dictionary in it is unpickled, so read trusted checkpoints only."""
    try:
        with open(os.path.join(directory, METADATA_FILE), encoding="utf-8") as file:
            metadata = json.load(file)
    except FileNotFoundError:
        metadata = {}
    totals = metadata.get(_TOTALS, {})
    dictionary = os.path.join(directory, DICTIONARY_FILE)
    if os.path.exists(dictionary):
        with open(dictionary, "rb") as file:
            return SavedState(state=pickle.load(file), totals=totals)
    path = os.path.normpath(os.path.join(directory, metadata.get(_PATH, ".")))
    return SavedState(state=path, totals=totals)


def _path_inside(directory: str, returned: object) -> str:
    if not isinstance(returned, (str, os.PathLike)):
        raise TypeError(
            f"`save_checkpoint` returned a {type(returned).__name__}, which is no checkpoint: "
            "return None, a dictionary, or the directory that it was given."
        )
    inside = os.path.relpath(os.path.realpath(os.fspath(returned)), os.path.realpath(directory))
    if inside == os.pardir or inside.startswith(os.pardir + os.sep):
        raise ValueError(
            f"`save_checkpoint({directory!r})` returned {os.fspath(returned)!r}, which is outside "
            "of that directory and would not be part of the checkpoint: write into the directory, "
            "and return None, the directory, or a path in it."
        )
    return inside
