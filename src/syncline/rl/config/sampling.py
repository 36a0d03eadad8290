"""Options of env runners and of their fault tolerance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from syncline.rl.config.section import NotProvided, Section
from syncline.rl.value_types import Options

ConfigT = TypeVar("ConfigT", bound="SamplingOptions")


class SamplingOptions(Section):
    """Options of `env_runners()` and `fault_tolerance()`."""

    env_runner_cls: type | None = None
    num_env_runners: int = 0
    create_local_env_runner: bool = True
    create_env_on_local_worker: bool = False
    num_envs_per_env_runner: int = 1
    gym_env_vectorize_mode: str = "sync"
    num_cpus_per_env_runner: float = 1
    num_gpus_per_env_runner: float = 0
    custom_resources_per_env_runner: dict[str, float] = {}
    validate_env_runners_after_construction: bool = True
    sample_timeout_s: float | None = 60.0
    max_requests_in_flight_per_env_runner: int = 1
    add_default_connectors_to_env_to_module_pipeline: bool = True
    add_default_connectors_to_module_to_env_pipeline: bool = True
    _env_to_module_connector: Callable[..., object] | None = None
    _module_to_env_connector: Callable[..., object] | None = None
    episode_lookback_horizon: int = 1
    merge_env_runner_states: str | bool = "training_only"
    broadcast_env_runner_states: bool = True
    use_env_runner_state_server: bool = False
    rollout_fragment_length: int | str = 200
    sample_ahead: bool = False
    batch_mode: str = "truncate_episodes"
    explore: bool = True
    episodes_to_numpy: bool = True
    compress_observations: bool = False
    observation_filter: str = "NoFilter"
    exploration_config: Options = {}

    restart_failed_env_runners: bool = True
    ignore_env_runner_failures: bool = False
    max_num_env_runner_restarts: int = 1000
    delay_between_env_runner_restarts_s: float = 60.0
    restart_failed_sub_environments: bool = False
    num_consecutive_env_runner_failures_tolerance: int = 100
    env_runner_health_probe_timeout_s: float = 30.0
    env_runner_restore_timeout_s: float = 1800.0

    def env_runners(
        self: ConfigT,
        *,
        env_runner_cls: type | None = NotProvided,
        num_env_runners: int = NotProvided,
        create_local_env_runner: bool = NotProvided,
        create_env_on_local_worker: bool = NotProvided,
        num_envs_per_env_runner: int = NotProvided,
        gym_env_vectorize_mode: Literal["sync", "async", "vector_entry_point"] = NotProvided,
        num_cpus_per_env_runner: float = NotProvided,
        num_gpus_per_env_runner: float = NotProvided,
        custom_resources_per_env_runner: dict[str, float] = NotProvided,
        validate_env_runners_after_construction: bool = NotProvided,
        sample_timeout_s: float | None = NotProvided,
        max_requests_in_flight_per_env_runner: int = NotProvided,
        env_to_module_connector: Callable[..., object] | None = NotProvided,
        module_to_env_connector: Callable[..., object] | None = NotProvided,
        add_default_connectors_to_env_to_module_pipeline: bool = NotProvided,
        add_default_connectors_to_module_to_env_pipeline: bool = NotProvided,
        episode_lookback_horizon: int = NotProvided,
        merge_env_runner_states: str | bool = NotProvided,
        broadcast_env_runner_states: bool = NotProvided,
        use_env_runner_state_server: bool = NotProvided,
        rollout_fragment_length: int | Literal["auto"] = NotProvided,
        sample_ahead: bool = NotProvided,
        batch_mode: Literal["truncate_episodes", "complete_episodes"] = NotProvided,
        explore: bool = NotProvided,
        episodes_to_numpy: bool = NotProvided,
        compress_observations: bool = NotProvided,
        observation_filter: str = NotProvided,
        exploration_config: Options = NotProvided,
        **older: object,
    ) -> ConfigT:
        """Set the env runners and the sampling of environments.

        Args:
            env_runner_cls: Subclass of `SingleAgentEnvRunner` or `MultiAgentEnvRunner`.
            num_env_runners: Number of remote runners; 0 samples in the algorithm's process.
            create_local_env_runner: Also create a runner in the algorithm's process.
            create_env_on_local_worker: Give that runner environments even if remote runners sample.
            num_envs_per_env_runner: Number of environments per runner.
            gym_env_vectorize_mode: One after the other, in processes of their own, or a vectorized
                vectorized environment of the registry entry.
            num_cpus_per_env_runner: CPUs of each runner; may be fractional.
            num_gpus_per_env_runner: GPUs of each runner; may be fractional.
            custom_resources_per_env_runner: Other resources of each runner.
            validate_env_runners_after_construction: Has no effect: runners are always checked.
            sample_timeout_s: Seconds after which a runner that has not answered is logged with its
                stack. Slow runners may continue, and their samples are used. A runner without any
                step for another `env_runner_health_probe_timeout_s` is killed and samples again.
            max_requests_in_flight_per_env_runner: Maximum number of queued fragment requests per
                runner in asynchronous algorithms, besides the running one.
            env_to_module_connector: Function of (env, spaces, device) that returns the connectors
                between environments and module.
            module_to_env_connector: Function of (env, spaces) that returns the connectors between
                module and environments.
            add_default_connectors_to_env_to_module_pipeline: Append the default connectors.
            add_default_connectors_to_module_to_env_pipeline: Append the default connectors.
            episode_lookback_horizon: Steps of the previous chunk that an episode chunk retains.
            merge_env_runner_states: Merge the connector states of all runners.
            broadcast_env_runner_states: Send the merged states to all runners.
            use_env_runner_state_server: Has no effect.
            rollout_fragment_length: Steps per environment in a fragment; "auto" makes the batch
                size exact.
            sample_ahead: Let remote runners sample the next batch while the learners train on the
                current one (PPO, A2C). Its weights are one update older; importance ratios use the
                recorded probabilities, so they stay exact.
            batch_mode: "complete_episodes" returns only whole episodes.
            explore: Draw actions; otherwise take the most probable ones.
            episodes_to_numpy: Episodes in samples contain arrays.
            compress_observations: Has no effect.
            observation_filter: "MeanStdFilter" standardizes observations.
            exploration_config: Exploration from older releases.
            older: Option names from older releases.
        """
        given = dict(locals())
        given.update(self._older("env_runners", given.pop("older")))
        return self._set(
            given,
            env_to_module_connector="_env_to_module_connector",
            module_to_env_connector="_module_to_env_connector",
        )

    def rollouts(self: ConfigT, **options: Any) -> ConfigT:
        """Set options of env runners under the names from older releases."""
        return self.env_runners(**options)

    def exploration(
        self: ConfigT, *, explore: bool = NotProvided, exploration_config: Options = NotProvided
    ) -> ConfigT:
        """Set the exploration under the names from older releases."""
        return self._set(dict(locals()))

    def fault_tolerance(
        self: ConfigT,
        *,
        restart_failed_env_runners: bool = NotProvided,
        ignore_env_runner_failures: bool = NotProvided,
        max_num_env_runner_restarts: int = NotProvided,
        delay_between_env_runner_restarts_s: float = NotProvided,
        restart_failed_sub_environments: bool = NotProvided,
        num_consecutive_env_runner_failures_tolerance: int = NotProvided,
        env_runner_health_probe_timeout_s: float = NotProvided,
        env_runner_restore_timeout_s: float = NotProvided,
        **older: object,
    ) -> ConfigT:
        """Set the handling of failed env runners and environments.

        Args:
            restart_failed_env_runners: Restart failed runners. They continue exactly if the state
                of their environments can be saved, otherwise with new episodes.
                ignore_env_runner_failures: Continue with the remaining runners.
            max_num_env_runner_restarts: Maximum number of restarts of all runners.
            delay_between_env_runner_restarts_s: Maximum delay before a restart; delays start at
            0.05 s and double.
                restart_failed_sub_environments: Recreate an environment after an exception.
            num_consecutive_env_runner_failures_tolerance: Consecutive failures before training
            stops.
            env_runner_health_probe_timeout_s: Seconds without a step, after `sample_timeout_s`,
                until a runner is killed and restarted.
            env_runner_restore_timeout_s: Maximum seconds of a restart.
            older: Option names from older releases.
        """
        given = dict(locals())
        given.update(self._older("fault_tolerance", given.pop("older")))
        return self._set(given)
