"""From what a program states to a search that runs: what `Tuner` and `tune.run` have in common.

`SearchPlan` is what they state; `run_search` begins a search, or goes on with one that was kept,
and returns its trials.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import cloudpickle
from pyarrow import fs as pyarrow_fs

from syncline import settings
from syncline.core import api
from syncline.core.error_frames import unpack_error
from syncline.core.lifecycle import ensure_engine
from syncline.exceptions import WorkerTraceback
from syncline.runs import RunDirectory
from syncline.train import config as train_config
from syncline.train.checkpoint import Checkpoint
from syncline.train.storage import StorageContext
from syncline.train.trainer import DataParallelTrainer
from syncline.train.workers.shipped import ship
from syncline.tune.callback import Callback, CallbackList
from syncline.tune.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    TuneConfig,
)
from syncline.tune.controller import events
from syncline.tune.controller.driver import SearchEnd, SearchWays, TuneController
from syncline.tune.controller.journal import SearchStore
from syncline.tune.controller.live import watched
from syncline.tune.controller.record import SearchRecord, earlier_lines
from syncline.tune.controller.restore import move, restore, snapshot, storage_at
from syncline.tune.controller.running import RunningTrials
from syncline.tune.controller.state import SearchRules, TuneMachine
from syncline.tune.controller.upkeep import tidy
from syncline.tune.execution.placement_groups import (
    PlacementGroupFactory,
    resource_dict_to_pg_factory,
)
from syncline.tune.experiment.trial import Trial
from syncline.tune.logger import default_callbacks
from syncline.tune.progress_reporter import default_reporter
from syncline.tune.registry import as_trainable_class, check_picklable, is_function_trainable
from syncline.tune.schedulers import create_scheduler
from syncline.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from syncline.tune.search import BasicVariantGenerator, create_searcher
from syncline.tune.search.search_algorithm import SearchAlgorithm
from syncline.tune.search.search_generator import SearchGenerator
from syncline.tune.stopper import make_stopper
from syncline.tune.trainable.function_trainable import requested
from syncline.tune.trainable.trainable import Trainable
from syncline.tune.trainable.trainer_trainable import check_keys, trainer_trainable

logger = logging.getLogger("syncline")

PLAN_FILE = "tuner.pkl"
"""What the program stated, in the experiment directory."""


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """A search as a program states it."""

    trainable: Any
    """A function, a class, a registered name, or a trainer."""
    param_space: Mapping[str, Any] = field(default_factory=dict)
    """What each trial gets, with domains where it differs."""
    tune_config: TuneConfig = field(default_factory=TuneConfig)
    """How the search goes about it."""
    run_config: RunConfig = field(default_factory=RunConfig)
    """Where it is kept, when trials stop, who watches."""
    resources_per_trial: Any = None
    """What a trial holds, if the trainable does not say."""
    in_trial_directory: bool = False
    """Whether the working directory of a trial is its own."""
    first_checkpoint: str | None = None
    """Where every trial begins, if it has no checkpoint of its own."""

    @property
    def storage(self) -> StorageContext:
        """The experiment directory."""
        return StorageContext.from_run_config(self.run_config)


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A search that is over."""

    trials: list[Trial]
    """All its trials."""
    storage: StorageContext
    """Where it is kept."""
    end: SearchEnd | None = None
    """How it ended; None for one that was read."""


