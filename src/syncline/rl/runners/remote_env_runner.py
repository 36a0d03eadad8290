"""`RemoteEnvRunner`: the actor around an env runner."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable
from typing import TypeVar

import cloudpickle

from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.module_change import ModuleChange
from syncline.rl.runners.sample import Sample
from syncline.rl.runners.shared_memory import NO_PROGRESS, MemoryAddress, SampleWriter
from syncline.rl.runners.threads import limited_threads
from syncline.rl.value_types import EnvRunnerType, Options, Space, StateDict, Tree

T = TypeVar("T")


class RemoteEnvRunner:
    """Creates an env runner in its process and forwards calls to it.

    Args:
        runner_class: Class of the runner.
        config: The algorithm's options.
        worker_index: 1 to the number of runners.
    """

    def __init__(self, runner_class: type, config: AlgorithmConfig, worker_index: int) -> None:
        self._threads = max(int(config.num_cpus_per_env_runner), 1)
        self._index, self._host = worker_index, socket.gethostname()
        with limited_threads(self._threads):
            self._runner: EnvRunnerType = runner_class(config=config, worker_index=worker_index)
        self._writer = SampleWriter()
        if hasattr(self._runner, "progress"):
            self._runner.progress = self._writer.progress
        else:
            self._writer.progress[0] = NO_PROGRESS

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Return observation and action space by module id."""
        spaces: dict[str, tuple[Space, Space]] = self._runner.get_spaces()
        return spaces

    def memory_address(self) -> MemoryAddress | None:
        """Return the address of the step counter; None without shared memory."""
        return self._writer.address

    def set_weights(self, weights: StateDict, version: int, is_partial: bool = False) -> None:
        """Set the weights of the modules; with `is_partial`, of some modules."""
        self._runner.set_weights(weights, version)

    def change_modules(self, change: ModuleChange) -> None:
        """Add or remove a module."""
        self._runner.change_modules(change)

    def set_merged_connectors(self, state: StateDict) -> None:
        """Set the merged state of the connectors."""
        if hasattr(self._runner, "set_merged_connectors"):
            self._runner.set_merged_connectors(state)

    def sample(
        self,
        method: str,
        amount: int,
        options: Options,
        slot: int | None = None,
        with_state: bool = False,
    ) -> Tree:
        """Call a sampling method of the runner.

        Args:
            method: Name of the method.
            amount: Its first argument.
            options: Its keyword arguments.
            slot: Slot of shared memory for the arrays; None to return the sample directly.
            with_state: Also return the pickled state after the sample; "" if environments cannot
                not continue from it.
        """
        sample: object = self._sample(method, amount, options)
        if slot is not None:
            sample = self._writer.write(sample, slot)
        return (sample, self._pickled_state()) if with_state else sample

    def _sample(self, method: str, amount: int, options: dict[str, object]) -> Sample:
        with limited_threads(self._threads):
            sample: Sample = getattr(self._runner, method)(amount, **options)
        sample.runner, sample.pid, sample.host = self._index, os.getpid(), self._host
        return sample

    def replay(self, method: str, amount: int, options: dict[str, object]) -> None:
        """Repeat the sampling of an earlier process of this runner; discard the sample."""
        self._sample(method, amount, options)

    def _pickled_state(self) -> bytes:
        state = self._runner.get_state()
        envs = state.get("envs", [None])
        if envs is not None and any(_is_missing(each) for each in envs):
            return b""
        pickled: bytes = cloudpickle.dumps(state)
        return pickled

    def load_state(self, pickled: bytes) -> None:
        """Restore a state of `sample`."""
        self._runner.set_state(pickle.loads(pickled))

    def apply(self, function: Callable[..., T], *args: object, **kwargs: object) -> T:
        """Return `function(runner, …)`."""
        return function(self._runner, *args, **kwargs)

    def get_state(self) -> StateDict:
        """Return everything that the next sample depends on, except the weights."""
        state: StateDict = self._runner.get_state()
        return state

    def set_state(self, state: StateDict) -> bool:
        """Continue from a state."""
        return bool(self._runner.set_state(state))

    def stop(self) -> None:
        """Close the environments."""
        self._runner.stop()


def _is_missing(env_state: object) -> bool:
    """Return True if the state of an environment could not be saved; states of multi-agent
    environments include the last observations.
    """
    return (env_state[0] if isinstance(env_state, tuple) else env_state) is None
