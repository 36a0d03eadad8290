"""What a program tells a trainer before it starts: scaling, storage, retries, retention, logging,
validation.

Covered: the configuration classes that `syncline.train` exports, each checked as it is made, so
that a mistake is named at the line that made it. They are frozen: derive a changed one with
`dataclasses.replace`. Not covered: backends (`backend.py`, `torch_backend.py`).
"""

from __future__ import annotations

import importlib
import math
import os
import secrets
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args

from pyarrow import fs as pyarrow_fs

from syncline import settings
from syncline.train.callbacks import UserCallback

if TYPE_CHECKING:  # programs without datasets need not wait for the import of them
    from syncline.data import DataIterator, Dataset, ExecutionOptions

PlacementStrategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
ValidationFn = Callable[..., dict[str, Any]]
"""`fn(checkpoint, **fn_kwargs) -> metrics`, run as a task beside training."""

# Tiny, so that it never competes with real amounts, yet present, so that only machines with that
# accelerator can serve it.
ACCELERATOR_TYPE_AMOUNT = 0.001


@dataclass(frozen=True)
class ScalingConfig:
    """How many workers a trainer starts, and what each of them holds."""

    trainer_resources: dict[str, float] | None = None
    """Deprecated and ignored: the controller runs in the calling program."""

    num_workers: int | tuple[int, int] = 1
    """Number of workers; `(min, max)` for an elastic group; 0 runs the train function in this
    process.
    """

    use_gpu: bool = False
    """Give every worker a GPU."""

    resources_per_worker: dict[str, float] | None = None
    """What each worker holds; None means one CPU, or one GPU with `use_gpu`."""

    placement_strategy: PlacementStrategy = "PACK"
    """How the workers are spread over machines."""

    accelerator_type: str | None = None
    """Only use machines that have this accelerator, such as "H100"."""

    label_selector: dict[str, str] | list[dict[str, str]] | None = None
    """Labels of the machines that may be used: one for all workers, or a list with one for each."""

    use_tpu: bool = False
    """Give every worker a TPU."""

    topology: str | None = None
    """Layout of the TPU slice, such as "4x4"."""

    elastic_resize_monitor_interval_s: float = 60.0
    """How often a healthy elastic group looks for more resources, in seconds."""

    def __post_init__(self) -> None:
        if self.trainer_resources is not None:
            _warn_deprecated(
                "ScalingConfig(trainer_resources=…) is deprecated and ignored: the controller runs in the calling program."
            )
        _check_num_workers(self.num_workers)
        _check_resources(self.resources_per_worker)
        self._check_accelerators()
        if self.placement_strategy not in get_args(PlacementStrategy):
            raise ValueError(
                f"`placement_strategy={self.placement_strategy!r}` is not one of {', '.join(get_args(PlacementStrategy))}."
            )
        self._check_label_selector()
        interval = self.elastic_resize_monitor_interval_s
        if not _is_number(interval) or not interval > 0:
            raise ValueError(
                f"`elastic_resize_monitor_interval_s={interval!r}` must be a number of seconds above 0."
            )

    def _check_accelerators(self) -> None:
        for name in ("use_gpu", "use_tpu"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"`{name}={getattr(self, name)!r}` must be True or False.")
        if self.use_gpu and self.use_tpu:
            raise ValueError(
                "`use_gpu=True` and `use_tpu=True` exclude each other: a worker trains on one kind of accelerator."
            )
        given = self.resources_per_worker or {}
        for name, flag, used in (
            ("GPU", "use_gpu", self.use_gpu),
            ("TPU", "use_tpu", self.use_tpu),
        ):
            if used and name in given and given[name] == 0:
                raise ValueError(
                    f"`{flag}=True` with `resources_per_worker={given!r}` gives the workers no {name}: "
                    f'set "{name}" above 0, leave it out (it is 1 then), or set `{flag}=False`.'
                )
            if not used and given.get(name, 0) > 0:
                raise ValueError(
                    f"`resources_per_worker={given!r}` asks for {name}s but `{flag}` is False, so the workers would not use them: "
                    f"set `{flag}=True`, or leave {name} out."
                )
        if self.accelerator_type is not None and not isinstance(self.accelerator_type, str):
            raise ValueError(f"`accelerator_type={self.accelerator_type!r}` must be a string.")

    def _check_label_selector(self) -> None:
        selector = self.label_selector
        if selector is None or isinstance(selector, dict):
            return
        if not isinstance(selector, list) or not all(isinstance(item, dict) for item in selector):
            raise ValueError(
                f"`label_selector={selector!r}` must be a dictionary, or a list with one dictionary per worker."
            )
        if len(selector) != self.max_workers:
            raise ValueError(
                f"`label_selector` has {len(selector)} entries but there are up to {self.max_workers} workers: "
                "give one for each, or a single dictionary for all."
            )

    @property
    def min_workers(self) -> int:
        """The fewest workers with which training starts."""
        return self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def max_workers(self) -> int:
        """The most workers that training uses."""
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def elasticity_enabled(self) -> bool:
        """Whether the number of workers may change between restarts."""
        return isinstance(self.num_workers, tuple)

    @property
    def total_resources(self) -> dict[str, float]:
        """What all workers hold together when there are as many as allowed."""
        return {
            name: amount * self.max_workers
            for name, amount in self.bundle().items()
            if self.max_workers
        }

    @property
    def num_cpus_per_worker(self) -> float:
        """CPUs of each worker."""
        return self.bundle().get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """GPUs of each worker, a part of one if below 1."""
        return self.bundle().get("GPU", 0)

    @property
    def num_tpus_per_worker(self) -> float:
        """TPUs of each worker."""
        return self.bundle().get("TPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What each worker holds besides CPUs, GPUs and TPUs."""
        return {
            name: amount
            for name, amount in self.bundle().items()
            if name not in ("CPU", "GPU", "TPU")
        }

    def bundle(self) -> dict[str, float]:
        """What one worker reserves, by resource name: zero amounts left out, the accelerator type
        added.
        """
        accelerator = "GPU" if self.use_gpu else "TPU" if self.use_tpu else None
        if self.resources_per_worker is None:
            bundle: dict[str, float] = {accelerator or "CPU": 1}
        else:
            bundle = {name: amount for name, amount in self.resources_per_worker.items() if amount}
            if accelerator:
                bundle.setdefault(accelerator, 1)
        if self.accelerator_type:
            bundle.setdefault(f"accelerator_type:{self.accelerator_type}", ACCELERATOR_TYPE_AMOUNT)
        return bundle


@dataclass(frozen=True)
class FailureConfig:
    """How often a run starts again after each kind of failure; -1 means without a limit."""

    max_failures: int = 0
    """Failed attempts that workers may cause."""

    fail_fast: bool | str | None = None
    """Deprecated and ignored."""

    controller_failure_limit: int = -1
    """Failed attempts that the controller may cause."""

    max_preemption_failures: int = -1
    """Attempts that may end because machines are taken away."""

    relax_collectives_on_preemption: bool = False
    """Let the ranks that remain go on through barriers once machines are being taken away."""

    preemption_grace_s: float = 0.0
    """How long after the deadline of a preemption workers may still run, in seconds."""

    def __post_init__(self) -> None:
        if self.fail_fast is not None:
            _warn_deprecated(
                "FailureConfig(fail_fast=…) is deprecated and ignored: `max_failures=0` fails at the first worker error."
            )
        for name in ("max_failures", "controller_failure_limit", "max_preemption_failures"):
            value = getattr(self, name)
            if not _is_int(value) or value < -1:
                raise ValueError(
                    f"`{name}={value!r}` must be a whole number from 0 up, or -1 for no limit."
                )
        if not isinstance(self.relax_collectives_on_preemption, bool):
            raise ValueError(
                f"`relax_collectives_on_preemption={self.relax_collectives_on_preemption!r}` must be True or False."
            )
        if not _is_number(self.preemption_grace_s) or not self.preemption_grace_s >= 0:
            raise ValueError(
                f"`preemption_grace_s={self.preemption_grace_s!r}` must be a number of seconds from 0 up."
            )


@dataclass(frozen=True)
class CheckpointConfig:
    """Which checkpoints a run keeps: the best `num_to_keep`, and in any case the latest."""

    num_to_keep: int | None = None
    """How many; None keeps them all."""

    checkpoint_score_attribute: str | None = None
    """The metric that ranks them (`a/b` for a nested one); None ranks by time."""

    checkpoint_score_order: Literal["max", "min"] = "max"
    """Whether a high or a low score is good."""

    def __post_init__(self) -> None:
        if self.num_to_keep is not None and (
            not _is_int(self.num_to_keep) or self.num_to_keep <= 0
        ):
            raise ValueError(
                f"`num_to_keep={self.num_to_keep!r}` must be a whole number above 0, or None to keep every checkpoint."
            )
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(
                f'`checkpoint_score_order={self.checkpoint_score_order!r}` must be "max" or "min".'
            )
        if self.checkpoint_score_attribute is not None and not isinstance(
            self.checkpoint_score_attribute, str
        ):
            raise ValueError(
                f"`checkpoint_score_attribute={self.checkpoint_score_attribute!r}` must be the name of a metric."
            )


@dataclass(frozen=True)
class LoggingConfig:
    """What the run logs."""

    log_level: str = "INFO"
    """Lowest level that is logged, in any case; kept in upper case."""

    def __post_init__(self) -> None:
        level = self.log_level.upper() if isinstance(self.log_level, str) else self.log_level
        if level not in get_args(LogLevel):
            raise ValueError(
                f"`log_level={self.log_level!r}` is not one of {', '.join(get_args(LogLevel))}."
            )
        object.__setattr__(self, "log_level", level)


@dataclass(frozen=True)
class SyncConfig:
    """Deprecated and ignored: checkpoints go to `storage_path` when they are reported, and nothing
    else is synchronised.
    """

    sync_period: int = 300
    """Ignored."""

    sync_timeout: int = 1800
    """Ignored."""

    sync_artifacts: bool = False
    """Ignored."""

    sync_artifacts_on_checkpoint: bool = True
    """Ignored."""

    def __post_init__(self) -> None:
        _warn_deprecated(
            "SyncConfig is deprecated and ignored: checkpoints go to `storage_path` when they are reported."
        )


@dataclass(frozen=True)
class DataConfig:
    """How a trainer's datasets are shared out among the workers."""

    datasets_to_split: Literal["all"] | list[str] = "all"
    """Names of the datasets of which every worker gets a part; it gets the others whole."""

    execution_options: Any = None
    """Options for reading them: one for all, or a dictionary by name."""

    enable_shard_locality: bool = True
    """Prefer data that is on the worker's machine."""

    resume: bool = field(default=True, kw_only=True)
    """After a restart, and where a run of the same name goes on, the first pass over each dataset
    and prepared data loader continues at the very sample where the latest checkpoint was taken,
    with the random states of that moment. False: it begins anew.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.resume, bool):
            raise ValueError(f"`resume={self.resume!r}` must be True or False.")
        split = self.datasets_to_split
        if split != "all" and not (
            isinstance(split, list) and all(isinstance(name, str) for name in split)
        ):
            raise ValueError(
                f'`datasets_to_split={split!r}` must be "all" or a list of names of datasets.'
            )

    def configure(
        self,
        datasets: Mapping[str, Dataset],
        world_size: int,
        worker_handles: Sequence[Any] | None = None,
        worker_node_ids: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, DataIterator]]:
        """What each rank gets of each dataset, by rank; programs may override it. Called for every
        worker group that is started.

        Args:
            datasets: The trainer's datasets by name.
            world_size: Number of ranks.
            worker_handles: Nothing; kept for programs that take it.
            worker_node_ids: The node of each rank.
        """
        hints = (
            list(worker_node_ids)
            if worker_node_ids is not None and self.enable_shard_locality
            else None
        )
        shares: list[dict[str, DataIterator]] = [{} for _ in range(world_size)]
        for name, given in datasets.items():
            dataset = self._with_options(name, given)
            is_split = self.datasets_to_split == "all" or name in self.datasets_to_split
            if is_split and world_size > 1:
                iterators = dataset.streaming_split(world_size, equal=True, locality_hints=hints)
            else:
                iterators = [dataset.iterator() for _ in range(world_size)]
            for share, iterator in zip(shares, iterators, strict=True):
                share[name] = iterator
        return shares

    @staticmethod
    def default_ingest_options() -> ExecutionOptions:
        """The options with which datasets are read where `execution_options` names none."""
        context = importlib.import_module("syncline.data.context")
        options: ExecutionOptions = context.DataContext.get_current().copy().execution_options
        return options

    def _with_options(self, name: str, dataset: Dataset) -> Dataset:
        options = self.execution_options
        if isinstance(options, Mapping):
            options = options.get(name)
        return dataset if options is None else dataset._with_options(options)


@dataclass(frozen=True)
class RunConfig:
    """Where a run keeps its record, and how it treats failures, checkpoints and logs."""

    name: str | None = None
    """Directory of the run under `storage_path`; made from the time if not given. A name that
    exists continues that run.
    """

    storage_path: str | os.PathLike[str] | None = None
    """Directory or URI under which runs lie; SYNCLINE_STORAGE_PATH, or else `~/syncline_results`,
    if not given. Made absolute.
    """

    storage_filesystem: pyarrow_fs.FileSystem | None = None
    """The filesystem that `storage_path` is a path on; found from `storage_path` if not given."""

    failure_config: FailureConfig | None = None
    """How often to start again; no retries if not given."""

    checkpoint_config: CheckpointConfig | None = None
    """Which checkpoints to keep; all if not given."""

    callbacks: Sequence[UserCallback] | None = None
    """Who is told of reports and failures."""

    worker_runtime_env: dict[str, Any] | None = None
    """Environment of the workers: `env_vars`, `working_dir`, `py_modules`."""

    logging_config: LoggingConfig | None = None
    """What is logged."""

    sync_config: SyncConfig | None = None
    """Deprecated and ignored."""

    verbose: int | None = None
    """0: `fit()` shows nothing but warnings and errors, as with a level above INFO. 1, 2, 3 and
    None: a panel in terminals and notebooks, elsewhere a few lines.
    """

    stop: Any = None
    """Deprecated and ignored by trainers: stop in the train function."""

    progress_reporter: Any = None
    """Deprecated and ignored."""

    log_to_file: bool | str | tuple[str, str] | None = None
    """Deprecated and ignored: worker output is always kept in the run directory."""

    def __post_init__(self) -> None:
        for name in ("sync_config", "stop", "progress_reporter", "log_to_file"):
            if getattr(self, name) is not None:
                _warn_deprecated(f"RunConfig({name}=…) is deprecated and ignored by trainers.")
        for name, kind in (
            ("storage_filesystem", pyarrow_fs.FileSystem),
            ("failure_config", FailureConfig),
            ("checkpoint_config", CheckpointConfig),
            ("worker_runtime_env", dict),
            ("logging_config", LoggingConfig),
        ):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise ValueError(
                    f"`{name}={value!r}` is a {type(value).__name__}, but must be a {kind.__name__} or None."
                )
        if self.verbose not in (None, 0, 1, 2, 3):
            raise ValueError(f"`verbose={self.verbose!r}` must be 0, 1, 2 or 3.")
        self._check_callbacks()
        object.__setattr__(self, "failure_config", self.failure_config or FailureConfig())
        object.__setattr__(self, "checkpoint_config", self.checkpoint_config or CheckpointConfig())
        object.__setattr__(self, "logging_config", self.logging_config or LoggingConfig())
        object.__setattr__(
            self, "storage_path", _absolute_storage_path(self.storage_path, self.storage_filesystem)
        )
        name_given = (
            generate_run_name(time.time(), secrets.token_hex(3)) if self.name is None else self.name
        )
        _check_run_name(name_given)
        object.__setattr__(self, "name", name_given)

    def _check_callbacks(self) -> None:
        if self.callbacks is None:
            return
        if not isinstance(self.callbacks, (list, tuple)):
            raise ValueError(
                f"`callbacks={self.callbacks!r}` must be a list of UserCallback objects."
            )
        for callback in self.callbacks:
            if not isinstance(callback, UserCallback):
                hint = ": give an instance, not the class" if isinstance(callback, type) else ""
                raise ValueError(
                    f"`callbacks` contains {callback!r}, which is no UserCallback{hint}."
                )


@dataclass(frozen=True)
class ValidationTaskConfig:
    """How one validation runs."""

    fn_kwargs: dict[str, Any] | None = None
    """Further arguments of the validation function."""

    timeout_s: float | None = None
    """How long it may run, in seconds; None sets no limit."""

    def __post_init__(self) -> None:
        if self.fn_kwargs is not None and not isinstance(self.fn_kwargs, dict):
            raise ValueError(f"`fn_kwargs={self.fn_kwargs!r}` must be a dictionary or None.")
        if self.timeout_s is not None and (
            not _is_number(self.timeout_s) or not self.timeout_s > 0
        ):
            raise ValueError(
                f"`timeout_s={self.timeout_s!r}` must be a number of seconds above 0, or None for no limit."
            )


@dataclass(frozen=True)
class ValidationConfig:
    """How checkpoints that are reported with `validation=…` are validated: one at a time, beside
    training.
    """

    fn: ValidationFn
    """`fn(checkpoint, **fn_kwargs) -> dict` of metrics, merged into those of the report."""

    task_config: ValidationTaskConfig | None = None
    """Defaults for every validation."""

    ray_remote_kwargs: dict[str, Any] | None = None
    """Options of the task that runs it, such as `num_cpus`, `num_gpus`, `resources`."""

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise ValueError(
                f"`fn={self.fn!r}` must be a function that takes a checkpoint and returns a dictionary of metrics."
            )
        if self.task_config is not None and not isinstance(self.task_config, ValidationTaskConfig):
            raise ValueError(
                f"`task_config={self.task_config!r}` must be a ValidationTaskConfig or None."
            )
        if self.ray_remote_kwargs is not None and not isinstance(self.ray_remote_kwargs, dict):
            raise ValueError(
                f"`ray_remote_kwargs={self.ray_remote_kwargs!r}` must be a dictionary or None."
            )
        object.__setattr__(self, "task_config", self.task_config or ValidationTaskConfig())


def generate_run_name(now_s: float, suffix: str) -> str:
    """Name of a run that was given none: local time to the second, and a suffix for runs that start
    in the same second.
    """
    return f"train_run-{time.strftime('%Y-%m-%d_%H-%M-%S', time.localtime(now_s))}-{suffix}"


def _absolute_storage_path(
    path: str | os.PathLike[str] | None, filesystem: pyarrow_fs.FileSystem | None
) -> str:
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"`storage_path={path!r}` must be a directory or a URI.")
    text = settings.storage_path() if path is None else os.fspath(path)
    if not text:
        raise ValueError(
            "`storage_path=''` names no directory: give one, or None for ~/syncline_results."
        )
    if "://" in text or (
        filesystem is not None and not isinstance(filesystem, pyarrow_fs.LocalFileSystem)
    ):
        return text
    return settings.local_path(text)


def _check_run_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"`name={name!r}` must be a non-empty string: it names the run's directory."
        )
    if name.startswith(("/", ".")) or ".." in name.split("/") or "\0" in name:
        raise ValueError(
            f"`name={name!r}` must lie inside `storage_path`: it may not start with '/' or '.', nor contain '..'."
        )


def _check_num_workers(value: object) -> None:
    if _is_int(value):
        if value < 0:
            raise ValueError(
                f"`num_workers={value}` is negative: give 1 or more, or 0 to run the train function in this process."
            )
        return
    if not isinstance(value, tuple) or len(value) != 2 or not all(_is_int(part) for part in value):
        raise ValueError(
            f"`num_workers={value!r}` must be a whole number, or a tuple (min, max) for an elastic group."
        )
    low, high = value
    if low < 1:
        raise ValueError(
            f"`num_workers={value!r}`: an elastic group needs at least 1 worker, so the minimum must be 1 or more."
        )
    if low > high:
        raise ValueError(f"`num_workers={value!r}`: the minimum {low} is above the maximum {high}.")


def _check_resources(resources: object) -> None:
    if resources is None:
        return
    if not isinstance(resources, dict):
        raise ValueError(
            f"`resources_per_worker={resources!r}` must be a dictionary of amounts by resource name, such as {{'CPU': 2}}."
        )
    for name, amount in resources.items():
        if not isinstance(name, str) or not _is_number(amount) or not (0 <= amount < math.inf):
            raise ValueError(
                f"`resources_per_worker={resources!r}`: {name!r} must be a name with an amount from 0 up, not {amount!r}."
            )


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _warn_deprecated(message: str) -> None:
    # Frames between here and the user's line: this helper, __post_init__, the generated __init__.
    warnings.warn(message, DeprecationWarning, stacklevel=4)
