"""`tune.run` and `run_experiments`: the older way to state a search, for the programs that use
it.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyarrow import fs as pyarrow_fs

from syncline.core.tracebacks import forget_engine, is_self_explanatory
from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    TuneConfig,
)
from syncline.tune.console.reporter import ProgressReporter
from syncline.tune.controller.search_store import SearchStore
from syncline.tune.error import TuneError
from syncline.tune.experiment.experiment import Experiment
from syncline.tune.experiment.trial import Trial
from syncline.tune.launch import SearchPlan, run_search
from syncline.tune.schedulers import create_scheduler
from syncline.tune.schedulers.trial_scheduler import TrialScheduler

logger = logging.getLogger("syncline")

_RESUME_WORDS = {"LOCAL", "REMOTE", "PROMPT", "AUTO"}
_ERRORED = {
    "+ERRORED": "RESUME",
    "+ERRORED_ONLY": "RESUME",
    "+RESTART_ERRORED": "RESTART",
    "+RESTART_ERRORED_ONLY": "RESTART",
}


def run(
    run_or_experiment: str | Callable[..., Any] | type | Experiment,
    *,
    name: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    stop: Any = None,
    time_budget_s: float | datetime.timedelta | None = None,
    config: Mapping[str, Any] | None = None,
    resources_per_trial: Any = None,
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
    sync_config: Any = None,
    export_formats: Sequence[str] | None = None,
    max_failures: int = 0,
    fail_fast: bool | str = False,
    restore: str | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    callbacks: Sequence[Any] | None = None,
    max_concurrent_trials: int | None = None,
    keep_checkpoints_num: int | None = None,
    checkpoint_score_attr: str | None = None,
    checkpoint_freq: int = 0,
    checkpoint_at_end: bool = False,
    local_dir: str | os.PathLike[str] | None = None,
    **ignored: Any,
) -> ExperimentAnalysis:
    """Run a search, and return what came of it. Trials work in their own directories: relative
    paths in the trainable lead there.

    Args:
        run_or_experiment: What to train: a function of a configuration, a class, a registered name,
            or an `Experiment`.
        name: The experiment directory's name.
        metric: What is to get better; `mode` says whether that is "min" or "max".
        stop: When a trial stops: `{"training_iteration": 8}`, a function of id and result, or a
            `Stopper`.
        time_budget_s: The search ends after so many seconds.
        config: What each trial gets, with domains where it differs.
        resources_per_trial: What a trial holds: `{"cpu": 1, "gpu": 0.5}`, or a
            `PlacementGroupFactory`.
        num_samples: So many draws of `config`, each with every combination of its grids; -1 for no
            end.
        storage_path, local_dir: Where experiment directories lie; the second is its older name.
        search_alg, scheduler: Who proposes configurations, and who stops trials early: objects, or
            their names.
        checkpoint_config: Which checkpoints are made and kept; before it, `checkpoint_freq`,
            `checkpoint_at_end`, `keep_checkpoints_num` and `checkpoint_score_attr` (with "min-"
            before a score that is to be low).
        verbose, progress_reporter: What is shown.
        log_to_file: Keep what trials print.
        max_failures: How often a trial starts again; -1 without end.
        `fail_fast`: the first failure ends the search ("raise": is raised).
        restore: A checkpoint from which every trial begins.
        resume: Go on with the search of this
        `name`: True, "AUTO" (if there is one), and then what failed: "AUTO+ERRORED",
            "AUTO+RESTART_ERRORED". `resume_config` says more.
        reuse_actors: Whether trials may share a process, one after the other.
        raise_on_failed_trial: Whether a failed trial is an error of this call.
        callbacks: Who is told of what happens.
        max_concurrent_trials: So many trials run at a time.
        sync_config, export_formats, ignored: Have no effect.

    Raises:
        TuneError: A trial has failed, and `raise_on_failed_trial`; the search cannot go on.
        ValueError, TypeError: Arguments that cannot be meant.
    """
    del sync_config
    if export_formats:
        warnings.warn(
            "tune.run(export_formats=…) has no effect: export what is wanted from the best checkpoint.",
            stacklevel=2,
        )
    unknown = [key for key in ignored if not key.startswith("_") and key not in _MEANINGLESS]
    if unknown:
        raise TypeError(f"tune.run() got an unexpected argument {unknown[0]!r}.")
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
            raise_on_failed_trial=raise_on_failed_trial,
            callbacks=callbacks,
            max_concurrent_trials=max_concurrent_trials,
        )
    if (resume or resume_config) and name is None:
        raise ValueError(
            f"tune.run(resume={resume!r}) needs the `name` of the search that is to go on."
        )
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
        mode=mode,  # type: ignore[arg-type]  # checked there
        search_alg=search_alg,
        scheduler=create_scheduler(scheduler) if isinstance(scheduler, str) else scheduler,
        num_samples=num_samples,
        max_concurrent_trials=max_concurrent_trials,
        time_budget_s=time_budget_s,
        reuse_actors=reuse_actors,
        trial_name_creator=trial_name_creator,
        trial_dirname_creator=trial_dirname_creator,
    )
    plan = SearchPlan(
        trainable=run_or_experiment,
        param_space=dict(config or {}),
        tune_config=tune_config,
        run_config=run_config,
        resources_per_trial=resources_per_trial,
        in_trial_directory=True,
        first_checkpoint=restore,
    )
    return _analysis(plan, _resumption(plan, resume, resume_config), raise_on_failed_trial)


def run_experiments(
    experiments: Experiment | Mapping[str, Any] | Sequence[Any],
    scheduler: TrialScheduler | None = None,
    verbose: int | None = None,
    progress_reporter: ProgressReporter | None = None,
    resume: bool | str | None = None,
    resume_config: ResumeConfig | None = None,
    reuse_actors: bool = False,
    raise_on_failed_trial: bool = True,
    concurrent: bool = True,
    callbacks: Sequence[Any] | None = None,
    **_ignored: Any,
) -> list[Trial]:
    """Run several searches, one after the other, and return all their trials.

    Args:
        experiments: An `Experiment`, several, or `{name: {"run": trainable, "config": …, "stop":
            …}}`.
        concurrent: Has no effect: each search uses all there is.
        scheduler, verbose, progress_reporter, resume, resume_config, reuse_actors,
            raise_on_failed_trial, callbacks: As in `run`.
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
            raise_on_failed_trial=raise_on_failed_trial,
            callbacks=callbacks,
        )
        trials += analysis.trials
    return trials


