"""Configuration of a trainer: scaling, failures, checkpoints, logging, datasets, validation.

Each class checks its fields when it is created. Instances are frozen: use `dataclasses.replace` to
derive a changed one. Not covered: `RunConfig` (`run_config.py`), backends (`backend.py`,
`torch_backend.py`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args

from syncline.suggestions import check_resource_names, suggest_arguments

if TYPE_CHECKING:  # syncline.data takes half a second to load
    from syncline.data import DataIterator, Dataset, ExecutionOptions

PlacementStrategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
ValidationFn = Callable[..., dict[str, Any]]
"""`fn(checkpoint, **fn_kwargs) -> metrics`; runs as a task alongside training."""

ACCELERATOR_TYPE_AMOUNT = 0.001
"""Reserved amount of an accelerator type: enough to require a machine that has it."""


@suggest_arguments
@dataclass(frozen=True)
class ScalingConfig:
    """Number of workers and resources of each."""

    trainer_resources: dict[str, float] | None = None
    """Deprecated and ignored: the controller runs in the calling program."""

    num_workers: int | tuple[int, int] = 1
    """Number of workers; `(min, max)` for an elastic group; 0 for local mode in this process."""

    use_gpu: bool = False
    """Assign a GPU to every worker."""

    resources_per_worker: dict[str, float] | None = None
    """Resources of each worker; None for one CPU, or one GPU with `use_gpu`."""

    placement_strategy: PlacementStrategy = "PACK"
    """Distribution of the workers over nodes."""

    accelerator_type: str | None = None
    """Required accelerator of the nodes, such as "H100"."""

    label_selector: dict[str, str] | list[dict[str, str]] | None = None
    """Required labels of the nodes, for all workers or as a list with one item per worker."""

    use_tpu: bool = False
    """Assign a TPU to every worker."""

    topology: str | None = None
    """Layout of the TPU slice, such as "4x4"."""

    elastic_resize_monitor_interval_s: float = 60.0
    """Seconds between two checks of a healthy elastic group for more resources."""

    def __post_init__(self) -> None:
        if self.trainer_resources is not None:
            warn_deprecated(
                "ScalingConfig(trainer_resources=…) is deprecated and ignored: the controller runs "
                "in the calling program."
            )
        _check_num_workers(self.num_workers)
        _check_resources(self.resources_per_worker)
        check_resource_names("resources_per_worker", self.resources_per_worker or ())
        self._check_accelerators()
        if self.placement_strategy not in get_args(PlacementStrategy):
            raise ValueError(
                f"`placement_strategy={self.placement_strategy!r}` is not one of "
                f"{', '.join(get_args(PlacementStrategy))}."
            )
        self._check_label_selector()
        interval = self.elastic_resize_monitor_interval_s
        if not _is_number(interval) or not interval > 0:
            raise ValueError(
                f"`elastic_resize_monitor_interval_s={interval!r}` must be a positive number."
            )

    def _check_accelerators(self) -> None:
        for name in ("use_gpu", "use_tpu"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"`{name}={getattr(self, name)!r}` must be True or False.")
        if self.use_gpu and self.use_tpu:
            raise ValueError(
                "`use_gpu=True` and `use_tpu=True` exclude each other: set one of them to False."
            )
        given = self.resources_per_worker or {}
        for name, flag, used in (
            ("GPU", "use_gpu", self.use_gpu),
            ("TPU", "use_tpu", self.use_tpu),
        ):
            if used and name in given and given[name] == 0:
                raise ValueError(
                    f"`{flag}=True` with `resources_per_worker={given!r}` leaves no {name}: "
                    f'set "{name}" above 0, omit it (the default is 1), or set `{flag}=False`.'
                )
            if not used and given.get(name, 0) > 0:
                raise ValueError(
                    f"`resources_per_worker={given!r}` requests {name}s but `{flag}` is False: "
                    f"set `{flag}=True`, or omit {name}."
                )
        if self.accelerator_type is not None and not isinstance(self.accelerator_type, str):
            raise ValueError(f"`accelerator_type={self.accelerator_type!r}` must be a string.")

    def _check_label_selector(self) -> None:
        selector = self.label_selector
        if selector is None or isinstance(selector, dict):
            return
        if not isinstance(selector, list) or not all(isinstance(item, dict) for item in selector):
            raise ValueError(
                f"`label_selector={selector!r}` must be a dictionary or a list of one dictionary "
                "per worker."
            )
        if len(selector) != self.max_workers:
            raise ValueError(
                f"`label_selector` has {len(selector)} items for up to {self.max_workers} workers: "
                "pass one for each, or a single dictionary for all."
            )

    @property
    def min_workers(self) -> int:
        """Smallest number of workers to start with."""
        return self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def max_workers(self) -> int:
        """Largest number of workers."""
        return self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers

    @property
    def elasticity_enabled(self) -> bool:
        """True if the number of workers may change between attempts."""
        return isinstance(self.num_workers, tuple)

    @property
    def total_resources(self) -> dict[str, float]:
        """Resources of all workers at the largest number of workers."""
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
        """GPUs of each worker; below 1, a share of one."""
        return self.bundle().get("GPU", 0)

    @property
    def num_tpus_per_worker(self) -> float:
        """TPUs of each worker."""
        return self.bundle().get("TPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """Resources of each worker other than CPUs, GPUs and TPUs."""
        return {
            name: amount
            for name, amount in self.bundle().items()
            if name not in ("CPU", "GPU", "TPU")
        }

    def bundle(self) -> dict[str, float]:
        """Return the resources of one worker by name, without zeros, with the accelerator type."""
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


@suggest_arguments
@dataclass(frozen=True)
class FailureConfig:
    """Numbers of retries after each kind of failure; -1 for no limit."""

    max_failures: int = 0
    """Retries after failures of workers."""

    fail_fast: bool | str | None = None
    """Deprecated and ignored."""

    controller_failure_limit: int = -1
    """Retries after failures of the controller."""

    max_preemption_failures: int = -1
    """Retries after preemptions."""

    relax_collectives_on_preemption: bool = False
    """In a preemption, do not wait in barriers for ranks that have ended."""

    preemption_grace_s: float = 0.0
    """Seconds that workers may run after the deadline of a preemption."""

    def __post_init__(self) -> None:
        if self.fail_fast is not None:
            warn_deprecated(
                "FailureConfig(fail_fast=…) is deprecated and ignored: `max_failures=0` fails at "
                "the first worker error."
            )
        for name in ("max_failures", "controller_failure_limit", "max_preemption_failures"):
            value = getattr(self, name)
            if not _is_int(value) or value < -1:
                raise ValueError(f"`{name}={value!r}` must be an integer >= 0, or -1 for no limit.")
        if not isinstance(self.relax_collectives_on_preemption, bool):
            raise ValueError(
                "`relax_collectives_on_preemption="
                f"{self.relax_collectives_on_preemption!r}` must be True or False."
            )
        if not _is_number(self.preemption_grace_s) or not self.preemption_grace_s >= 0:
            raise ValueError(
                f"`preemption_grace_s={self.preemption_grace_s!r}` must be a number >= 0."
            )


@suggest_arguments
@dataclass(frozen=True)
class CheckpointConfig:
    """Retention of checkpoints: the best `num_to_keep`, and always the latest."""

    num_to_keep: int | None = None
    """Number of checkpoints to keep; None for all."""

    checkpoint_score_attribute: str | None = None
    """Metric that ranks checkpoints (`a/b` for a nested one); None to rank by time.

    The first checkpoint must have it. A later one without it, or with None or NaN, is the worst.
    """

    checkpoint_score_order: Literal["max", "min"] = "max"
    """ "max" if a high score is better, "min" if a low score is."""

    checkpoint_frequency: int = 0
    """Ignored by trainers; iterations between two checkpoints of a class trainable in a search."""

    checkpoint_at_end: bool | None = None
    """Ignored by trainers; save a class trainable at its end in a search."""

    def __post_init__(self) -> None:
        if type(self) is CheckpointConfig:
            for name in ("checkpoint_frequency", "checkpoint_at_end"):
                if getattr(self, name):
                    warn_deprecated(
                        f"CheckpointConfig({name}=…) is deprecated and ignored by trainers: the "
                        "training function decides when it reports a checkpoint."
                    )
        if self.num_to_keep is not None and (
            not _is_int(self.num_to_keep) or self.num_to_keep <= 0
        ):
            raise ValueError(
                f"`num_to_keep={self.num_to_keep!r}` must be an integer > 0, or None to keep every "
                "checkpoint."
            )
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(
                f'`checkpoint_score_order={self.checkpoint_score_order!r}` must be "max" or "min".'
            )
        if self.checkpoint_score_attribute is not None and not isinstance(
            self.checkpoint_score_attribute, str
        ):
            raise ValueError(
                f"`checkpoint_score_attribute={self.checkpoint_score_attribute!r}` must be the "
                "name of a metric."
            )


@suggest_arguments
@dataclass(frozen=True)
class LoggingConfig:
    """Logging of a run."""

    log_level: str = "INFO"
    """Lowest level that is logged, in upper or lower case."""

    def __post_init__(self) -> None:
        level = self.log_level.upper() if isinstance(self.log_level, str) else self.log_level
        if level not in get_args(LogLevel):
            raise ValueError(
                f"`log_level={self.log_level!r}` is not one of {', '.join(get_args(LogLevel))}."
            )
        object.__setattr__(self, "log_level", level)


@suggest_arguments
@dataclass(frozen=True)
class SyncConfig:
    """Deprecated and ignored: `report` copies checkpoints to `storage_path`."""

    sync_period: int = 300
    """Ignored."""

    sync_timeout: int = 1800
    """Ignored."""

    sync_artifacts: bool = False
    """Ignored."""

    sync_artifacts_on_checkpoint: bool = True
    """Ignored."""

    def __post_init__(self) -> None:
        warn_deprecated(
            "SyncConfig is deprecated and ignored: `report` copies checkpoints to `storage_path`."
        )


@suggest_arguments
@dataclass(frozen=True)
class DataConfig:
    """Distribution of a trainer's datasets over the workers."""

    datasets_to_split: Literal["all"] | list[str] = "all"
    """Names of the datasets to split into one shard per worker. Workers read the others whole."""

    execution_options: ExecutionOptions | Mapping[str, ExecutionOptions] | None = None
    """Options for reading them, for all datasets or by name."""

    enable_shard_locality: bool = True
    """Prefer data on the worker's node."""

    resume: bool = field(default=True, kw_only=True)
    """Resume the first pass over each dataset and prepared data loader at the exact sample of the
    latest checkpoint, with its random states, after restarts and reruns. False starts it anew.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.resume, bool):
            raise ValueError(f"`resume={self.resume!r}` must be True or False.")
        split = self.datasets_to_split
        if split != "all" and not (
            isinstance(split, list) and all(isinstance(name, str) for name in split)
        ):
            raise ValueError(
                f'`datasets_to_split={split!r}` must be "all" or a list of dataset names.'
            )

    def configure(
        self,
        datasets: Mapping[str, Dataset],
        world_size: int,
        worker_handles: Sequence[Any] | None = None,
        worker_node_ids: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> list[dict[str, DataIterator]]:
        """Return the shards of each rank by dataset name; called for every worker group.

        Programs may override it.

        Args:
            datasets: The trainer's datasets by name.
            world_size: Number of ranks.
            worker_handles: None; for compatibility.
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
        """Return the options for datasets that `execution_options` does not name."""
        from syncline.data.context import DataContext  # loads syncline.data: half a second

        return DataContext.get_current().copy().execution_options

    def _with_options(self, name: str, dataset: Dataset) -> Dataset:
        options = self.execution_options
        if isinstance(options, Mapping):
            options = options.get(name)
        return dataset if options is None else dataset._with_options(options)


