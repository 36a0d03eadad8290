"""Options of runs: resources, reports, checkpoints, callbacks, debugging."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from syncline.rl.callbacks.callbacks import RLlibCallback
from syncline.rl.config.section import NotProvided, Section

ConfigT = TypeVar("ConfigT", bound="RunningOptions")
Hook = Callable[..., None] | list[Callable[..., None]] | None


class RunningOptions(Section):
    """Options of `resources()`, `reporting()`, `checkpointing()`, `callbacks()`, `debugging()` and
    others.
    """

    num_cpus_for_main_process: float = 1
    custom_resources_for_main_process: dict[str, float] = {}
    placement_strategy: str = "PACK"
    num_gpus: float = 0

    keep_per_episode_custom_metrics: bool = False
    metrics_episode_collection_timeout_s: float = 60.0
    metrics_num_episodes_for_smoothing: int = 100
    min_time_s_per_iteration: float | None = None
    min_train_timesteps_per_iteration: int = 0
    min_sample_timesteps_per_iteration: int = 0
    log_gradients: bool = False
    record: bool | str = True

    export_native_model_files: bool = False
    checkpoint_trainable_policies_only: bool = False

    callbacks_class: Any = RLlibCallback
    callbacks_on_algorithm_init: Hook = None
    callbacks_on_train_result: Hook = None
    callbacks_on_evaluate_start: Hook = None
    callbacks_on_evaluate_end: Hook = None
    callbacks_on_env_runners_recreated: Hook = None
    callbacks_on_checkpoint_loaded: Hook = None
    callbacks_on_environment_created: Hook = None
    callbacks_on_episode_created: Hook = None
    callbacks_on_episode_start: Hook = None
    callbacks_on_episode_step: Hook = None
    callbacks_on_episode_end: Hook = None
    callbacks_on_sample_end: Hook = None
    callbacks_on_evaluate_offline_start: Hook = None
    callbacks_on_evaluate_offline_end: Hook = None
    callbacks_on_offline_eval_runners_recreated: Hook = None

    log_level: str = "WARN"
    log_sys_usage: bool = True
    seed: int | None = None

    enable_rl_module_and_learner: bool = True
    enable_env_runner_and_connector_v2: bool = True
    extra_python_environs_for_driver: dict[str, str] = {}
    extra_python_environs_for_worker: dict[str, str] = {}
    _torch_grad_scaler_class: Callable[[], object] | None = None
    _torch_lr_scheduler_classes: Any = None
    _validate_config: bool = True

    def resources(
        self: ConfigT,
        *,
        num_cpus_for_main_process: float = NotProvided,
        custom_resources_for_main_process: dict[str, float] = NotProvided,
        placement_strategy: str = NotProvided,
        num_gpus: float = NotProvided,
        **older: object,
    ) -> ConfigT:
        """Set the resources of the algorithm's own process.

        Args:
            num_cpus_for_main_process: CPUs.
            custom_resources_for_main_process: Other resources.
            placement_strategy: Strategy of the placement group: PACK, SPREAD, STRICT_PACK or
                STRICT_SPREAD.
            num_gpus: GPUs of the learner (name from older releases).
            older: Option names from older releases.
        """
        given = dict(locals())
        given.update(self._older("resources", given.pop("older")))
        return self._set(given)

    def reporting(
        self: ConfigT,
        *,
        keep_per_episode_custom_metrics: bool = NotProvided,
        metrics_episode_collection_timeout_s: float = NotProvided,
        metrics_num_episodes_for_smoothing: int = NotProvided,
        min_time_s_per_iteration: float | None = NotProvided,
        min_train_timesteps_per_iteration: int = NotProvided,
        min_sample_timesteps_per_iteration: int = NotProvided,
        log_gradients: bool = NotProvided,
        custom_stats_cls_lookup: object = NotProvided,
        record: bool | str = NotProvided,
    ) -> ConfigT:
        """Set the length and the metrics of an iteration.

        An iteration repeats `training_step` until it has reached all minimums.

        Args:
            keep_per_episode_custom_metrics: Has no effect.
            metrics_episode_collection_timeout_s: Has no effect.
            metrics_num_episodes_for_smoothing: Number of episodes over which returns and lengths
            are averaged.
            min_time_s_per_iteration: Minimum seconds per iteration.
            min_train_timesteps_per_iteration: Minimum trained steps per iteration.
            min_sample_timesteps_per_iteration: Minimum sampled steps per iteration.
            log_gradients: Report gradient norms.
            custom_stats_cls_lookup: Has no effect.
            record: Write a run record below the storage path, for the dashboard and
                `syncline runs`. A string is the name of the run, or the path or URI of its
                directory. A search has one record for all trials.
        """
        given = dict(locals())
        del given["custom_stats_cls_lookup"]
        return self._set(given)

    def checkpointing(
        self: ConfigT,
        *,
        export_native_model_files: bool = NotProvided,
        checkpoint_trainable_policies_only: bool = NotProvided,
    ) -> ConfigT:
        """Set the content of checkpoints.

        Args:
            export_native_model_files: Also write the modules as torch files.
            checkpoint_trainable_policies_only: Leave out modules that are not trained.
        """
        return self._set(dict(locals()))

    def callbacks(
        self: ConfigT,
        callbacks_class: type | list[type] = NotProvided,
        *,
        on_algorithm_init: Hook = NotProvided,
        on_train_result: Hook = NotProvided,
        on_evaluate_start: Hook = NotProvided,
        on_evaluate_end: Hook = NotProvided,
        on_env_runners_recreated: Hook = NotProvided,
        on_checkpoint_loaded: Hook = NotProvided,
        on_environment_created: Hook = NotProvided,
        on_episode_created: Hook = NotProvided,
        on_episode_start: Hook = NotProvided,
        on_episode_step: Hook = NotProvided,
        on_episode_end: Hook = NotProvided,
        on_sample_end: Hook = NotProvided,
        on_evaluate_offline_start: Hook = NotProvided,
        on_evaluate_offline_end: Hook = NotProvided,
        on_offline_eval_runners_recreated: Hook = NotProvided,
    ) -> ConfigT:
        """Set callbacks: subclasses of `RLlibCallback`, and functions for single events.

        The functions take the arguments of the methods of that class.
        """
        given = dict(locals())
        hooks = {name: f"callbacks_{name}" for name in given if name.startswith("on_")}
        return self._set(given, **hooks)

    def debugging(
        self: ConfigT,
        *,
        log_level: str = NotProvided,
        log_sys_usage: bool = NotProvided,
        seed: int | None = NotProvided,
        fake_sampler: bool = NotProvided,
    ) -> ConfigT:
        """Set the seed and logs.

        Args:
            log_level: Level of the logger.
            log_sys_usage: Has no effect: run records contain the usage of CPU and memory.
            seed: Seed of environments, exploration, weights and batches.
            fake_sampler: Has no effect.
        """
        given = dict(locals())
        del given["fake_sampler"]
        return self._set(given)

    def python_environment(
        self: ConfigT,
        *,
        extra_python_environs_for_driver: dict[str, str] = NotProvided,
        extra_python_environs_for_worker: dict[str, str] = NotProvided,
    ) -> ConfigT:
        """Set environment variables of the algorithm, the runners and the learners."""
        return self._set(dict(locals()))

    def api_stack(
        self: ConfigT,
        enable_rl_module_and_learner: bool = NotProvided,
        enable_env_runner_and_connector_v2: bool = NotProvided,
    ) -> ConfigT:
        """Choose between the current (both True) and the older API (both False)."""
        return self._set(dict(locals()))

    def experimental(
        self: ConfigT,
        *,
        _torch_grad_scaler_class: object = NotProvided,
        _torch_lr_scheduler_classes: object = NotProvided,
        _validate_config: bool = NotProvided,
        **ignored: object,
    ) -> ConfigT:
        """Set experimental options, whose names may change.

        Args:
            _torch_grad_scaler_class: Class of the gradient scaler for mixed precision.
            _torch_lr_scheduler_classes: Classes of torch learning rate schedulers, stepped after
                each iteration.
            _validate_config: Check the configuration when it is built.
            ignored: Options from older releases.
        """
        given = dict(locals())
        del given["ignored"]
        return self._set(given)
