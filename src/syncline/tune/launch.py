"""Common part of `Tuner` and `tune.run`: `SearchPlan` is the definition of a search; `run_search`
starts or resumes it and returns its trials.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
from syncline.runs.alerts import alerts_of
from syncline.train.checkpoint import Checkpoint
from syncline.train.controller.name_conflicts import check_owner, existing_run, resolved
from syncline.train.local_mode import check_torchrun
from syncline.train.run_config import RunConfig as TrainRunConfig
from syncline.train.storage.context import StorageContext
from syncline.train.trainer import DataParallelTrainer
from syncline.train.workers.spec import serialize
from syncline.tune.analysis import ExperimentAnalysis
from syncline.tune.callback import Callback, CallbackList
from syncline.tune.config import (
    CheckpointConfig,
    FailureConfig,
    ResumeConfig,
    RunConfig,
    TuneConfig,
    extended,
)
from syncline.tune.controller import events
from syncline.tune.controller.driver import TuneController
from syncline.tune.controller.events import SearchRules
from syncline.tune.controller.experiment_files import clean_up
from syncline.tune.controller.live_search import watched
from syncline.tune.controller.search_record import RunningTrials, SearchRecord, read_trial_lines
from syncline.tune.controller.search_store import (
    SearchStore,
    relocate,
    restore,
    snapshot,
    storage_at,
)
from syncline.tune.controller.short_trials import ShortTrials
from syncline.tune.controller.state import TuneMachine
from syncline.tune.controller.trial_settings import TrialSettings
from syncline.tune.execution.placement_groups import (
    PlacementGroupFactory,
    resource_dict_to_pg_factory,
)
from syncline.tune.experiment.trial import Trial
from syncline.tune.logger import adds_default_loggers, default_callbacks
from syncline.tune.progress_reporter import default_reporter
from syncline.tune.registry import WithNames, as_trainable_class, check_picklable
from syncline.tune.result import Config
from syncline.tune.results_file import ResultsFile
from syncline.tune.schedulers import create_scheduler
from syncline.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from syncline.tune.search import BasicVariantGenerator, create_searcher
from syncline.tune.search.search_algorithm import SearchAlgorithm
from syncline.tune.search.search_generator import SearchGenerator
from syncline.tune.stopper import make_stopper
from syncline.tune.trainable.function_trainable import (
    FunctionTrainable,
    Resources,
    requested_resources,
)
from syncline.tune.trainable.trainable import Trainable
from syncline.tune.trainable.trainer_trainable import check_keys, trainer_trainable

logger = logging.getLogger("syncline")

PLAN_FILE = "tuner.pkl"
"""File in the experiment directory with the definition of the search."""


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """Definition of a search."""

    trainable: Any
    """A function, a class, a registered name, or a trainer."""
    param_space: Mapping[str, object] = field(default_factory=dict)
    """Configuration of the trials, with domains and grids."""
    tune_config: TuneConfig = field(default_factory=TuneConfig)
    """Metric, searcher, scheduler and number of samples."""
    run_config: RunConfig = field(default_factory=RunConfig)
    """Storage, stop criteria, callbacks and retries."""
    resources_per_trial: Resources = None
    """Resources of a trial; None to ask the trainable."""
    in_trial_directory: bool = False
    """Make the trial's directory the working directory of its process."""
    first_checkpoint: str | None = None
    """Checkpoint from which a trial without a checkpoint starts."""

    @property
    def storage(self) -> StorageContext:
        """Experiment directory."""
        return StorageContext.from_run_config(self.run_config)


@dataclass(frozen=True, kw_only=True)
class FinishedSearch:
    """A search that ended."""

    trials: list[Trial]
    """All trials."""
    storage: StorageContext
    """Experiment directory."""
    end: events.EndSearch | None = None
    """End of the search; None if it was only loaded."""

    def analysis(self, config: TuneConfig) -> ExperimentAnalysis:
        """Return the analysis of the search with this configuration."""
        metric, mode = config.objective
        return ExperimentAnalysis(
            self.storage.experiment_fs_path,
            storage_filesystem=self.storage.storage_filesystem,
            trials=self.trials,
            default_metric=metric,
            default_mode=mode,
        )