@suggest_arguments
@dataclass(frozen=True)
class ValidationTaskConfig:
    """Arguments and time limit of one validation."""

    fn_kwargs: dict[str, Any] | None = None
    """Additional arguments of the validation function."""

    timeout_s: float | None = None
    """Time limit in seconds; None for no limit."""

    def __post_init__(self) -> None:
        if self.fn_kwargs is not None and not isinstance(self.fn_kwargs, dict):
            raise ValueError(f"`fn_kwargs={self.fn_kwargs!r}` must be a dictionary or None.")
        if self.timeout_s is not None and (
            not _is_number(self.timeout_s) or not self.timeout_s > 0
        ):
            raise ValueError(
                f"`timeout_s={self.timeout_s!r}` must be a positive number, or None for no limit."
            )


@suggest_arguments
@dataclass(frozen=True)
class ValidationConfig:
    """Validation of checkpoints reported with `validation=…`: one at a time, alongside training."""

    fn: ValidationFn
    """`fn(checkpoint, **fn_kwargs) -> dict` of metrics, merged into those of the report."""

    task_config: ValidationTaskConfig | None = None
    """Defaults of every validation."""

    ray_remote_kwargs: dict[str, Any] | None = None
    """Options of its task, such as `num_cpus`, `num_gpus`, `resources`."""

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise ValueError(
                f"`fn={self.fn!r}` must be a function that takes a checkpoint and returns a "
                "dictionary of metrics."
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


def _check_num_workers(value: object) -> None:
    if _is_int(value):
        if value < 0:
            raise ValueError(
                f"`num_workers={value}` is negative: pass 1 or more, or 0 for local mode."
            )
        return
    if not isinstance(value, tuple) or len(value) != 2 or not all(_is_int(part) for part in value):
        raise ValueError(
            f"`num_workers={value!r}` must be an integer, or (min, max) for an elastic group."
        )
    low, high = value
    if low < 1:
        raise ValueError(
            f"`num_workers={value!r}`: an elastic group needs a minimum of 1 or more workers."
        )
    if low > high:
        raise ValueError(f"`num_workers={value!r}`: the minimum {low} is above the maximum {high}.")


def _check_resources(resources: object) -> None:
    if resources is None:
        return
    if not isinstance(resources, dict):
        raise ValueError(
            f"`resources_per_worker={resources!r}` must be a dictionary of amounts by name, "
            "such as {'CPU': 2}."
        )
    for name, amount in resources.items():
        if not isinstance(name, str) or not _is_number(amount) or not (0 <= amount < math.inf):
            raise ValueError(
                f"`resources_per_worker={resources!r}`: {name!r} must be a name with an "
                f"amount >= 0, not {amount!r}."
            )


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def warn_deprecated(message: str) -> None:
    """Warn the user who created a configuration; called in its `__post_init__`."""
    # Frames between here and the user's line: this helper, __post_init__, the generated __init__,
    # that of `suggest_arguments`.
    warnings.warn(message, DeprecationWarning, stacklevel=5)
