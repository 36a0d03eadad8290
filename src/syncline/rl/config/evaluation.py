"""Options of evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from syncline.rl.config.section import NotProvided, Section
from syncline.rl.value_types import Options

ConfigT = TypeVar("ConfigT", bound="EvaluationOptions")


class EvaluationOptions(Section):
    """Options of `evaluation()`."""

    evaluation_interval: int | None = None
    evaluation_duration: int | str = 10
    evaluation_duration_unit: str = "episodes"
    evaluation_auto_duration_min_env_steps_per_sample: int = 100
    evaluation_auto_duration_max_env_steps_per_sample: int = 2000
    evaluation_sample_timeout_s: float | None = 120.0
    evaluation_parallel_to_training: bool = False
    evaluation_force_reset_envs_before_iteration: bool = True
    evaluation_config: Any = None
    evaluation_num_env_runners: int = 0
    custom_evaluation_function: Callable[..., Any] | None = None
    evaluation_error_after_n_consecutive_skips: int | None = None
    evaluation_unhealthy_workers_timeout_s: float = 0.0
    off_policy_estimation_methods: Options = {}
    ope_split_batch_by_episode: bool = True
    offline_evaluation_interval: int | None = None
    num_offline_eval_runners: int = 0
    in_evaluation: bool = False

    def evaluation(
        self: ConfigT,
        *,
        evaluation_interval: int | None = NotProvided,
        evaluation_duration: int | Literal["auto"] = NotProvided,
        evaluation_duration_unit: Literal["episodes", "timesteps"] = NotProvided,
        evaluation_auto_duration_min_env_steps_per_sample: int = NotProvided,
        evaluation_auto_duration_max_env_steps_per_sample: int = NotProvided,
        evaluation_sample_timeout_s: float | None = NotProvided,
        evaluation_parallel_to_training: bool = NotProvided,
        evaluation_force_reset_envs_before_iteration: bool = NotProvided,
        evaluation_config: object = NotProvided,
        evaluation_num_env_runners: int = NotProvided,
        custom_evaluation_function: Callable[..., object] | None = NotProvided,
        evaluation_error_after_n_consecutive_skips: int | None = NotProvided,
        evaluation_unhealthy_workers_timeout_s: float = NotProvided,
        off_policy_estimation_methods: Options = NotProvided,
        ope_split_batch_by_episode: bool = NotProvided,
        offline_evaluation_interval: int | None = NotProvided,
        num_offline_eval_runners: int = NotProvided,
        **older: object,
    ) -> ConfigT:
        """Set how the policy is evaluated.

        Args:
            evaluation_interval: Iterations between evaluations; None disables evaluation.
            evaluation_duration: Episodes or steps per evaluation; "auto" evaluates for the duration
                of the parallel training step.
            evaluation_duration_unit: "episodes" or "timesteps".
            evaluation_auto_duration_min_env_steps_per_sample: Minimum steps per sample ("auto").
            evaluation_auto_duration_max_env_steps_per_sample: Maximum steps per sample ("auto").
            evaluation_sample_timeout_s: Seconds after which a runner without an answer is
                reported; see `env_runners(sample_timeout_s=…)`.
            evaluation_parallel_to_training: Evaluate the weights from before an iteration during
                its training; needs `evaluation_num_env_runners`.
            evaluation_force_reset_envs_before_iteration: Begin new episodes for each evaluation
                that counts steps. Evaluations that count episodes always begin new ones.
            evaluation_config: Options that differ in evaluation, such as
                `AlgorithmConfig.overrides(explore=False)`.
            evaluation_num_env_runners: Number of processes that evaluate; 0 evaluates in the
            algorithm's process.
            custom_evaluation_function: Function of (algorithm, env_runner_group) that returns
                (results, environment steps, agent steps).
            evaluation_error_after_n_consecutive_skips: Consecutive evaluations with permanently
                failed runners after which the error is raised; None to skip them with a warning.
            evaluation_unhealthy_workers_timeout_s: Has no effect.
            off_policy_estimation_methods: Estimators for offline data, by name.
            ope_split_batch_by_episode: Estimate each episode separately.
            offline_evaluation_interval: Iterations between evaluations on offline data.
            num_offline_eval_runners: Has no effect: the learner evaluates offline data.
            older: Option names from older releases.
        """
        given = dict(locals())
        given.update(self._older("evaluation", given.pop("older")))
        return self._set(given)
