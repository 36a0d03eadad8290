"""`TBXLoggerCallback`: an event file for TensorBoard in each trial's directory."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from syncline.optional import load
from syncline.runs import event_file
from syncline.train.metric_values import flatten
from syncline.tune.logger.logger import LoggerCallback, flat_result
from syncline.tune.logger.trial_files import TrialFiles
from syncline.tune.result import (
    CONFIG,
    PID,
    TIME_TOTAL_S,
    TIMESTAMP,
    TIMESTEPS_TOTAL,
    TRAINING_ITERATION,
    Metrics,
)

if TYPE_CHECKING:
    from syncline.tune.experiment.trial import Trial

logger = logging.getLogger("syncline")

PREFIX = "ray/tune/"
"""Prefix of all tags, the same as Ray's, for dashboards that expect it."""
VIDEO_FRAMES_PER_S = 20
LEFT_OUT = frozenset({CONFIG, PID, TIMESTAMP, TIME_TOTAL_S, TRAINING_ITERATION})
"""Keys of results that are not logged."""
NUMBERS = (int, float, np.floating, np.integer)
_NOT_IN_TAGS = re.compile(r"[^-/\w.]")


def event_file_name(time_s: float) -> str:
    """Return the name of the file of a program that begins to log a trial at this time.

    TensorBoard reads the files of a directory in the order of their names: each program that runs a
    trial writes a file of its own.
    """
    return f"events.out.tfevents.{int(time_s * 1000):013d}.{socket.gethostname()}"


class TBXLoggerCallback(LoggerCallback):
    """Writes each number of a result as a scalar at step `timesteps_total` or
    `training_iteration`; nested values get tags like `a/b`.

    Lists and arrays of one or two dimensions become histograms, arrays of three dimensions images
    (channels first), of four dimensions batches of images and of five dimensions videos. Images and
    videos need tensorboardX. NaN is left out.

    At the end of a trial, its hyperparameters and the last values of its numbers are written for
    TensorBoard's table of hyperparameters. When a trial resumes from an earlier step, the file
    marks the restart, and TensorBoard drops the later steps.

    Args:
        clock: Returns the time of events in seconds since the epoch.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._files = TrialFiles("Uploading files for TensorBoard")
        self._shown: dict[str, list[str]] = {}
        """Tags of the numbers in the last result of each running trial."""
        self._starting: set[str] = set()
        self._warned: set[str] = set()

    def log_trial_start(self, trial: Trial) -> None:
        self._starting.add(trial.trial_id)
        if self._files.is_open(trial):
            return
        now = self._clock()
        self._files.begin(trial, event_file_name(now), len)
        self._files.append(trial, event_file.record(event_file.first_event(now)))

    def log_trial_result(self, iteration: int, trial: Trial, result: Metrics) -> None:
        if not self._files.is_open(trial):
            self.log_trial_start(trial)
        step, now = (
            int(result.get(TIMESTEPS_TOTAL) or result.get(TRAINING_ITERATION) or 0),
            self._clock(),
        )
        values, tags = [], []
        for key, value in flat_result(result, LEFT_OUT).items():
            if isinstance(value, NUMBERS):
                if value == value:
                    tag = _tag(key)
                    tags.append(tag)
                    values.append(event_file.scalar(tag, value))
            elif isinstance(value, (list, np.ndarray)):
                values.append(self._array(_tag(key), value))
        rows = event_file.record(event_file.summary_event(now, step, b"".join(values)))
        if trial.trial_id in self._starting:
            self._starting.discard(trial.trial_id)
            rows = event_file.record(event_file.session_start(now, step)) + rows
        self._files.append(trial, rows)
        self._shown[trial.trial_id] = tags

    def log_trial_save(self, trial: Trial) -> None:
        self._files.upload(trial)

    def log_trial_end(self, trial: Trial, failed: bool = False) -> None:
        tags = self._shown.pop(trial.trial_id, None)
        if tags and trial.evaluated_params:
            now = self._clock()
            summaries = event_file.hyperparameters(
                flatten(trial.evaluated_params), tags, failed=failed
            )
            self._files.append(
                trial,
                b"".join(
                    event_file.record(event_file.summary_event(now, 0, one)) for one in summaries
                ),
            )
        self._starting.discard(trial.trial_id)
        self._files.end(trial)

    def on_experiment_end(self, trials: list[Trial], **info: object) -> None:
        self._shown.clear()
        self._starting.clear()
        self._files.close()

    def _array(self, tag: str, value: object) -> bytes:
        """Encode an array as a summary; if TensorBoard cannot show it, return b"" and log that once
        per tag.
        """
        try:
            array = np.asarray(value)
            if not array.size:
                return b""
            if isinstance(value, np.ndarray) and array.ndim in (3, 4, 5):
                return _pictures(tag, array)
            return event_file.histogram(tag, array)
        except (ValueError, TypeError, ImportError) as error:
            if tag not in self._warned:
                self._warned.add(tag)
                logger.warning(
                    "%s is not in the files for TensorBoard (%s). "
                    "Report it as numbers, or under several names.",
                    tag,
                    error,
                )
            return b""


@lru_cache(maxsize=4096)
def _tag(key: str) -> str:
    return PREFIX + _NOT_IN_TAGS.sub("_", key)


def _pictures(tag: str, array: np.ndarray) -> bytes:
    summaries = load(
        "tensorboardX.summary",
        purpose="an image or video in the files for TensorBoard",
        install="tensorboardX",
    )
    if array.ndim == 5:
        summary = summaries.video(tag, array, fps=VIDEO_FRAMES_PER_S)
    else:
        summary = summaries.image(tag, array, dataformats="CHW" if array.ndim == 3 else "NCHW")
    return bytes(summary.SerializeToString())
