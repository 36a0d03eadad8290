"""`DataContext`: the settings of datasets, under Ray's names.

A dataset copies the current context at its creation, and the copy reaches the workers. Covered:
settings with an effect (the fields of `DataContext`), settings of Ray that are stored without
effect (`WITHOUT_EFFECT`), and one warning per name for an unknown setting.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from syncline.suggestions import did_you_mean, suggest_arguments

if TYPE_CHECKING:
    from syncline.data.execute.execution_journal import RecordTarget

MIB = 1024**2

RETRIED_IO_ERRORS = (
    "AWS Error INTERNAL_FAILURE",
    "AWS Error NETWORK_CONNECTION",
    "AWS Error SLOW_DOWN",
    "AWS Error UNKNOWN (HTTP status 503)",
    "AWS Error SERVICE_UNAVAILABLE",
)
"""Texts of transient errors of object stores. Python's ConnectionError and TimeoutError are always
transient.
"""

WITHOUT_EFFECT: dict[str, object] = {
    "accurate_map_phase_timing": False,
    "actor_prefetcher_enabled": False,
    "autoscaling_config": None,
    "batch_to_block_arrow_format": True,
    "custom_execution_callback_classes": (),
    "dataset_logger_id": None,
    "decoding_size_estimation": True,
    "default_map_logical_memory_enabled": False,
    "delta_config": None,
    "downstream_capacity_backpressure_ratio": 2.0,
    "eager_free": False,
    "enable_arrow_backed_pandas_conversion": True,
    "enable_dynamic_output_queue_size_backpressure": False,
    "enable_fallback_to_arrow_object_ext_type": None,
    "enable_get_object_locations_for_metrics": False,
    "enable_pandas_block": True,
    "enable_per_node_metrics": False,
    "enable_rich_progress_bars": True,
    "enable_stats_summary_collection": False,
    "enable_tensor_extension_casting": True,
    "enforce_schemas": False,
    "gpu_shuffle_num_actors": None,
    "hash_shuffle_reduce_batch_size": 16,
    "iceberg_config": None,
    "isolate_read_workers": False,
    "issue_detectors_config": None,
    "lance_config": None,
    "large_args_threshold": 50 * MIB,
    "log_internal_stack_trace": False,
    "max_hash_shuffle_aggregators": None,
    "memory_usage_poll_interval_s": 1,
    "object_store_memory_pressure_fraction": None,
    "op_resource_reservation_enabled": True,
    "op_resource_reservation_ratio": 0.5,
    "override_object_store_memory_limit_fraction": None,
    "pandas_block_ignore_metadata": False,
    "per_stage_map_timing": False,
    "pipeline_push_based_shuffle_reduce_tasks": True,
    "scheduling_strategy": "SPREAD",
    "scheduling_strategy_large_args": "DEFAULT",
    "shuffle_compression": "zstd",
    "shuffle_input_batch_bytes": 1024 * MIB,
    "shuffle_strategy": "hash_shuffle",
    "trace_allocations": False,
    "use_arrow_tensor_v2": True,
    "use_datasource_v2": True,
    "use_disk_based_hash_shuffle": False,
    "use_legacy_dataset_ids": False,
    "use_polars": False,
    "use_polars_sort": False,
    "use_push_based_shuffle": False,
    "use_ray_tqdm": False,
    "write_file_retry_on_errors": RETRIED_IO_ERRORS,
}
"""Settings of Ray that can be set and read without effect, with their defaults."""


class ShuffleStrategy(str, Enum):
    """Shuffle strategies of Ray. One shuffle serves all sizes here, so the choice has no effect."""

    HASH_SHUFFLE = "hash_shuffle"
    SORT_SHUFFLE_PULL_BASED = "sort_shuffle_pull_based"
    SORT_SHUFFLE_PUSH_BASED = "sort_shuffle_push_based"
    SHUFFLE_V2 = "shuffle_v2"
    GPU_SHUFFLE = "gpu_shuffle"


@suggest_arguments
@dataclass(kw_only=True)
class ExecutionResources:
    """Amounts of resources; infinity by default."""

    cpu: float = math.inf
    """CPUs."""
    gpu: float = math.inf
    """GPUs."""
    object_store_memory: float = math.inf
    """Bytes of blocks that exist at the same time."""
    memory: float = math.inf
    """Bytes of the processes' memory."""

    @classmethod
    def for_limits(
        cls,
        cpu: float | None = None,
        gpu: float | None = None,
        object_store_memory: float | None = None,
        memory: float | None = None,
    ) -> ExecutionResources:
        """Return limits; None for no limit."""
        given = {
            "cpu": cpu,
            "gpu": gpu,
            "object_store_memory": object_store_memory,
            "memory": memory,
        }
        return cls(**{name: amount for name, amount in given.items() if amount is not None})


