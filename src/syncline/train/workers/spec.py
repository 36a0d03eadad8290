"""What a run is, and what one worker of it is told: plain values that can go to another process."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.train.backend import BackendConfig, Worker
from syncline.train.checkpoint import Checkpoint
from syncline.train.config import DataConfig, RunConfig, ScalingConfig, ValidationConfig
from syncline.train.storage import StorageContext
from syncline.train.workers.shipped import Shipped


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that a trainer was given, checked."""

    train_function: Callable[..., Any] | Shipped
    """The user's function, with one parameter or none."""
    takes_config: bool
    """Whether it has that parameter."""
    train_config: Mapping[str, Any] | Shipped
    """What it gets."""
    backend_config: BackendConfig
    scaling_config: ScalingConfig
    run_config: RunConfig
    resume_from_checkpoint: Checkpoint | None
    """Where a run without checkpoints of its own begins."""
    metadata: Mapping[str, Any] | None
    """Goes into the metadata of every checkpoint."""
    validation_config: ValidationConfig | None
    datasets: Mapping[str, Any] | Shipped = field(default_factory=dict)
    """Datasets by name, or functions that make them."""
    data_config: DataConfig = field(default_factory=DataConfig)
    """How they are shared out."""
    described: Mapping[str, Any] | None = None
    """What `run.json` says of all this, where some of it is bytes by now."""

    def description(self) -> Mapping[str, Any]:
        """For `run.json`."""
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
    """What one worker is told before its training function starts."""

    worker: Worker
    """Its place."""
    world_size: int
    run_name: str
    attempt: int
    """The number of this worker group in this call of `fit()`, from 1."""
    token: str
    """Another one for every attempt of every run: marks files that are under way."""
    storage: StorageContext
    use_gpu: bool
    first_index: int
    """The number of the first report."""
    latest_checkpoint: Checkpoint | None
    """Where the attempt begins."""
    has_validation: bool
    """Whether the trainer has a validation function."""
    resumes: bool = False
    """Whether this rank reads on where it was when `latest_checkpoint` was taken, which is one of
    this run.
    """
    visible_gpus: tuple[str, ...] | None
    """The GPUs of all workers on the node, for `CUDA_VISIBLE_DEVICES`; None leaves the variable
    alone.
    """
    log_path: str | None
    """Where what this rank prints is kept, a file of this machine; None keeps nothing."""
    shares: Mapping[str, Any] = field(default_factory=dict)
    """What this rank reads of each dataset: a `DataIterator` by name."""
    hang_limit_s: float = math.inf
    """How long this rank may be in one collective operation."""
