"""`RemoteEnvRunner`: the actor around an env runner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.runners.sample import Sample
from syncline.rl.runners.threads import limited_threads

T = TypeVar("T")


class RemoteEnvRunner:
    """Creates an env runner in its process and calls it.

    Args:
        runner_class: Class of the runner.
        config: The algorithm's options.
        worker_index: 1 to the number of runners.
    """

    def __init__(self, runner_class: type, config: AlgorithmConfig, worker_index: int) -> None:
        self._threads = max(int(config.num_cpus_per_env_runner), 1)
        with limited_threads(self._threads):
            self._runner: Any = runner_class(config=config, worker_index=worker_index)

    def get_spaces(self) -> dict[str, tuple[Any, Any]]:
        """Return observation and action space by module id."""
        spaces: dict[str, tuple[Any, Any]] = self._runner.get_spaces()
        return spaces

    def set_weights(self, weights: dict[str, Any], version: int) -> None:
        """Set the weights of the modules."""
        self._runner.set_weights(weights, version)

    def sample(self, method: str, amount: int, options: dict[str, Any]) -> Sample:
        """Call a method of the runner that samples."""
        with limited_threads(self._threads):
            sample: Sample = getattr(self._runner, method)(amount, **options)
            return sample

    def apply(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return `function(runner, …)`."""
        return function(self._runner, *args, **kwargs)

    def get_state(self) -> dict[str, Any]:
        """Return everything that the next sample depends on, except the weights."""
        state: dict[str, Any] = self._runner.get_state()
        return state

    def set_state(self, state: dict[str, Any]) -> bool:
        """Continue from a state."""
        return bool(self._runner.set_state(state))

    def stop(self) -> None:
        """Close the environments."""
        self._runner.stop()
