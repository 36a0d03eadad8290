"""`EnvContext`: the configuration of an environment and its index in the run."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from syncline.rl.value_types import EnvConfig


class EnvContext(dict[str, Any]):
    """The `env_config` that is passed to environment classes and registered creators.

    It is a dict; its attributes identify the environment within the run, for example to read
    different files.
    """

    def __init__(
        self,
        env_config: EnvConfig,
        worker_index: int,
        vector_index: int = 0,
        remote: bool = False,
        num_workers: int | None = None,
        recreated_worker: bool = False,
    ) -> None:
        super().__init__(env_config)
        self.worker_index = worker_index
        """Index of the env runner: 0 for the local one, from 1 for remote ones."""
        self.vector_index = vector_index
        """Index of the environment in its env runner."""
        self.remote = remote
        """True if the environment runs in a separate actor."""
        self.num_workers = num_workers
        """Number of env runners; 0 if there is only the local one."""
        self.recreated_worker = recreated_worker
        """True if the env runner replaces a failed one."""

    def copy_with_overrides(
        self,
        env_config: EnvConfig | None = None,
        worker_index: int | None = None,
        vector_index: int | None = None,
        remote: bool | None = None,
        num_workers: int | None = None,
        recreated_worker: bool | None = None,
    ) -> EnvContext:
        """Return a copy, updated with the values that are not None."""
        return EnvContext(
            self if env_config is None else copy.deepcopy(env_config),
            self.worker_index if worker_index is None else worker_index,
            self.vector_index if vector_index is None else vector_index,
            self.remote if remote is None else remote,
            self.num_workers if num_workers is None else num_workers,
            self.recreated_worker if recreated_worker is None else recreated_worker,
        )

    def set_defaults(self, defaults: Mapping[str, object]) -> None:
        """Add the entries of `defaults` whose keys are missing."""
        for key, value in defaults.items():
            self.setdefault(key, value)

    def __str__(self) -> str:
        return (
            f"{super().__str__()[:-1]}, worker={self.worker_index}/{self.num_workers}, "
            f"vector_idx={self.vector_index}, remote={self.remote}}}"
        )
