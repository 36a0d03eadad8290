"""`tune.run` and `run_experiments`: the older interface of a search."""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyarrow import fs as pyarrow_fs

from syncline.core.tracebacks import forget_engine, is_self_explanatory
from syncline.suggestions import unknown_argument
from syncline.train.run_config import UserCallback
from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.callback import Callback
from syncline.tune.config import (
    CheckpointConfig,
    FailureConfig,
    Isolation,
    ResumeConfig,
    RunConfig,
    TuneConfig,
    extended,
)
from syncline.tune.console.reporter import ProgressReporter
from syncline.tune.controller.search_store import SearchStore
from syncline.tune.error import TuneError
from syncline.tune.experiment.experiment import Experiment
from syncline.tune.experiment.trial import Trial
from syncline.tune.launch import SearchPlan, as_param_space, run_search
from syncline.tune.schedulers.trial_scheduler import TrialScheduler
from syncline.tune.trainable.function_trainable import Resources

logger = logging.getLogger("syncline")

_RESUME_WORDS = {"LOCAL", "REMOTE", "PROMPT", "AUTO"}
_ERRORED = {
    "+ERRORED": "RESUME",
    "+ERRORED_ONLY": "RESUME",
    "+RESTART_ERRORED": "RESTART",
    "+RESTART_ERRORED_ONLY": "RESTART",
}


