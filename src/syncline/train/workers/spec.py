"""Specifications of a run and of one worker, as plain values that can go to another process.

User code in a `RunSpec` may be a `SerializedValue`: bytes that pass through processes which need
not be able to unpickle it. A remote controller passes the training function on in this form, so it
needs neither the modules that the function uses nor the time to import them.
"""

from __future__ import annotations

import io
import math
import pickle
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import cloudpickle

from syncline.core import serialization
from syncline.core.refs import ObjectRef
from syncline.train.backend import BackendConfig, Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, ScalingConfig, ValidationConfig
from syncline.train.run_config import RunConfig
from syncline.train.snapshots.config import SnapshotSpec
from syncline.train.storage.context import StorageContext

if TYPE_CHECKING:
    from syncline.data.context import DataContext


@dataclass(frozen=True, kw_only=True)
class SerializedValue:
    """A pickled value."""

    data: bytes
    what: str
    """Description for error messages, such as "the training function `train`"."""
    refs: tuple[ObjectRef[Any], ...] = ()
    """Object references in the value. They are kept outside of the bytes so that the engine sees
    them and keeps their objects alive.
    """

    def load(self) -> Any:
        """Return the value.

        Raises:
            ModuleNotFoundError: A module that the value uses is missing on this node.
        """
        try:
            return _Unpickler(io.BytesIO(self.data), self.refs).load()
        except ModuleNotFoundError as error:
            module = (error.name or "module").partition(".")[0]
            raise ModuleNotFoundError(
                f"{self.what} needs the module {error.name!r}, which cannot be imported on the "
                f"node {socket.gethostname()}. Send its directory with "
                "`syncline.init(runtime_env={'working_dir': '.'})`, or the module alone with "
                f"`runtime_env={{'py_modules': [{module}]}}`, or install it on every node.",
                name=error.name,
                path=error.path,
            ) from None


def serialize(value: object, what: str) -> SerializedValue:
    """Return `value` as bytes.

    Raises:
        TypeError: It cannot be pickled; the message names the part at fault.
    """
    try:
        pickler = _Pickler(buffer := io.BytesIO())
        pickler.dump(value)
        return SerializedValue(data=buffer.getvalue(), what=what, refs=tuple(pickler.refs))
    except Exception as error:
        serialization.pack(value, what=what)  # raises and names the part at fault
        raise TypeError(f"{what} cannot be pickled: {error}") from error


def deserialized(value: Any) -> Any:
    """Load a `SerializedValue`; return any other value as it is."""
    return value.load() if isinstance(value, SerializedValue) else value


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
    """Collects object references instead of pickling them."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.refs: list[ObjectRef[Any]] = []

    def persistent_id(self, value: object) -> int | None:
        if not isinstance(value, ObjectRef):
            return None
        self.refs.append(value)
        return len(self.refs) - 1


class _Unpickler(pickle.Unpickler):
    """Inserts the collected object references."""

    def __init__(self, file: io.BytesIO, refs: tuple[ObjectRef[Any], ...]) -> None:
        super().__init__(file)
        self._refs = refs

    def persistent_load(self, position: object) -> ObjectRef[Any]:
        return self._refs[cast(int, position)]


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Checked arguments of a trainer."""

    train_function: Callable[..., object] | SerializedValue
    """Training function with at most one parameter."""
    takes_config: bool
    """True if the training function has a parameter."""
    train_config: Mapping[str, Any] | SerializedValue
    """Argument of the training function."""
    backend_config: BackendConfig
    scaling_config: ScalingConfig
    run_config: RunConfig
    resume_from_checkpoint: Checkpoint | None
    """Checkpoint that a run without own checkpoints starts from."""
    metadata: Mapping[str, Any] | None
    """Metadata of every checkpoint."""
    validation_config: ValidationConfig | None
    datasets: Mapping[str, object] | SerializedValue = field(default_factory=dict)
    """Datasets, or functions that create them, by name."""
    data_config: DataConfig = field(default_factory=DataConfig)
    """Distribution of the datasets over the ranks."""
    data_context: DataContext | None = None
    """The program's settings of datasets, for the workers; None for the defaults."""
    described: Mapping[str, object] | None = None
    """Result of `description`, taken before values were serialized."""
    code_version: str = "unknown"
    """Version of a serialized training function; see `snapshots.code_version`."""

    def description(self) -> Mapping[str, object]:
        """Return the content of `run.json`."""
        if self.described is not None:
            return self.described
        return {
            "train_function": self.train_function,
            "train_config": self.train_config,
            "backend": type(self.backend_config).__name__,
            "scaling_config": self.scaling_config,
            "run_config": self.run_config,
            "resume_from_checkpoint": self.resume_from_checkpoint,
            "metadata": self.metadata,
            "datasets": self.datasets,
            "data_config": self.data_config,
        }


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """Specification of one worker, sent before its training function starts."""

    worker: Worker
    world_size: int
    run_name: str
    output_label: str = ""
    """Label of the lines that the program shows of this worker; empty for the engine's."""
    attempt: int
    """Number of this worker group in this call of `fit()`, from 1."""
    token: str
    """Unique for each attempt of each run; names unfinished files."""
    storage: StorageContext
    use_gpu: bool
    first_index: int
    """Number of the first report."""
    latest_checkpoint: Checkpoint | None
    """Checkpoint that the attempt starts from."""
    has_validation: bool
    """True if the trainer has a validation function."""
    score_attribute: str | None = None
    """Metric that ranks the checkpoints; None if a checkpoint of the run has it already."""
    resumes: bool = False
    """True if readers resume from `latest_checkpoint`, which is a checkpoint of this run."""
    visible_gpus: tuple[str, ...] | None
    """GPUs of all workers on the node, for `CUDA_VISIBLE_DEVICES`; None does not set it."""
    log_path: str | None
    """Local file for the output of this rank; None for no file."""
    data_context: DataContext | None = None
    """The program's settings of datasets; None for the defaults."""
    shares: Mapping[str, Any] = field(default_factory=dict)
    """Dataset shards of this rank by name, usually `DataIterator` objects."""
    snapshots: SnapshotSpec | None = None
    """Memory snapshots; None for none."""
    hang_limit_s: float = math.inf
    """Longest time of this rank in one collective operation, in seconds."""
