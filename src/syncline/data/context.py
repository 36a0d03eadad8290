"""`DataContext`: the settings of datasets, under the names that Ray's users know.

A dataset copies the current context when it is created, and the copy reaches the workers. Covered:
settings that mean something here (the fields of `DataContext`), those of Ray that mean nothing here
and are kept without effect (`WITHOUT_EFFECT`), and a warning, once per name, for a setting that
nobody knows.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

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
"""Texts of transient errors of object stores. Python's ConnectionError and TimeoutError are
transient without being named.
"""

WITHOUT_EFFECT: dict[str, Any] = {
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
"""Settings of Ray that may be set and read back but change nothing here, with the values that they
have until then.
"""


class ShuffleStrategy(str, Enum):
    """Ways in which Ray shuffles. Here one way serves all sizes, so that the choice has no
    effect.
    """

    HASH_SHUFFLE = "hash_shuffle"
    SORT_SHUFFLE_PULL_BASED = "sort_shuffle_pull_based"
    SORT_SHUFFLE_PUSH_BASED = "sort_shuffle_push_based"
    SHUFFLE_V2 = "shuffle_v2"
    GPU_SHUFFLE = "gpu_shuffle"


@dataclass(kw_only=True)
class ExecutionResources:
    """Amounts of resources; infinity where nothing is said."""

    cpu: float = math.inf
    """CPUs."""
    gpu: float = math.inf
    """GPUs."""
    object_store_memory: float = math.inf
    """Bytes of blocks that exist at one moment."""
    memory: float = math.inf
    """Bytes of the processes' own memory."""


@dataclass(kw_only=True)
class ExecutionOptions:
    """How one execution of a dataset behaves."""

    resource_limits: ExecutionResources = field(default_factory=ExecutionResources)
    """The most that an execution may use; `object_store_memory` is the byte budget of the streaming
    executor.
    """
    exclude_resources: ExecutionResources = field(
        default_factory=lambda: ExecutionResources(cpu=0, gpu=0, object_store_memory=0, memory=0)
    )
    """What an execution leaves to others, for instance to training workers."""
    preserve_order: bool = True
    """Blocks leave in the order of the input. False lets whatever is ready go first."""
    locality_with_output: bool | list[str] = False
    """Accepted; on one machine everything is near."""
    actor_locality_enabled: bool = True
    """Accepted; on one machine everything is near."""
    verbose_progress: bool = True
    """Progress shows every operator, not only the whole."""
    label_selector: dict[str, str] | None = None
    """Labels of the nodes that may run tasks (clusters only)."""

    def is_resource_limits_default(self) -> bool:
        """Whether no limit was set."""
        return self.resource_limits == ExecutionResources()