def run_search(
    plan: SearchPlan, resume: ResumeConfig | None = None, further_samples: int = 0
) -> Finished:
    """Run a search to its end.

    Args:
        plan: What the program states. resume: What to do with the trials of the search that is kept
        in the plan's directory; None begins a new one. further_samples: So many more samples than
        the search was to have.

    Raises:
        TuneError: The search cannot go on.
        ValueError, TypeError: The plan cannot be meant.
    """
    engine = ensure_engine()
    kind = as_search_trainable(plan)
    check_picklable(kind, kind.__name__)
    as_stated = (
        packed_plan(plan) if resume is None else b""
    )  # before the searcher learns what to search
    search = search_algorithm(plan)
    storage = plan.storage
    storage.prepare()
    if plan.run_config.log_files is not None and not storage.local:
        logger.warning(
            "`log_to_file` keeps what trials print in directories of this machine only: %s lies elsewhere.",
            storage.experiment_fs_path,
        )
    store = SearchStore(storage.files)
    callbacks = CallbackList(default_callbacks(callbacks_of(plan)))
    resources = api.cluster_resources()
    first: events.Event = events.Begin(total_resources=resources)
    if resume is None:
        machine = _new_machine(plan, kind, search, storage)
        storage.files.write(PLAN_FILE, as_stated)
    else:
        machine, last = restore(store, search, callbacks)
        move(machine, storage)
        if further_samples:
            search.add_samples(further_samples)
        tidy(machine, last)
        first = events.Resumed(
            total_resources=resources,
            finished=resume.finished,
            unfinished=resume.unfinished,
            errored=resume.errored,
        )
    machine.limit(1 if engine.is_local_mode else float("inf"))
    store.snapshot(snapshot(machine, search, callbacks))
    metric, mode = _objective(plan, search, machine.scheduler)
    record = RunDirectory(storage.files, staging=engine.session_directory)
    earlier = earlier_lines(storage.files) if resume is not None else []
    record.write_run(
        storage.experiment_dir_name,
        _description(plan, kind, machine, search, (metric, mode)),
        kind="tune",
    )
    running = RunningTrials()
    search_record = SearchRecord(
        record,
        time.time,
        address=engine.node_address(),
        running=running,
        objective=(metric, mode),
        expected=lambda: _expected(search),
        earlier=earlier,
    )
    reporter = plan.run_config.progress_reporter or default_reporter(
        plan.run_config.verbose, experiment_path=storage.experiment_fs_path
    )
    if reporter is not None:
        reporter.setup(
            start_time=time.time(),
            total_samples=search.total_samples,
            metric=metric,
            mode=mode,
            trials=machine.trials,
        )
    callbacks.setup(
        stop=machine.stopper,
        num_samples=plan.tune_config.num_samples,
        total_num_samples=search.total_samples,
        experiment_path=storage.experiment_fs_path,
    )
    controller = TuneController(
        machine=machine,
        search=search,
        ways=SearchWays(
            experiment_name=storage.experiment_dir_name,
            trainable=api.put(ship(kind, f"the trainable `{kind.__name__}`")),
            resources=_resources(plan, kind),
            name_of=plan.tune_config.trial_name_creator,
            directory_of=plan.tune_config.trial_dirname_creator,
            reuse=plan.tune_config.reuse_actors,
            first_checkpoint=Checkpoint(plan.first_checkpoint)
            if plan.first_checkpoint is not None
            else None,
            in_trial_directory=plan.in_trial_directory and not engine.is_local_mode,
            log_files=plan.run_config.log_files,
            budget_s=plan.tune_config.budget_s,
        ),
        callbacks=callbacks,
        reporter=reporter,
        store=store,
        record=search_record,
    )
    try:
        with watched(storage, record, search_record, running, controller.actor_of):
            end = controller.run(first)
    except BaseException as error:
        _record_outcome(record, "failed", f"{type(error).__name__}: {error}")
        raise
    failed = sum(trial.status == Trial.ERROR for trial in machine.trials)
    _record_outcome(
        record, "aborted" if end.interrupted else "finished", end.problem, failed_trials=failed
    )
    if end.error is not None and _fail_fast(plan) == "raise":
        trial = next(trial for trial in machine.trials if trial.status == Trial.ERROR)
        raise unpack_error(end.error) from WorkerTraceback(
            f"in the trial {trial}\n{trial.error_text}"
        )
    if end.problem is not None:
        logger.warning(
            "The search has ended early: %s. `Tuner.restore(%r, …)` goes on with it.",
            end.problem,
            storage.experiment_fs_path,
        )
    return Finished(trials=list(machine.trials), storage=storage, end=end)


def as_search_trainable(plan: SearchPlan) -> type[Trainable]:
    """The class whose trials a search runs."""
    if isinstance(plan.trainable, DataParallelTrainer):
        check_keys(plan.param_space)
        return trainer_trainable(plan.trainable)
    return as_trainable_class(plan.trainable)


def callbacks_of(plan: SearchPlan) -> list[Callback]:
    """Those of the search's configuration that are for searches, and those of a trainer's that are,
    because its trials leave them out: a tracker gets a run per trial, and everything once. Where
    both have one of the same class, the search's alone is called.
    """
    # A configuration may serve a trainer, too, and have callbacks for it.
    callbacks = [one for one in plan.run_config.callbacks or () if isinstance(one, Callback)]
    kinds = {type(one) for one in callbacks}
    trainers = (
        plan.trainable.run_config.callbacks or ()
        if isinstance(plan.trainable, DataParallelTrainer)
        else ()
    )
    return [
        *callbacks,
        *(one for one in trainers if isinstance(one, Callback) and type(one) not in kinds),
    ]