_MEANINGLESS = frozenset(
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
"""Arguments of older versions that mean nothing any more."""


def _run_experiment(experiment: Experiment, **arguments: Any) -> ExperimentAnalysis:
    return run(experiment.trainable, name=experiment.name, **experiment.arguments, **arguments)


def _checkpoints(
    given: Any, frequency: int, at_end: bool, keep: int | None, score: str | None
) -> CheckpointConfig:
    """The configuration, put together from the older arguments where it is not given. Here a class
    is saved at its end only where asked.
    """
    if given is not None:
        values = {item.name: getattr(given, item.name) for item in dataclasses.fields(given)}
        return CheckpointConfig(
            **{**values, "checkpoint_at_end": bool(values.get("checkpoint_at_end"))}
        )
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
    """How the search goes on; None for a new one."""
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
            f'tune.run(resume={resume!r}): give True, "AUTO", "AUTO+ERRORED" or "AUTO+RESTART_ERRORED".'
        )
    if plus:
        errored = _ERRORED[plus + rest]
        unfinished = "SKIP" if rest.endswith("_ONLY") else "RESUME"
    if not SearchStore(plan.storage.files).exists():
        if word == "AUTO":
            return None
        raise ValueError(
            f"tune.run(resume={resume!r}): {plan.storage.experiment_fs_path!r} holds no search that could go on."
        )
    return config or ResumeConfig(unfinished=unfinished, errored=errored)  # type: ignore[arg-type]  # of the table above


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
    config = plan.tune_config
    return ExperimentAnalysis(
        finished.storage.experiment_fs_path,
        storage_filesystem=finished.storage.storage_filesystem,
        trials=finished.trials,
        default_metric=config.metric if isinstance(config.metric, str) else None,
        default_mode=config.mode if isinstance(config.mode, str) else None,
    )


def _failures(failed: Sequence[Trial]) -> str:
    names = ", ".join(trial.name for trial in failed[:5]) + (
        f" and {len(failed) - 5} more" if len(failed) > 5 else ""
    )
    trials = "1 trial has" if len(failed) == 1 else f"{len(failed)} trials have"
    return (
        f"{trials} failed: {names}. The first, {failed[0].name}:\n{failed[0].error_text}\n"
        f"(Each one's error is in `error.txt` of its directory, as {failed[0].path}; `raise_on_failed_trial=False` returns what the "
        "others gave.)"
    )