@dataclass(kw_only=True)
class DataContext:
    """Settings of datasets. `DataContext.get_current()` gives the one that the next dataset
    copies.
    """

    target_max_block_size: int | None = 128 * MIB
    """Bytes at which an operator begins a new block; None for no limit."""
    target_min_block_size: int = 1 * MIB
    """Bytes below which reading does not split for the sake of parallelism."""
    target_shuffle_max_block_size: int = 1024 * MIB
    """Bytes of one partition of a shuffle, sort or group."""
    streaming_read_buffer_size: int = 32 * MIB
    """Bytes that a reader buffers of one file on a filesystem that is not this machine's."""
    read_op_min_num_blocks: int = 200
    """Number of blocks that reading aims at where they would not become smaller than
    `target_min_block_size`.
    """
    min_parallelism: int = 200
    """Older name of `read_op_min_num_blocks`."""
    default_hash_shuffle_parallelism: int = 200
    """The most partitions of a shuffle by key where the call names no number."""
    execution_options: ExecutionOptions = field(default_factory=ExecutionOptions)
    """How an execution behaves: order, limits."""
    seed: int | None = None
    """What everything random draws from that has no seed of its own, user functions among it, in
    each epoch anew; with one, a program's datasets are the same in every run. None: every
    execution, and every iterator, has one of its own.
    """
    enable_progress_bars: bool = True
    """Show progress in terminals and notebooks."""
    enable_operator_progress_bars: bool = True
    """A line of progress for every operator."""
    enable_progress_bar_name_truncation: bool = True
    """Shorten long names of operators in lines of progress."""
    max_errored_blocks: int = 0
    """So many failing blocks are dropped before the execution fails; negative for any number."""
    raise_original_map_exception: bool = False
    """Raise what a user's function raised, not the UserCodeException that names it (which is of
    that class too).
    """
    retried_io_errors: list[str] = field(default_factory=lambda: list(RETRIED_IO_ERRORS))
    """Texts or regular expressions: reading and writing is tried again after an error whose text
    contains one.
    """
    retried_map_errors: bool | list[type[BaseException]] = False
    """Errors of functions after which a task is tried again; True for all."""
    max_map_retries: int = 0
    """How often a task is tried again after an error in `retried_map_errors`."""
    actor_task_retry_on_errors: bool | list[type[BaseException]] = False
    """The same for calls of actors."""
    actor_init_retry_on_errors: bool | list[type[BaseException]] = False
    """Errors in constructors of classes after which the actor is started again."""
    actor_init_max_retries: int = 3
    """How often an actor is started again."""
    max_tasks_in_flight_per_actor: int | None = None
    """Blocks that may wait at one actor; None lets the executor choose."""
    wait_for_min_actors_s: int = -1
    """How long an execution waits for the least number of actors of a pool; negative for no
    limit.
    """
    execution_no_progress_timeout_s: float = 1800
    """After so long without any progress a warning names the operator that holds the others up."""
    enable_auto_log_stats: bool = False
    """Log the statistics of every execution when it ends."""
    verbose_stats_logs: bool = False
    """Log more of them."""
    print_on_execution_start: bool = False
    """Print the plan when an execution begins."""
    record_executions: bool = True
    """Executions that last longer than two seconds leave a run directory `data_…` below the storage
    path, which the dashboard shows; the 200 newest are kept. Those that feed a training run are
    recorded in its run directory. False: none are.
    """
    s3_try_create_dir: bool = False
    """Make directories on S3 when writing there, which needs rights that are often missing."""
    warn_on_driver_memory_usage_bytes: int = 2048 * MIB
    """Warn when more than this is fetched into the program's own process."""

    _execution_idx: int = 0
    _execution_seed: int | None = None
    _record_target: RecordTarget | None = None
    _configs: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def get_current() -> DataContext:
        """The context of this thread's `current` block, or else the one that all threads share."""
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
        """`get_current` answers with `context` in this thread while the block runs."""
        before = getattr(_local, "context", None)
        _local.context = context
        try:
            yield context
        finally:
            _local.context = before

    def copy(self) -> DataContext:
        """A copy that shares nothing that can change."""
        return copy.deepcopy(self)

    def for_tasks(self) -> DataContext:
        """What the tasks of an execution need of it."""
        if self._record_target is None:
            return self
        mine = copy.copy(self)
        mine._record_target = (
            None  # filesystems may take long to arrive in a process, and tasks record nothing
        )
        return mine

    def get_config(self, key: str, default: Any = None) -> Any:
        """A value that `set_config` stored."""
        return self._configs.get(key, default)

    def set_config(self, key: str, value: Any) -> None:
        """Keep any value; it travels with the context to the workers."""
        self._configs[key] = value

    def remove_config(self, key: str) -> None:
        """Forget what `set_config` stored."""
        self._configs.pop(key, None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _FIELDS and name not in WITHOUT_EFFECT and not name.startswith("_"):
            _warn_unknown(name)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Called for what is not there: a setting without effect that nobody set, a mistake, or copy
        # and pickle looking for their hooks.
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return WITHOUT_EFFECT[name]
        except KeyError:
            raise AttributeError(f"DataContext has no setting {name!r}{_nearest(name)}") from None


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
        f"DataContext has no setting {name!r}{_nearest(name)}: the value is kept, but changes "
        "nothing",
        UserWarning,
        stacklevel=3,
    )


def _nearest(name: str) -> str:
    close = difflib.get_close_matches(name, [*_FIELDS, *WITHOUT_EFFECT], n=1)
    return f" (is {close[0]!r} meant?)" if close else ""