def run_search(
    plan: SearchPlan, resume: ResumeConfig | None = None, further_samples: int = 0
) -> FinishedSearch:
    """Run a search to its end.

    Args:
        plan: Definition of the search.
        resume: Treatment of the existing trials; None to start a new search.
        further_samples: Number of samples to add to a resumed search.

    Raises:
        TuneError: The search cannot continue.
        ValueError, TypeError: The plan is invalid.
        RuntimeError: torchrun started the program several times.
    """
    check_torchrun("a search")
    engine = ensure_engine()
    if resume is None:
        run_config, _ = resolved(plan.run_config, "tune")
        plan = replace(plan, run_config=run_config)
    elif (existing := existing_run(plan.storage)) is not None:
        check_owner(existing, plan.run_config)
    kind = as_search_trainable(plan)
    check_picklable(kind, kind.__name__)
    # Before `search_algorithm` configures the searcher in it.
    plan_bytes = packed_plan(plan) if resume is None else b""
    search = search_algorithm(plan)
    storage = plan.storage
    storage.prepare()
    if plan.run_config.log_files is not None and not storage.local:
        logger.warning(
            "`log_to_file` writes to directories of this machine only, but %s is remote storage.",
            storage.experiment_fs_path,
        )
    store = SearchStore(storage.files)
    own_callbacks = callbacks_of(plan)
    callbacks = CallbackList(default_callbacks(own_callbacks))
    resources = api.cluster_resources()
    first: events.Event = events.SearchStarted(total_resources=resources, time_s=time.time())
    if resume is None:
        machine = _new_machine(plan, kind, search, storage)
        storage.files.write(PLAN_FILE, plan_bytes)
    else:
        machine, last = restore(store, search, callbacks)
        relocate(machine, storage)
        if further_samples:
            search.add_samples(further_samples)
        clean_up(machine, last)
        first = events.SearchResumed(
            total_resources=resources,
            finished=resume.finished,
            unfinished=resume.unfinished,
            errored=resume.errored,
            time_s=time.time(),
        )
    machine.set_capacity(1 if engine.is_local_mode else float("inf"))
    store.snapshot(snapshot(machine, search, callbacks))
    metric, mode = _objective(plan, search, machine.scheduler)
    record = RunDirectory(storage.files, staging=engine.session_directory)
    earlier = read_trial_lines(storage.files) if resume is not None else []
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
        settings=TrialSettings(
            experiment_name=storage.experiment_dir_name,
            trainable=api.put(serialize(WithNames(kind), f"the trainable `{kind.__name__}`")),
            resources=_resources(plan, kind),
            name_of=plan.tune_config.trial_name_creator,
            directory_of=plan.tune_config.trial_dirname_creator,
            reuse=plan.tune_config.reuse_actors,
            isolated=plan.tune_config.isolation == "worker" and not engine.is_local_mode,
            first_checkpoint=Checkpoint(plan.first_checkpoint)
            if plan.first_checkpoint is not None
            else None,
            in_trial_directory=plan.in_trial_directory and not engine.is_local_mode,
            # On another node, a file on this machine is out of reach.
            log_path_of=(lambda trial_id: record.log_path(f"{trial_id}.log"))
            if not engine.is_local_mode and (storage.local or not engine.outlives_driver)
            else None,
            log_files=plan.run_config.log_files,
            budget_s=plan.tune_config.budget_s,
        ),
        callbacks=callbacks,
        reporter=reporter,
        store=store,
        record=search_record,
        # Callbacks of the program may read or write files of trials.
        short_trials=ShortTrials(
            ResultsFile(storage.experiment_fs_path, resumed=resume is not None)
        )
        if storage.local and not own_callbacks and adds_default_loggers()
        else None,
    )
    try:
        with watched(
            storage, record, search_record, running, controller.actor_of, controller.interrupt
        ):
            end = controller.run(first)
            engine.show_output()
    except BaseException as error:
        _record_outcome(plan, storage, record, "errored", f"{type(error).__name__}: {error}")
        raise
    failed = [trial for trial in machine.trials if trial.status == Trial.ERROR]
    status, problem = "aborted" if end.interrupted else "finished", end.problem
    all_failed = len(failed) == len(machine.trials)
    if failed and not end.interrupted and (end.error is not None or all_failed):
        status, problem = "errored", "\n".join(filter(None, (problem, failed[0].error_text)))
    _record_outcome(plan, storage, record, status, problem, failed_trials=len(failed))
    if end.error is not None and _fail_fast(plan) == "raise":
        trial = next(trial for trial in machine.trials if trial.status == Trial.ERROR)
        raise unpack_error(end.error) from WorkerTraceback(
            f"in the trial {trial}\n{trial.error_text}"
        )
    if end.problem is not None:
        logger.warning(
            "The search ended early: %s. Continue it with `Tuner.restore(%r, …)`.",
            end.problem,
            storage.experiment_fs_path,
        )
    return FinishedSearch(trials=list(machine.trials), storage=storage, end=end)