def search_algorithm(plan: SearchPlan) -> SearchAlgorithm:
    """Who proposes configurations, told what of. ValueError where it cannot search that."""
    given = plan.tune_config.search_alg
    if isinstance(given, str):
        given = create_searcher(given, metric=plan.tune_config.metric, mode=plan.tune_config.mode)
    search: SearchAlgorithm
    if given is None:
        search = BasicVariantGenerator()
    elif isinstance(given, SearchAlgorithm):
        search = given
    else:
        search = SearchGenerator(given)
    metric, mode = plan.tune_config.metric, plan.tune_config.mode
    if isinstance(plan.tune_config.search_alg, str):
        metric, mode = (None, None) if search.metric else (metric, mode)
    search.configure(metric, mode, dict(plan.param_space), plan.tune_config.num_samples)
    return search


def as_run_config(given: Any) -> RunConfig:
    """A search's run configuration, also where a program gave a trainer's."""
    if given is None:
        return RunConfig()
    if isinstance(given, RunConfig):
        return given
    if not isinstance(given, train_config.RunConfig):
        raise ValueError(
            f"`run_config` is a {type(given).__name__} ({given!r:.80}), but must be a RunConfig or None."
        )
    return RunConfig(
        **{
            item.name: getattr(given, item.name)
            for item in dataclasses.fields(train_config.RunConfig)
        }
    )


def packed_plan(plan: SearchPlan) -> bytes:
    """What `read_plan` reads; the trainable is left out, because a program that restores gives
    it.
    """
    run_config = dataclasses.replace(plan.run_config, progress_reporter=None)
    kept = dataclasses.replace(
        plan, trainable=as_search_trainable(plan).__name__, run_config=run_config
    )
    for callbacks in (run_config.callbacks, None):
        try:
            return bytes(
                cloudpickle.dumps(
                    dataclasses.replace(
                        kept, run_config=dataclasses.replace(run_config, callbacks=callbacks)
                    )
                )
            )
        except (
            Exception
        ) as error:  # trackers hold connections; without them the search can still be restored
            problem = error
    raise TypeError(
        f"the search cannot be kept, because its space or its searcher cannot be pickled ({problem}): put functions and classes at the top "
        "of a module, and large objects into `tune.with_parameters`."
    ) from problem


def read_plan(path: str, filesystem: pyarrow_fs.FileSystem | None) -> SearchPlan:
    """What was stated for the search in a directory, which may have been moved since; `trainable`
    is its name.

    Raises:
        ValueError: There is no search.
    """
    storage = storage_at(path, filesystem)
    data = storage.files.read(PLAN_FILE)
    if data is None:
        raise ValueError(
            f"{path!r} holds no {PLAN_FILE}, so there is no search to restore: give the experiment directory itself, that is "
            "`storage_path`/`name` of its RunConfig, or `results.experiment_path`."
        )
    plan: SearchPlan = cloudpickle.loads(data)
    run_config = dataclasses.replace(
        plan.run_config,
        name=storage.experiment_dir_name,
        storage_path=storage.storage_fs_path,
        storage_filesystem=storage.storage_filesystem,
    )
    return dataclasses.replace(plan, run_config=run_config)


def _new_machine(
    plan: SearchPlan, kind: type[Trainable], search: SearchAlgorithm, storage: StorageContext
) -> TuneMachine:
    if SearchStore(storage.files).exists():
        logger.warning(
            "%s holds a search already, which can be restored no more: a new one begins there. To go on with it, use `Tuner.restore`.",
            storage.experiment_fs_path,
        )
    config = plan.tune_config
    scheduler = config.scheduler if config.scheduler is not None else FIFOScheduler()
    if isinstance(scheduler, str):
        scheduler = create_scheduler(scheduler)
    if not isinstance(scheduler, TrialScheduler):
        raise ValueError(
            f"`scheduler` is a {type(scheduler).__name__} ({scheduler!r:.80}), but must be a TrialScheduler, its name, or None."
        )
    _tell_objective(scheduler, config)
    is_function = is_function_trainable(kind)
    failure = plan.run_config.failure_config
    max_failures = failure.max_failures if failure is not None else 0
    rules = SearchRules(
        trainable_name=kind.__name__,
        is_function=is_function,
        storage=storage,
        trial_prefix=secrets.token_hex(3)[:5],
        metric=config.metric if isinstance(config.metric, str) else None,
        strict_metrics=not settings.flag("TUNE_DISABLE_STRICT_METRIC_CHECKING"),
        max_concurrent=min(
            getattr(search, "max_concurrent", 0) or float("inf"),
            config.max_concurrent_trials or float("inf"),
        ),
        max_failures=float("inf") if max_failures == -1 else max_failures,
        fail_fast=bool(_fail_fast(plan)),
        checkpoint_config=_checkpoint_config(plan, kind, is_function),
    )
    return TuneMachine(rules, scheduler, make_stopper(plan.run_config.stop))


