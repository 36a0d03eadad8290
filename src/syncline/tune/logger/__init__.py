"""Callbacks that log each trial. Experiment trackers also log training runs.

Files, in the order in which a result passes through them:

logger.py             `LoggerCallback`, the base with hooks per trial, and `RowLogger`, which writes
                      one row per iteration
json.py               `JsonLoggerCallback`: result.json, params.json, params.pkl
csv.py                `CSVLoggerCallback`: progress.csv
tensorboardx.py       `TBXLoggerCallback`: event files of TensorBoard
write_files.py        all of these files for a trial that ended
trial_files.py        files of running trials, local or uploaded
tracker.py            `TrackerCallback`, the base of experiment trackers
wandb.py              Weights & Biases
mlflow.py             MLflow
comet.py              Comet
aim.py                Aim
background_calls.py   threads for uploads and calls to trackers
"""

from collections.abc import Sequence

from syncline import settings
from syncline.tune.callback import Callback
from syncline.tune.logger.csv import CSVLoggerCallback
from syncline.tune.logger.json import JsonLoggerCallback
from syncline.tune.logger.logger import LoggerCallback, pretty_print
from syncline.tune.logger.tensorboardx import TBXLoggerCallback

DEFAULT_LOGGERS: tuple[type[Callback], ...] = (
    CSVLoggerCallback,
    JsonLoggerCallback,
    TBXLoggerCallback,
)


def default_callbacks(callbacks: Sequence[Callback] | None) -> list[Callback]:
    """Return `callbacks` and an instance of each default logger that is missing in them.

    `TUNE_DISABLE_AUTO_CALLBACK_LOGGERS=1` adds no loggers.
    """
    given = list(callbacks or ())
    if not adds_default_loggers():
        return given
    return given + [
        kind() for kind in DEFAULT_LOGGERS if not any(isinstance(one, kind) for one in given)
    ]


def adds_default_loggers() -> bool:
    """Return True unless the environment disables the default loggers."""
    return settings.environment("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS") != "1"


__all__ = [
    "CSVLoggerCallback",
    "JsonLoggerCallback",
    "LoggerCallback",
    "TBXLoggerCallback",
    "adds_default_loggers",
    "default_callbacks",
    "pretty_print",
]