def run(
    run_or_experiment: str | Callable[..., object] | type | Experiment,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: Any = None,
    time_budget_s: float | datetime.timedelta | None = None,
    config: Mapping[str, object] | None = None,
    resources_per_trial: Resources = None,
    num_samples: int = 1,
    storage_path: str | os.PathLike[str] | None = None,
    storage_filesystem: pyarrow_fs.FileSystem | None = None,
    search_alg: Any = None,
    scheduler: TrialScheduler | str | None = None,
    checkpoint_config: Any = None,
    verbose: int | None = None,
    progress_reporter: ProgressReporter | None = None,
    log_to_file: bool | str | tuple[str, str] = False,
    trial_name_creator: Callable[[Trial], str] | None = None,
    trial_dirname_creator: Callable[[Trial], str] | None = None,
    sync_config: object = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    isolation: Isolation = "process",
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Callback | UserCallback] | None = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    local_dir: str | os.PathLike[str] | None = None,
    **ignored: object,
) -> ExperimentAnalysis:
    """Run a search and return its analysis. The working directory of each trial is its own
    directory, so relative paths in the trainable refer to it.

    Args:
        run_or_experiment: A function of a configuration, a Trainable class, a registered name, or
            an `Experiment`.
        name: Name of the experiment directory.
        metric: Metric to optimize.
        mode: "min" or "max".
        stop: Stop criterion of trials: `{"training_iteration": 8}`, a function of id and result,
            or a `Stopper`.
        time_budget_s: Seconds after which the search ends.
        config: Configuration of the trials, with domains and grids.
        resources_per_trial: `{"cpu": 1, "gpu": 0.5}`, or a `PlacementGroupFactory`.
        num_samples: Number of draws of `config`, each with all combinations of the grids; -1 for
            no limit.
        storage_path: Parent of experiment directories.
        storage_filesystem: Filesystem of `storage_path`.
        search_alg: A searcher or its name.
        scheduler: A scheduler or its name.
        checkpoint_config: Frequency and retention of checkpoints. It replaces `checkpoint_freq`,
            `checkpoint_at_end`, `keep_checkpoints_num` and `checkpoint_score_attr` (with the
            prefix "min-" for a score to minimize).
        verbose: See `RunConfig.verbose`.
        progress_reporter: Display of the search.
        log_to_file: Write output of trials to files.
        trial_name_creator: Returns the display name of a trial.
        trial_dirname_creator: Returns the directory name of a trial.
        max_failures: Restarts of a failing trial; -1 for no limit.
        fail_fast: End the search at the first failure; "raise" also raises its exception.
        restore: Initial checkpoint of trials without their own checkpoint.
        resume: Continue the search of this `name`: True, or "AUTO" if it may not exist. Add
            "+ERRORED" or "+RESTART_ERRORED" to continue or restart failed trials.
        resume_config: Treatment of the trials in detail.
        reuse_actors: Run several trials in one process, one after the other.
        isolation: "process" for a new process for each trial, "worker" for processes that are
            restored after each of many trials; see `TuneConfig.isolation`.
        raise_on_failed_trial: Raise an error if a trial failed.
        callbacks: Callbacks of the search.
        max_concurrent_trials: Maximum number of running trials.
        local_dir: Older name of `storage_path`.
        sync_config: No effect.
        export_formats: No effect.
        ignored: No effect.

    Raises:
        TuneError: A trial failed and `raise_on_failed_trial` is set, or the search cannot continue.
        ValueError, TypeError: Invalid arguments.
    """
    del sync_config
    if export_formats:
        warnings.warn(
            "tune.run(export_formats=…) has no effect: export the model from the best checkpoint.",
            stacklevel=2,
        )
    unknown = [key for key in ignored if not key.startswith("_") and key not in _NO_EFFECT]
    if unknown:
        names = [name for name in inspect.signature(run).parameters if name != "ignored"]
        raise unknown_argument("tune.run", unknown[0], names)
    if isinstance(run_or_experiment, Experiment):
        return _run_experiment(
            run_or_experiment,
            metric=metric,
            mode=mode,
            search_alg=search_alg,
            scheduler=scheduler,
            verbose=verbose,
            progress_reporter=progress_reporter,
            fail_fast=fail_fast,
            resume=resume,
            resume_config=resume_config,
            reuse_actors=reuse_actors,
            isolation=isolation,
            raise_on_failed_trial=raise_on_failed_trial,
            callbacks=callbacks,
            max_concurrent_trials=max_concurrent_trials,
        )
    if (resume or resume_config) and name is None:
        raise ValueError(f"tune.run(resume={resume!r}) needs the `name` of the search to continue.")
    run_config = RunConfig(
        name=name,
        storage_path=storage_path or local_dir,
        storage_filesystem=storage_filesystem,
        failure_config=FailureConfig(max_failures=max_failures, fail_fast=fail_fast or None),
        checkpoint_config=_checkpoints(
            checkpoint_config,
            checkpoint_freq,
            checkpoint_at_end,
            keep_checkpoints_num,
            checkpoint_score_attr,
        ),
        stop=stop,
        callbacks=list(callbacks) if callbacks else None,
        verbose=int(verbose) if verbose is not None else None,
        progress_reporter=progress_reporter,
        log_to_file=log_to_file or None,
    )
    tune_config = TuneConfig(
        metric=metric,
        mode=mode,  # type: ignore[arg-type]  # checked by TuneConfig
        search_alg=search_alg,
        scheduler=scheduler,
        num_samples=num_samples,
        max_concurrent_trials=max_concurrent_trials,
        time_budget_s=time_budget_s,
        reuse_actors=reuse_actors,
        isolation=isolation,
        trial_name_creator=trial_name_creator,
        trial_dirname_creator=trial_dirname_creator,
    )
    plan = SearchPlan(
        trainable=run_or_experiment,
        param_space=dict(as_param_space(config) or {}),
        tune_config=tune_config,
        run_config=run_config,
        resources_per_trial=resources_per_trial,
        in_trial_directory=True,
        first_checkpoint=restore,
    )
    return _analysis(plan, _resumption(plan, resume, resume_config), raise_on_failed_trial)


def run_experiments(
    experiments: Experiment | Mapping[str, object] | Sequence[object],
    scheduler: TrialScheduler | None = None,
    verbose: int | None = None,
    progress_reporter: ProgressReporter | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    isolation: Isolation = "process",
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Callback | UserCallback] | None = None,
    **_ignored: object,
) -> list[Trial]:
    """Run several searches one after the other and return all their trials.

    Args:
        experiments: An `Experiment`, several, or
            `{name: {"run": trainable, "config": …, "stop": …}}`.
        concurrent: No effect: each search uses all resources.
        scheduler, verbose, progress_reporter, resume, resume_config, reuse_actors,
            isolation, raise_on_failed_trial, callbacks: See `run`.
    """
    del concurrent
    trials: list[Trial] = []
    for experiment in Experiment.several(experiments):
        analysis = _run_experiment(
            experiment,
            scheduler=scheduler,
            verbose=verbose,
            progress_reporter=progress_reporter,
            resume=resume,
            resume_config=resume_config,
            reuse_actors=reuse_actors,
            isolation=isolation,
            raise_on_failed_trial=raise_on_failed_trial,
            callbacks=callbacks,
        )
        trials += analysis.trials
    return trials