def _checkpoint_config(
    plan: SearchPlan, kind: type[Trainable], is_function: bool
) -> CheckpointConfig:
    given = plan.run_config.checkpoint_config
    values = (
        {item.name: getattr(given, item.name) for item in dataclasses.fields(type(given))}
        if given is not None
        else {}
    )
    config = CheckpointConfig(**values)
    if is_function:
        if config.checkpoint_frequency or config.checkpoint_at_end:
            name = "checkpoint_frequency" if config.checkpoint_frequency else "checkpoint_at_end"
            raise ValueError(
                f"`{name}={getattr(config, name)!r}` has no meaning for the function `{kind.__name__}`, which says itself when it saves: "
                "report checkpoints with `tune.report(metrics, checkpoint=…)`, and leave it out."
            )
        return dataclasses.replace(config, checkpoint_at_end=False)
    can_save = kind.save_checkpoint is not Trainable.save_checkpoint
    at_end = can_save if config.checkpoint_at_end is None else config.checkpoint_at_end
    return dataclasses.replace(config, checkpoint_at_end=at_end)


def _tell_objective(scheduler: TrialScheduler, config: TuneConfig) -> None:
    metric = config.metric if isinstance(config.metric, str) else None
    mode = config.mode if isinstance(config.mode, str) else None
    if not scheduler.set_search_properties(metric, mode):
        raise ValueError(
            f"`metric={config.metric!r}` and `mode={config.mode!r}` were given to the search, but the scheduler {type(scheduler).__name__} "
            f"has {scheduler.metric!r} of its own: give them in one place."
        )


def _objective(
    plan: SearchPlan, search: SearchAlgorithm, scheduler: TrialScheduler
) -> tuple[str | None, str | None]:
    """What is to get better, from whoever says so."""
    for metric, mode in (
        (plan.tune_config.metric, plan.tune_config.mode),
        (search.metric, search.mode),
        (scheduler.metric, getattr(scheduler, "_mode", None)),
    ):
        if isinstance(metric, str) and isinstance(mode, str):
            return metric, mode
    return None, None


def _resources(
    plan: SearchPlan, kind: type[Trainable]
) -> Callable[[dict[str, Any]], PlacementGroupFactory]:
    def resources(config: dict[str, Any]) -> PlacementGroupFactory:
        asked = requested(plan.resources_per_trial, config)
        own = kind.default_resource_request(config)
        return asked or own or resource_dict_to_pg_factory(None)

    return resources


def _record_outcome(record: RunDirectory, status: str, problem: str | None, **fields: Any) -> None:
    """How the search ended, for who looks at its directory. Where that cannot be written, the
    search has ended all the same.
    """
    try:
        record.write_outcome(status, problem, **fields)
        record.close()
    except OSError as error:
        logger.warning("how the search ended cannot be recorded: %s", error)


def _description(
    plan: SearchPlan,
    kind: type[Trainable],
    machine: TuneMachine,
    search: SearchAlgorithm,
    objective: tuple[str | None, str | None],
) -> Mapping[str, Any]:
    metric, mode = objective
    return {
        "trainable": kind.__name__,
        "objective": {"metric": metric, "mode": mode},
        "trials": {"prefix": machine.rules.trial_prefix, "expected": _expected(search)},
        "param_space": plan.param_space,
        "tune_config": plan.tune_config,
        "run_config": plan.run_config,
    }


def _expected(search: SearchAlgorithm) -> int | None:
    return int(search.total_samples) if isfinite(search.total_samples) else None


def _fail_fast(plan: SearchPlan) -> Any:
    failure = plan.run_config.failure_config
    return failure.fail_fast if isinstance(failure, FailureConfig) else False
