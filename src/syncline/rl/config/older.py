"""Names of options in earlier releases, and their current names."""

from __future__ import annotations

RENAMED = {
    "lambda": "lambda_",
    "input": "input_",
    "framework": "framework_str",
    "callbacks": "callbacks_class",
    "num_workers": "num_env_runners",
    "num_rollout_workers": "num_env_runners",
    "num_envs_per_worker": "num_envs_per_env_runner",
    "num_cpus_per_worker": "num_cpus_per_env_runner",
    "num_gpus_per_worker": "num_gpus_per_env_runner",
    "custom_resources_per_worker": "custom_resources_per_env_runner",
    "validate_workers_after_construction": "validate_env_runners_after_construction",
    "num_cpus_for_driver": "num_cpus_for_main_process",
    "num_cpus_for_local_worker": "num_cpus_for_main_process",
    "num_learner_workers": "num_learners",
    "num_cpus_per_learner_worker": "num_cpus_per_learner",
    "num_gpus_per_learner_worker": "num_gpus_per_learner",
    "sgd_minibatch_size": "minibatch_size",
    "num_sgd_iter": "num_epochs",
    "train_batch_size_per_learner": "_train_batch_size_per_learner",
    "learner_class": "_learner_class",
    "is_atari": "_is_atari",
    "rl_module_spec": "_rl_module_spec",
    "model_config": "_model_config",
    "env_to_module_connector": "_env_to_module_connector",
    "module_to_env_connector": "_module_to_env_connector",
    "learner_connector": "_learner_connector",
    "evaluation_num_workers": "evaluation_num_env_runners",
    "evaluation_num_episodes": "evaluation_duration",
    "custom_eval_function": "custom_evaluation_function",
    "create_env_on_driver": "create_env_on_local_worker",
    "recreate_failed_workers": "restart_failed_env_runners",
    "recreate_failed_env_runners": "restart_failed_env_runners",
    "ignore_worker_failures": "ignore_env_runner_failures",
    "max_num_worker_restarts": "max_num_env_runner_restarts",
    "delay_between_worker_restarts_s": "delay_between_env_runner_restarts_s",
    "num_consecutive_worker_failures_tolerance": "num_consecutive_env_runner_failures_tolerance",
    "worker_health_probe_timeout_s": "env_runner_health_probe_timeout_s",
    "worker_restore_timeout_s": "env_runner_restore_timeout_s",
    "metrics_smoothing_episodes": "metrics_num_episodes_for_smoothing",
    "min_iter_time_s": "min_time_s_per_iteration",
    "min_time_s_per_reporting": "min_time_s_per_iteration",
    "min_sample_timesteps_per_reporting": "min_sample_timesteps_per_iteration",
    "min_train_timesteps_per_reporting": "min_train_timesteps_per_iteration",
    "timesteps_per_iteration": "min_sample_timesteps_per_iteration",
    "learning_starts": "num_steps_sampled_before_learning_starts",
    "max_requests_in_flight_per_sampler_worker": "max_requests_in_flight_per_env_runner",
}
"""Older dictionary keys and method keywords, by their current attributes."""

OLDER_NAMES = frozenset(
    name
    for name, attribute in RENAMED.items()
    if attribute.lstrip("_") != name
    and name not in ("lambda", "input", "framework", "callbacks", "metrics_smoothing_episodes")
)
"""Names used only by programs for older releases."""

WITHOUT_EFFECT = frozenset(
    {
        "eager_tracing",
        "eager_max_retraces",
        "tf_session_args",
        "local_tf_session_args",
        "simple_optimizer",
        "monitor",
        "remote_worker_envs",
        "remote_env_batch_wait_ms",
        "enable_tf1_exec_eagerly",
        "sample_collector",
        "shuffle_sequences",
        "replay_mode",
        "replay_sequence_length",
        "off_policy_estimation_methods",
        "ope_split_batch_by_episode",
        "prioritized_replay_eps",
        "worker_side_prioritization",
        "sample_async",
        "preprocessor_pref",
        "synchronize_filters",
        "synchronize_filter",
        "enable_connectors",
        "sampler_perf_stats_ema_coef",
        "update_worker_filter_stats",
        "use_worker_filter_stats",
        "batch_size_unit",
        "fake_sampler",
        "env_task_fn",
        "policy_map_cache",
        "always_attach_evaluation_results",
        "custom_stats_cls_lookup",
        "_disable_preprocessor_api",
        "_disable_action_flattening",
        "_disable_execution_plan_api",
        "_disable_initialize_loss_from_dummy_batch",
        "_enable_rl_module_api",
        "_enable_learner_api",
        "_enable_new_api_stack",
        "_fake_gpus",
    }
)
"""Options from older releases that are accepted without effect."""