_NO_EFFECT = frozenset(
    {
        "chdir_to_trial_dir",
        "global_checkpoint_period",
        "queue_trials",
        "ray_auto_init",
        "server_port",
        "trial_executor",
        "with_server",
    }
)
"""Arguments of older versions."""


def _run_experiment(experiment: Experiment, **arguments: Any) -> ExperimentAnalysis:
    return run(experiment.trainable, name=experiment.name, **experiment.arguments, **arguments)


def _checkpoints(
    given: Any, frequency: int, at_end: bool, keep: int | None, score: str | None
) -> CheckpointConfig:
    """Return the given configuration, or one from the older arguments. Unlike with `Tuner`, a class
    is saved at its end only if requested.
    """
    if given is not None:
        config = extended(CheckpointConfig, given)
        return dataclasses.replace(config, checkpoint_at_end=bool(config.checkpoint_at_end))
    low = score is not None and score.startswith("min-")
    return CheckpointConfig(
        num_to_keep=keep,
        checkpoint_score_attribute=score.removeprefix("min-") if score is not None else None,
        checkpoint_score_order="min" if low else "max",
        checkpoint_frequency=frequency,
        checkpoint_at_end=at_end,
    )


def _resumption(
    plan: SearchPlan, resume: bool | str | None, config: ResumeConfig | None
) -> ResumeConfig | None:
    """Return the treatment of existing trials; None for a new search."""
    if not resume and config is None:
        return None
    errored = "SKIP"
    unfinished = "RESUME"
    word, plus, rest = (
        resume.upper().partition("+") if isinstance(resume, str) else ("LOCAL", "", "")
    )
    if word == "ERRORED_ONLY":
        word, plus, rest = "LOCAL", "+", "ERRORED_ONLY"
    if word not in _RESUME_WORDS or (plus and plus + rest not in _ERRORED):
        raise ValueError(
            f'tune.run(resume={resume!r}): pass True, "AUTO", "AUTO+ERRORED" or '
            '"AUTO+RESTART_ERRORED".'
        )
    if plus:
        errored = _ERRORED[plus + rest]
        unfinished = "SKIP" if rest.endswith("_ONLY") else "RESUME"
    if not SearchStore(plan.storage.files).exists():
        if word == "AUTO":
            return None
        raise ValueError(
            f"tune.run(resume={resume!r}): {plan.storage.experiment_fs_path!r} holds no search."
        )
    return config or ResumeConfig(unfinished=unfinished, errored=errored)  # type: ignore[arg-type]  # from the table above


def _analysis(
    plan: SearchPlan, resume: ResumeConfig | None, raise_on_failed_trial: bool
) -> ExperimentAnalysis:
    try:
        finished = run_search(plan, resume)
        failed = [trial for trial in finished.trials if trial.status == Trial.ERROR]
        interrupted = finished.end is not None and finished.end.interrupted
        if failed and raise_on_failed_trial and not interrupted:
            raise TuneError(_failures(failed))
    except Exception as error:
        if is_self_explanatory(error):
            forget_engine(error)
        raise
    return finished.analysis(plan.tune_config)


def _failures(failed: Sequence[Trial]) -> str:
    names = ", ".join(trial.name for trial in failed[:5]) + (
        f" and {len(failed) - 5} more" if len(failed) > 5 else ""
    )
    trials = "1 trial has" if len(failed) == 1 else f"{len(failed)} trials have"
    return (
        f"{trials} failed: {names}. The first, {failed[0].name}:\n{failed[0].error_text}\n"
        f"(The errors are in `error.txt` of the trials' directories, such as {failed[0].path}. Set "
        "`raise_on_failed_trial=False` to get the results of the other trials.)"
    )
