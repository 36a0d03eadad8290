"""`Tuner`: what a program holds of a search."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from pyarrow import fs as pyarrow_fs

from syncline.core.tracebacks import forget_engine, says_all, shorten
from syncline.train import filesystem as files
from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.config import ResumeConfig, TuneConfig
from syncline.tune.controller.journal import SearchStore
from syncline.tune.controller.restore import load_trials, storage_at
from syncline.tune.error import TuneError
from syncline.tune.launch import (
    PLAN_FILE,
    Finished,
    SearchPlan,
    as_run_config,
    as_search_trainable,
    read_plan,
    run_search,
)
from syncline.tune.result_grid import ResultGrid
from syncline.tune.trainable.trainable import Trainable


class Tuner:
    """Runs a trainable with many configurations, and compares what comes of them.

    Args:
        trainable: A function of a configuration, a class derived from `Trainable`, the name of a
        registered one, or a trainer. param_space: What each trial gets: constants, domains
        (`tune.uniform(0, 1)`), grids (`tune.grid_search([1, 2])`), nested as wanted. tune_config:
        Metric, searcher, scheduler, number of samples. run_config: Name, storage, stopping,
        callbacks, retries.

    Raises:
        ValueError, TypeError: Arguments that cannot be meant.
    """

    def __init__(
        self,
        trainable: str | Callable[..., Any] | type[Trainable] | Any | None = None,
        *,
        param_space: Mapping[str, Any] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: Any = None,
        _plan: SearchPlan | None = None,
        _resume: ResumeConfig | None = None,
        _further_samples: int = 0,
    ) -> None:
        if _plan is None:
            try:
                _plan = _plan_of(trainable, param_space, tune_config, run_config)
            except (TuneError, ValueError, TypeError) as error:
                shorten(error)
                raise
        self._plan = _plan
        self._resume = _resume
        self._further_samples = _further_samples
        self._finished: Finished | None = None

    def fit(self) -> ResultGrid:
        """Run the search, or go on with the restored one; returns what came of every trial. Errors
        of trials are in their results.

        Ctrl-C ends it early: what there is by then is returned, and `Tuner.restore` goes on.

        Raises:
            TuneError: The search cannot go on: a metric that was asked for is never reported, …
            Exception: What a trial has failed with, where `fail_fast="raise"`.
            ValueError, TypeError: What was given cannot be meant, or cannot be pickled.
        """
        try:
            self._finished = run_search(self._plan, self._resume, self._further_samples)
        except Exception as error:
            if says_all(error):  # and is not of a scheduler or a function that the program gave
                forget_engine(error)
            raise
        # Called again, it goes on, with a searcher that knows nothing yet.
        storage = self._finished.storage
        self._plan = dataclasses.replace(
            read_plan(storage.experiment_fs_path, storage.storage_filesystem),
            trainable=self._plan.trainable,
        )
        self._resume, self._further_samples = ResumeConfig(), 0
        return self._grid(self._finished)

    def get_results(self) -> ResultGrid:
        """What came of a search that has been run, also in another process, without running
        anything.

        Raises:
            RuntimeError: It was not run yet.
        """
        if self._finished is None:
            if self._resume is None:
                raise RuntimeError(
                    "Tuner.get_results() before fit(): there are no results yet. Call `fit()`, or `Tuner.restore(path, …)`."
                )
            storage = self._plan.storage
            return self._grid(
                Finished(
                    trials=load_trials(storage.experiment_fs_path, storage.storage_filesystem),
                    storage=storage,
                )
            )
        return self._grid(self._finished)

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: str | Callable[..., Any] | type[Trainable] | Any,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, Any] | None = None,
        storage_filesystem: pyarrow_fs.FileSystem | None = None,
        _resume_config: ResumeConfig | None = None,
        *,
        further_samples: int = 0,
    ) -> Tuner:
        """A search that ended, was interrupted or was killed; `fit()` goes on with it.

        Args:
            path: The experiment directory, which may have been moved, or its URI. trainable: What
            it trains; it must have the same name. resume_unfinished: Whether trials that had not
            ended go on. resume_errored: Whether trials that had failed go on from their
            checkpoints. restart_errored: Whether they begin anew. param_space: The space, if
            objects in it have to be given again; the same keys. storage_filesystem: The filesystem
            that `path` is a path on; found from it if not given. further_samples: So many samples
            more than the search was to have; also of one that has finished.

        Raises:
            ValueError: There is no search in that directory; another trainable, or another space,
            than it has.
        """
        if resume_errored and restart_errored:
            raise ValueError(
                "`resume_errored=True` and `restart_errored=True` exclude each other: failed trials go on, or begin anew."
            )
        filesystem, directory = files.resolve(path, storage_filesystem)
        plan = read_plan(directory, filesystem)
        _check_same(plan, trainable, param_space)
        resume = _resume_config or ResumeConfig(
            unfinished="RESUME" if resume_unfinished else "SKIP",
            errored="RESUME" if resume_errored else "RESTART" if restart_errored else "SKIP",
        )
        plan = dataclasses.replace(
            plan,
            trainable=trainable,
            param_space=dict(param_space) if param_space is not None else plan.param_space,
        )
        return cls(_plan=plan, _resume=resume, _further_samples=further_samples)

    @classmethod
    def can_restore(
        cls, path: str | os.PathLike[str], storage_filesystem: pyarrow_fs.FileSystem | None = None
    ) -> bool:
        """Whether there is a search in that directory."""
        filesystem, directory = files.resolve(path, storage_filesystem)
        storage = storage_at(directory, filesystem)
        return SearchStore(storage.files).exists() and storage.files.read(PLAN_FILE) is not None

    def _grid(self, finished: Finished) -> ResultGrid:
        config = self._plan.tune_config
        analysis = ExperimentAnalysis(
            finished.storage.experiment_fs_path,
            storage_filesystem=finished.storage.storage_filesystem,
            trials=finished.trials,
            default_metric=config.metric if isinstance(config.metric, str) else None,
            default_mode=config.mode if isinstance(config.mode, str) else None,
        )
        return ResultGrid(analysis)


def _plan_of(trainable: Any, param_space: Any, tune_config: Any, run_config: Any) -> SearchPlan:
    """What the program has stated. ValueError, TypeError where that cannot be meant."""
    if trainable is None:
        raise TypeError(
            "Tuner() was given nothing to train: pass a function of a configuration, a Trainable class, or a trainer."
        )
    if tune_config is not None and not isinstance(tune_config, TuneConfig):
        raise ValueError(
            f"`tune_config` is a {type(tune_config).__name__} ({tune_config!r:.80}), but must be a TuneConfig or None."
        )
    if param_space is not None and not isinstance(param_space, Mapping):
        raise ValueError(
            f"`param_space` is a {type(param_space).__name__} ({param_space!r:.80}), but must be a dictionary or None."
        )
    plan = SearchPlan(
        trainable=trainable,
        param_space=dict(param_space or {}),
        tune_config=tune_config or TuneConfig(),
        run_config=as_run_config(run_config),
    )
    as_search_trainable(plan)
    return plan


def _check_same(plan: SearchPlan, trainable: Any, param_space: Mapping[str, Any] | None) -> None:
    """ValueError unless the trainable and the space are those of the search."""
    name = as_search_trainable(
        dataclasses.replace(plan, trainable=trainable, param_space={})
    ).__name__
    if name != plan.trainable:
        raise ValueError(
            f"the search trains `{plan.trainable}`, but `trainable` is `{name}`: give the one that the search was begun with, by its name."
        )
    if param_space is not None and set(param_space) != set(plan.param_space):
        changed = sorted(set(param_space) ^ set(plan.param_space))
        raise ValueError(
            f"`param_space` has the keys {sorted(param_space)} but the search has {sorted(plan.param_space)}: {changed} differ. A restored "
            "search keeps its space; leave `param_space` out, or give the same keys."
        )
