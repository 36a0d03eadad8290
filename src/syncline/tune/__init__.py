"""Hyperparameter search: runs many trials of one trainable, compares them and stops bad ones early.

Files in the order of the data flow: `config` (configuration), `result` (keys and file names),
`error`, `tuner` and `tune` (the two interfaces), `launch` (their common part), `trainable/`
(trainables), `context` and `track` (functions inside a trial), `integration/` (frameworks),
`registry` (trainables by name), `search/` (searchers), `schedulers/` and `stopper/` (early stops),
`controller/` (decisions, execution, persistence), `experiment/` (trials), `execution/` (resources),
`workers/` (processes), `plain_pickle` (fast pickling of plain values), `callback` and `logger/`
(observers), `console/` and `progress_reporter` (display), `results_file` (results of short trials),
`trial_history` (reported results, best trial), `result_grid`, `analysis/` and `plots/` (results),
`examples/`, `utils/` (helpers of programs). `tune_config` re-exports the configuration under Ray's
module name; `sklearn` says what to use instead of a module that Ray no longer has.
"""

import importlib
import sys
from typing import TYPE_CHECKING

from syncline.suggestions import missing_attribute

if TYPE_CHECKING:
    from syncline.train import Checkpoint as Checkpoint
    from syncline.train import SyncConfig as SyncConfig
    from syncline.tune import track as track
    from syncline.tune.analysis import ExperimentAnalysis as ExperimentAnalysis
    from syncline.tune.callback import Callback as Callback
    from syncline.tune.config import CheckpointConfig as CheckpointConfig
    from syncline.tune.config import FailureConfig as FailureConfig
    from syncline.tune.config import ResumeConfig as ResumeConfig
    from syncline.tune.config import RunConfig as RunConfig
    from syncline.tune.config import TuneConfig as TuneConfig
    from syncline.tune.context import TuneContext as TuneContext
    from syncline.tune.context import get_checkpoint as get_checkpoint
    from syncline.tune.context import get_context as get_context
    from syncline.tune.context import report as report
    from syncline.tune.error import TuneError as TuneError
    from syncline.tune.execution.placement_groups import (
        PlacementGroupFactory as PlacementGroupFactory,
    )
    from syncline.tune.experiment import Experiment as Experiment
    from syncline.tune.progress_reporter import CLIReporter as CLIReporter
    from syncline.tune.progress_reporter import JupyterNotebookReporter as JupyterNotebookReporter
    from syncline.tune.progress_reporter import ProgressReporter as ProgressReporter
    from syncline.tune.registry import register_env as register_env
    from syncline.tune.registry import register_trainable as register_trainable
    from syncline.tune.result_grid import Result as Result
    from syncline.tune.result_grid import ResultGrid as ResultGrid
    from syncline.tune.schedulers import create_scheduler as create_scheduler
    from syncline.tune.search import create_searcher as create_searcher
    from syncline.tune.search.sample import choice as choice
    from syncline.tune.search.sample import lograndint as lograndint
    from syncline.tune.search.sample import loguniform as loguniform
    from syncline.tune.search.sample import qlograndint as qlograndint
    from syncline.tune.search.sample import qloguniform as qloguniform
    from syncline.tune.search.sample import qrandint as qrandint
    from syncline.tune.search.sample import qrandn as qrandn
    from syncline.tune.search.sample import quniform as quniform
    from syncline.tune.search.sample import randint as randint
    from syncline.tune.search.sample import randn as randn
    from syncline.tune.search.sample import sample_from as sample_from
    from syncline.tune.search.sample import uniform as uniform
    from syncline.tune.search.variant_generator import grid_search as grid_search
    from syncline.tune.stopper import Stopper as Stopper
    from syncline.tune.trainable.trainable import Trainable as Trainable
    from syncline.tune.trainable.util import with_parameters as with_parameters
    from syncline.tune.trainable.util import with_resources as with_resources
    from syncline.tune.tune import run as run
    from syncline.tune.tune import run_experiments as run_experiments
    from syncline.tune.tuner import Tuner as Tuner

_NAMES = {
    "syncline.train.checkpoint": "Checkpoint",
    "syncline.train.config": "SyncConfig",
    "syncline.tune.analysis": "ExperimentAnalysis",
    "syncline.tune.callback": "Callback",
    "syncline.tune.config": "CheckpointConfig FailureConfig ResumeConfig RunConfig TuneConfig",
    "syncline.tune.context": "TuneContext get_checkpoint get_context report",
    "syncline.tune.error": "TuneError",
    "syncline.tune.execution.placement_groups": "PlacementGroupFactory",
    "syncline.tune.experiment": "Experiment",
    "syncline.tune.progress_reporter": "CLIReporter JupyterNotebookReporter ProgressReporter",
    "syncline.tune.registry": "register_env register_trainable",
    "syncline.tune.result_grid": "Result ResultGrid",
    "syncline.tune.schedulers": "create_scheduler",
    "syncline.tune.search": "create_searcher",
    "syncline.tune.search.sample": (
        "choice lograndint loguniform qlograndint qloguniform qrandint qrandn quniform randint "
        "randn sample_from uniform"
    ),
    "syncline.tune.search.variant_generator": "grid_search",
    "syncline.tune.stopper": "Stopper",
    "syncline.tune.trainable.trainable": "Trainable",
    "syncline.tune.trainable.util": "with_parameters with_resources",
    "syncline.tune.tune": "run run_experiments",
    "syncline.tune.tuner": "Tuner",
}
"""Public names by module, which is loaded on first use."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
_MODULES = frozenset(
    {
        "analysis", "callback", "context", "error", "examples", "execution", "experiment",
        "integration", "logger", "plots", "progress_reporter", "registry", "result", "result_grid",
        "schedulers", "search", "stopper", "track", "trainable", "tune_config", "tuner", "utils",
    }
)  # fmt: skip

__all__ = sorted([*_HOMES, "track"])


def __getattr__(name: str) -> object:
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise missing_attribute(sys.modules[__name__], name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