def as_search_trainable(plan: SearchPlan) -> type[Trainable]:
    """Return the trainable class of a search."""
    if isinstance(plan.trainable, DataParallelTrainer):
        check_keys(plan.param_space)
        return trainer_trainable(plan.trainable)
    return as_trainable_class(plan.trainable)


def callbacks_of(plan: SearchPlan) -> list[Callback]:
    """Return the callbacks of the search: its own, and those of a trainer that are also for
    searches. Trials of the trainer leave the latter out, so that a tracker gets one run per trial.
    A callback of the search replaces the trainer's of the same class.
    """
    # The configuration may also have callbacks for a trainer.
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
    """Return the configured searcher.

    Raises:
        ValueError: It does not support the search space.
    """
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
    search.configure(metric, mode, dict(plan.param_space), plan.tune_config.num_samples)
    return search


def as_param_space(given: Any) -> Any:
    """Return the dictionary of a configuration object that has `to_dict`, such as that of an
    algorithm of reinforcement learning; anything else as it is.
    """
    to_dict = getattr(given, "to_dict", None)
    return to_dict() if callable(to_dict) else given


def as_run_config(given: object) -> RunConfig:
    """Return a run configuration for a search; converts one for a trainer."""
    if given is None:
        return RunConfig()
    if isinstance(given, RunConfig):
        return given
    if not isinstance(given, TrainRunConfig):
        raise ValueError(
            f"`run_config` is a {type(given).__name__} ({given!r:.80}): pass a RunConfig or None."
        )
    return extended(RunConfig, given)


def packed_plan(plan: SearchPlan) -> bytes:
    """Serialize a plan for `read_plan`, with the trainable's name instead of the trainable."""
    run_config = dataclasses.replace(plan.run_config, progress_reporter=None)
    name = as_search_trainable(plan).__name__
    for callbacks in (run_config.callbacks, None):
        without = dataclasses.replace(run_config, callbacks=callbacks)
        saved = dataclasses.replace(plan, trainable=name, run_config=without)
        try:
            return bytes(cloudpickle.dumps(saved))
        except Exception as error:  # for example a tracker with a connection: try without callbacks
            problem = error
    raise TypeError(
        "the search cannot be saved, because its search space or its searcher cannot be pickled "
        f"({problem}): define functions and classes at the top level of a module, and pass large "
        "objects with `tune.with_parameters`."
    ) from problem