@suggest_arguments
@dataclass(kw_only=True)
class ExecutionOptions:
    """Options of an execution of a dataset."""

    resource_limits: ExecutionResources = field(default_factory=ExecutionResources)
    """Maximum resources of an execution; `object_store_memory` is the byte budget of the streaming
    executor.
    """
    exclude_resources: ExecutionResources = field(
        default_factory=lambda: ExecutionResources(cpu=0, gpu=0, object_store_memory=0, memory=0)
    )
    """Resources that an execution leaves to others, such as training workers."""
    preserve_order: bool = True
    """Return blocks in the order of the input. False returns blocks as they are ready."""
    locality_with_output: bool | list[str] = False
    """Accepted without effect."""
    actor_locality_enabled: bool = True
    """Accepted without effect."""
    verbose_progress: bool = True
    """Show the progress of every operator, not only the total."""
    label_selector: dict[str, str] | None = None
    """Labels of the nodes that may run tasks (clusters only)."""

    def is_resource_limits_default(self) -> bool:
        """Return True if no limit is set."""
        return self.resource_limits == ExecutionResources()


@dataclass(kw_only=True)
class DataContext:
    """Settings of datasets. `DataContext.get_current()` returns the one that the next dataset
    copies.
    """

    target_max_block_size: int | None = 128 * MIB
    """Bytes at which an operator starts a new block; None for no limit."""
    target_min_block_size: int = 1 * MIB
    """Bytes below which reading does not split blocks for parallelism."""
    target_shuffle_max_block_size: int = 1024 * MIB
    """Bytes of one partition of a shuffle, sort or group."""
    streaming_read_buffer_size: int = 32 * MIB
    """Bytes that a reader buffers of one remote file."""
    read_op_min_num_blocks: int = 200
    """Target number of blocks of a read, unless they would be smaller than `target_min_block_size`.
    """
    min_parallelism: int = 200
    """Older name of `read_op_min_num_blocks`."""
    default_hash_shuffle_parallelism: int = 200
    """Maximum number of partitions of a shuffle by key if the call sets none."""
    execution_options: ExecutionOptions = field(default_factory=ExecutionOptions)
    """Options of executions: order, limits."""
    seed: int | None = None
    """Seed of everything random without its own seed, including user functions, reseeded in each
    epoch. With a seed a program's datasets are the same in every run. None draws a seed for every
    execution and iterator.
    """
    enable_progress_bars: bool = True
    """Show progress in terminals and notebooks."""
    enable_operator_progress_bars: bool = True
    """Show a line of progress for every operator."""
    enable_progress_bar_name_truncation: bool = True
    """Shorten long names of operators in progress."""
    max_errored_blocks: int = 0
    """Failed blocks to drop before the execution fails; negative for no limit."""
    raise_original_map_exception: bool = False
    """Raise the exception of a user function itself, not the UserCodeException that names the
    function and has the same class too.
    """
    retried_io_errors: list[str] = field(default_factory=lambda: list(RETRIED_IO_ERRORS))
    """Texts or regular expressions of errors after which reads and writes are retried."""
    retried_map_errors: bool | list[type[BaseException]] = False
    """Errors of functions after which a task is retried; True for all."""
    max_map_retries: int = 0
    """Maximum retries of a task after an error in `retried_map_errors`."""
    actor_task_retry_on_errors: bool | list[type[BaseException]] = False
    """Errors of actor calls after which the call is retried; True for all."""
    actor_init_retry_on_errors: bool | list[type[BaseException]] = False
    """Errors of class constructors after which the actor is restarted."""
    actor_init_max_retries: int = 3
    """Maximum restarts of an actor."""
    max_tasks_in_flight_per_actor: int | None = None
    """Maximum blocks queued at one actor; None lets the executor choose."""
    wait_for_min_actors_s: int = -1
    """Seconds to wait for the minimum number of actors of a pool; negative for no limit."""
    execution_no_progress_timeout_s: float = 1800
    """Seconds without progress after which a warning names the blocking operator."""
    enable_auto_log_stats: bool = False
    """Log the statistics of every execution at its end."""
    verbose_stats_logs: bool = False
    """Log detailed statistics."""
    print_on_execution_start: bool = False
    """Log the plan at the start of an execution."""
    record_executions: bool = True
    """Record executions that last longer than two seconds in a run directory `data_…` below the
    storage path, for the dashboard; the 200 newest are kept. Executions for a training run are
    recorded in its run directory.
    """
    s3_try_create_dir: bool = False
    """Create directories on S3 before writing, which needs permissions that are often missing."""
    warn_on_driver_memory_usage_bytes: int = 2048 * MIB
    """Bytes fetched into the program's process above which a warning is logged."""

    _execution_idx: int = 0
    _execution_seed: int | None = None
    _record_target: RecordTarget | None = None
    _configs: dict[str, object] = field(default_factory=dict)

    @staticmethod
    def get_current() -> DataContext:
        """Return the context of this thread's `current` block, or the shared one."""
        global _shared
        mine: DataContext | None = getattr(_local, "context", None)
        if mine is not None:
            return mine
        with _lock:
            if _shared is None:
                _shared = DataContext()
            return _shared

    @staticmethod
    def _set_current(context: DataContext) -> None:
        global _shared
        with _lock:
            _shared = context

    @classmethod
    @contextmanager
    def current(cls, context: DataContext) -> Iterator[DataContext]:
        """Make `context` the current one in this thread for the duration of the block."""
        before = getattr(_local, "context", None)
        _local.context = context
        try:
            yield context
        finally:
            _local.context = before

    def copy(self) -> DataContext:
        """Return a deep copy."""
        return copy.deepcopy(self)

    def for_tasks(self) -> DataContext:
        """Return the parts that tasks of an execution need."""
        if self._record_target is None:
            return self
        mine = copy.copy(self)
        mine._record_target = None  # tasks record nothing, and filesystems may be slow to unpickle
        return mine

    def get_config(self, key: str, default: object = None) -> Any:
        """Return a value of `set_config`."""
        return self._configs.get(key, default)

    def set_config(self, key: str, value: object) -> None:
        """Store any value; it is sent to the workers with the context."""
        self._configs[key] = value

    def remove_config(self, key: str) -> None:
        """Remove a value of `set_config`."""
        self._configs.pop(key, None)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _FIELDS and name not in WITHOUT_EFFECT and not name.startswith("_"):
            _warn_unknown(name)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes: settings without effect, mistakes, and hooks of copy and
        # pickle.
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return WITHOUT_EFFECT[name]
        except KeyError:
            raise AttributeError(
                f"DataContext has no setting {name!r}."
                f"{did_you_mean(name, (*_FIELDS, *WITHOUT_EFFECT))}"
            ) from None


_FIELDS = frozenset(field.name for field in dataclasses.fields(DataContext))
_lock = threading.Lock()
_shared: DataContext | None = None
_local = threading.local()
_warned: set[str] = set()


def _warn_unknown(name: str) -> None:
    if name in _warned:
        return
    _warned.add(name)
    warnings.warn(
        f"DataContext has no setting {name!r}, so the value changes nothing."
        f"{did_you_mean(name, (*_FIELDS, *WITHOUT_EFFECT))}",
        UserWarning,
        stacklevel=3,
    )
