"""Keys of results and names of files in experiment directories; programs and plotting tools rely
on them.
"""

from typing import Any, TypeAlias

Metrics: TypeAlias = dict[str, Any]
"""A result: values by key, which may be nested."""
Config: TypeAlias = dict[str, Any]
"""Configuration of a trial: values by parameter, which may be nested."""

TRAINING_ITERATION = "training_iteration"
TIME_TOTAL_S = "time_total_s"
TIME_THIS_ITER_S = "time_this_iter_s"
TIMESTAMP = "timestamp"
DONE = "done"
TRIAL_ID = "trial_id"
EXPERIMENT_TAG = "experiment_tag"
PID = "pid"
HOSTNAME = "hostname"
NODE_IP = "node_ip"
DATE = "date"
CONFIG = "config"
SHOULD_CHECKPOINT = "should_checkpoint"
TIME_SINCE_RESTORE = "time_since_restore"
ITERATIONS_SINCE_RESTORE = "iterations_since_restore"
TIMESTEPS_TOTAL = "timesteps_total"
TIMESTEPS_THIS_ITER = "timesteps_this_iter"
EPISODES_TOTAL = "episodes_total"
EPISODES_THIS_ITER = "episodes_this_iter"
CHECKPOINT_DIR_NAME = "checkpoint_dir_name"

DEFAULT_METRIC = "_metric"
"""Key of a number that a function returns or yields without a key."""

AUTO_RESULT_KEYS = (
    TRAINING_ITERATION,
    TIME_TOTAL_S,
    TIME_THIS_ITER_S,
    TIMESTAMP,
    DONE,
    TRIAL_ID,
    EXPERIMENT_TAG,
    PID,
    HOSTNAME,
    NODE_IP,
    DATE,
    CONFIG,
    SHOULD_CHECKPOINT,
    TIME_SINCE_RESTORE,
    ITERATIONS_SINCE_RESTORE,
    TIMESTEPS_TOTAL,
    TIMESTEPS_THIS_ITER,
    EPISODES_TOTAL,
    EPISODES_THIS_ITER,
    CHECKPOINT_DIR_NAME,
)
"""Keys that the library fills in."""

EXPR_PARAM_FILE = "params.json"
EXPR_PARAM_PICKLE_FILE = "params.pkl"
EXPR_RESULT_FILE = "result.json"
EXPR_PROGRESS_FILE = "progress.csv"
EXPR_ERROR_FILE = "error.txt"