def read_plan(path: str, filesystem: pyarrow_fs.FileSystem | None) -> SearchPlan:
    """Return the plan of the search in a directory, which may have been moved. `trainable` is the
    name.

    Raises:
        ValueError: The directory holds no search.
    """
    storage = storage_at(path, filesystem)
    data = storage.files.read(PLAN_FILE)
    if data is None:
        raise ValueError(
            f"{path!r} has no {PLAN_FILE}, so there is no search to restore: pass the experiment "
            "directory itself, `storage_path`/`name` of its RunConfig or `results.experiment_path`."
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
            "%s already holds a search. The new one replaces it; to continue the old one, use "
            "`Tuner.restore`.",
            storage.experiment_fs_path,
        )
    config = plan.tune_config
    scheduler = config.scheduler if config.scheduler is not None else FIFOScheduler()
    if isinstance(scheduler, str):
        scheduler = create_scheduler(scheduler)
    if not isinstance(scheduler, TrialScheduler):
        raise ValueError(
            f"`scheduler` is a {type(scheduler).__name__} ({scheduler!r:.80}): pass a "
            "TrialScheduler, its name, or None."
        )
    if not scheduler.set_search_properties(*config.objective):
        raise ValueError(
            f"the search has `metric={config.metric!r}` and `mode={config.mode!r}`, but the "
            f"scheduler {type(scheduler).__name__} has its own metric {scheduler.metric!r}: set "
            "them in one place."
        )
    is_function = issubclass(kind, FunctionTrainable)
    failure = plan.run_config.failure_config
    max_failures = failure.max_failures if failure is not None else 0
    rules = SearchRules(
        trainable_name=kind.__name__,
        is_function=is_function,
        storage=storage,
        trial_prefix=secrets.token_hex(3)[:5],
        metric=config.objective[0],
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
    config = extended(CheckpointConfig, given) if given is not None else CheckpointConfig()
    if is_function:
        if config.checkpoint_frequency or config.checkpoint_at_end:
            name = "checkpoint_frequency" if config.checkpoint_frequency else "checkpoint_at_end"
            raise ValueError(
                f"`{name}={getattr(config, name)!r}` has no effect on the function "
                f"`{kind.__name__}`: remove it, and report checkpoints with "
                "`tune.report(metrics, checkpoint=…)`."
            )
        return dataclasses.replace(config, checkpoint_at_end=False)
    can_save = kind.save_checkpoint is not Trainable.save_checkpoint
    at_end = can_save if config.checkpoint_at_end is None else config.checkpoint_at_end
    return dataclasses.replace(config, checkpoint_at_end=at_end)


def _objective(
    plan: SearchPlan, search: SearchAlgorithm, scheduler: TrialScheduler
) -> tuple[str | None, str | None]:
    """Return metric and mode of the search, the searcher, or the scheduler."""
    for metric, mode in (
        plan.tune_config.objective,
        (search.metric, search.mode),
        (scheduler.metric, getattr(scheduler, "_mode", None)),
    ):
        if isinstance(metric, str) and isinstance(mode, str):
            return metric, mode
    return None, None


def _resources(
    plan: SearchPlan, kind: type[Trainable]
) -> Callable[[Config], PlacementGroupFactory]:
    default = resource_dict_to_pg_factory(None)
    known: dict[PlacementGroupFactory, PlacementGroupFactory] = {}

    def resources(config: Config) -> PlacementGroupFactory:
        asked = requested_resources(plan.resources_per_trial, config)
        own: Any = kind.default_resource_request(config)  # of the user: a dict is accepted
        if isinstance(own, Mapping):
            own = resource_dict_to_pg_factory(own)
        found = asked or own or default
        return known.setdefault(found, found)  # one object for all trials with the same resources

    return resources


def _record_outcome(
    plan: SearchPlan,
    storage: StorageContext,
    record: RunDirectory,
    status: str,
    problem: str | None,
    **fields: object,
) -> None:
    """Record the end of the search and send alerts; a failure to write is only logged."""
    try:
        record.write_outcome(status, problem, **fields)
        record.close()
    except OSError as error:
        logger.warning("The end of the search cannot be recorded: %s", error)
    name, path = storage.experiment_dir_name, storage.experiment_fs_path
    for alerts in alerts_of(plan.run_config.callbacks):
        alerts.send(status, run=name, kind="tune", path=path, error=problem)


def _description(
    plan: SearchPlan,
    kind: type[Trainable],
    machine: TuneMachine,
    search: SearchAlgorithm,
    objective: tuple[str | None, str | None],
) -> Mapping[str, object]:
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


def _fail_fast(plan: SearchPlan) -> bool | str | None:
    failure = plan.run_config.failure_config
    return failure.fail_fast if isinstance(failure, FailureConfig) else False
