"""What `init` hands to an engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """How an engine is started; checked by `init`."""

    num_cpus: float | None = None
    """CPUs that tasks may share; None: as many as this process may use."""
    num_gpus: float | None = None
    """GPUs that tasks may share; None: those that are visible. More than there are makes up the
    rest.
    """
    resources: Mapping[str, float] = field(default_factory=dict)
    """Custom resources by name."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of this node, for `label_selector`."""
    memory: int | None = None
    """Bytes of memory that tasks may reserve; None: what this machine has left beside the object
    store.
    """
    object_store_memory: int | None = None
    """Bytes that objects may take in shared memory before they move to disk; None: a share of the
    machine's memory.
    """
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """The program's environment in its normal form, under that of every task."""
    namespace: str = "default"
    """Where names of actors are looked up by default; on a cluster empty for one of the program's
    own.
    """
    logging_level: int = logging.INFO
    """The least level that syncline's own logger lets through in workers."""
    log_to_driver: bool = True
    """Whether what workers print reaches the program's terminal."""
    address: str | None = None
    """The cluster, as `init` takes it; None: this machine."""
    temp_dir: Path | None = None
    """Below which the session directory is made; None: the setting SYNCLINE_TMPDIR, or the system's
    temporary directory.
    """
