"""Callbacks that keep a record of each trial; trackers keep one of training runs, too. What happens
to a result, in order:

logger.py        `LoggerCallback`, the base class, with hooks per trial
defaults.py      which loggers a search has
rows.py          a row per result, each iteration once: the base of
json.py            `JsonLoggerCallback`: result.json, params.json, params.pkl
csv.py             `CSVLoggerCallback`: progress.csv
tensorboardx.py  `TBXLoggerCallback`
trial_files.py   where the rows go: a file per running trial, here or elsewhere
tracker.py       experiment trackers, called in the background (background.py), found again by a restarted program (kept.py): the base of
wandb.py mlflow.py comet.py aim.py
"""

from syncline.tune.logger.csv import CSVLoggerCallback
from syncline.tune.logger.defaults import default_callbacks
from syncline.tune.logger.json import JsonLoggerCallback
from syncline.tune.logger.logger import LoggerCallback, pretty_print
from syncline.tune.logger.tensorboardx import TBXLoggerCallback

__all__ = [
    "CSVLoggerCallback",
    "JsonLoggerCallback",
    "LoggerCallback",
    "TBXLoggerCallback",
    "default_callbacks",
    "pretty_print",
]
