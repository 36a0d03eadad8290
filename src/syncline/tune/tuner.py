"""`Tuner`: defines, runs and restores a search."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import TypeAlias

from pyarrow import fs as pyarrow_fs

from syncline.core.tracebacks import forget_engine, is_self_explanatory, shorten
from syncline.storage import filesystem as files
from syncline.suggestions import suggest_arguments
from syncline.train.run_config import RunConfig as TrainRunConfig
from syncline.train.trainer import DataParallelTrainer
from syncline.tune.config import ResumeConfig, TuneConfig
from syncline.tune.controller.search_store import SearchStore, load_trials, storage_at
from syncline.tune.error import TuneError
from syncline.tune.launch import (
    PLAN_FILE,
    FinishedSearch,
    SearchPlan,
    as_param_space,
    as_run_config,
    as_search_trainable,
    read_plan,
    run_search,
)
from syncline.tune.result_grid import ResultGrid
from syncline.tune.trainable.trainable import Trainable

AnyTrainable: TypeAlias = str | Callable[..., object] | type[Trainable] | DataParallelTrainer


@suggest_arguments
class Tuner:
    """Runs a trainable with many configurations and compares the results.

    Args:
        trainable: A function of a configuration, a subclass of `Trainable`, the name of a
            registered one, or a trainer.
        param_space: Configuration of the trials: constants, domains (`tune.uniform(0, 1)`) and
            grids (`tune.grid_search([1, 2])`), which may be nested.
        tune_config: Metric, searcher, scheduler, number of samples.
        run_config: Name, storage, stop criteria, callbacks, retries.

    Raises:
        ValueError, TypeError: Invalid arguments.
    """

    def __init__(
        self,
        trainable: AnyTrainable | None = None,
        *,
        param_space: Mapping[str, object] | None = None,
        tune_config: TuneConfig | None = None,
        run_config: TrainRunConfig | None = None,
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
        self._finished: FinishedSearch | None = None

    def fit(self) -> ResultGrid:
        """Run or resume the search and return the results of all trials. Errors of trials are in
        their results.

        After Ctrl-C the results so far are returned, and `Tuner.restore` continues the search.

        Raises:
            TuneError: The search cannot continue, for example because a metric is not reported.
            Exception: The exception of a trial, with `fail_fast="raise"`.
            ValueError, TypeError: Invalid or unpicklable arguments.
        """
        try:
            self._finished = run_search(self._plan, self._resume, self._further_samples)
        except Exception as error:
            if is_self_explanatory(error):  # raised by this library, not by code of the program
                forget_engine(error)
            raise
        # Another call continues the search, with an unconfigured searcher.
        storage = self._finished.storage
        self._plan = dataclasses.replace(
            read_plan(storage.experiment_fs_path, storage.storage_filesystem),
            trainable=self._plan.trainable,
        )
        self._resume, self._further_samples = ResumeConfig(), 0
        return self._grid(self._finished)

    def get_results(self) -> ResultGrid:
        """Return the results of a search that ran, possibly in another process.

        Raises:
            RuntimeError: The search has not run.
        """
        if self._finished is None:
            if self._resume is None:
                raise RuntimeError(
                    "Tuner.get_results() was called before fit(), so there are no results: call "
                    "`fit()`, or `Tuner.restore(path, …)`."
                )
            storage = self._plan.storage
            return self._grid(
                FinishedSearch(
                    trials=load_trials(storage.experiment_fs_path, storage.storage_filesystem),
                    storage=storage,
                )
            )
        return self._grid(self._finished)

    @classmethod
    def restore(
        cls,
        path: str | os.PathLike[str],
        trainable: AnyTrainable,
        resume_unfinished: bool = True,
        resume_errored: bool = False,
        restart_errored: bool = False,
        param_space: Mapping[str, object] | None = None,
        storage_filesystem: pyarrow_fs.FileSystem | None = None,
        _resume_config: ResumeConfig | None = None,
        *,
        further_samples: int = 0,
    ) -> Tuner:
        """Return a tuner for a search that ended, was interrupted or was killed; `fit()` continues
        it.

        Args:
            path: The experiment directory, possibly moved, or its URI.
            trainable: The trainable, under the same name.
            resume_unfinished: Continue trials that had not ended.
            resume_errored: Continue failed trials from their checkpoints.
            restart_errored: Restart failed trials from scratch.
            param_space: The search space with the same keys, to replace objects in it.
            storage_filesystem: Filesystem of `path`; found from `path` by default.
            further_samples: Number of samples to add, also to a finished search.

        Raises:
            ValueError: The directory holds no search, or one with another trainable or space.
        """
        if resume_errored and restart_errored:
            raise ValueError(
                "`resume_errored=True` and `restart_errored=True` exclude each other: failed "
                "trials either continue or restart."
            )
        filesystem, directory = files.resolve(path, storage_filesystem)
        plan = read_plan(directory, filesystem)
        param_space = as_param_space(param_space)
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
        """Return True if the directory holds a search."""
        filesystem, directory = files.resolve(path, storage_filesystem)
        storage = storage_at(directory, filesystem)
        return SearchStore(storage.files).exists() and storage.files.read(PLAN_FILE) is not None

    def _grid(self, finished: FinishedSearch) -> ResultGrid:
        return ResultGrid(finished.analysis(self._plan.tune_config))


def _plan_of(
    trainable: object, param_space: object, tune_config: object, run_config: object
) -> SearchPlan:
    if trainable is None:
        raise TypeError(
            "Tuner() needs a trainable: pass a function of a configuration, a Trainable class, or "
            "a trainer."
        )
    if tune_config is not None and not isinstance(tune_config, TuneConfig):
        raise ValueError(
            f"`tune_config` is a {type(tune_config).__name__} ({tune_config!r:.80}): pass a "
            "TuneConfig or None."
        )
    param_space = as_param_space(param_space)
    if param_space is not None and not isinstance(param_space, Mapping):
        raise ValueError(
            f"`param_space` is a {type(param_space).__name__} ({param_space!r:.80}): pass a "
            "dictionary or None."
        )
    plan = SearchPlan(
        trainable=trainable,
        param_space=dict(param_space or {}),
        tune_config=tune_config or TuneConfig(),
        run_config=as_run_config(run_config),
    )
    as_search_trainable(plan)
    return plan


def _check_same(
    plan: SearchPlan, trainable: object, param_space: Mapping[str, object] | None
) -> None:
    """Check that trainable and search space belong to the search.

    Raises:
        ValueError: They do not.
    """
    name = as_search_trainable(
        dataclasses.replace(plan, trainable=trainable, param_space={})
    ).__name__
    if name != plan.trainable:
        raise ValueError(
            f"the search trains `{plan.trainable}`, but `trainable` is `{name}`: pass the "
            "trainable that the search was started with, under the same name."
        )
    if param_space is not None and set(param_space) != set(plan.param_space):
        changed = sorted(set(param_space) ^ set(plan.param_space))
        raise ValueError(
            f"`param_space` has the keys {sorted(param_space)}, but the search has "
            f"{sorted(plan.param_space)}: {changed} differ. A restored search keeps its space: "
            "omit `param_space`, or pass the same keys."
        )
