"""Results under the keys of older releases, for programs that read them."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.rl.value_types import OptionMapping, Results

RETURNS = {
    "episode_reward_mean": "episode_return_mean",
    "episode_reward_max": "episode_return_max",
    "episode_reward_min": "episode_return_min",
    "episode_len_mean": "episode_len_mean",
    "episodes_this_iter": "num_episodes",
    "num_episodes": "num_episodes",
}
"""Keys of older releases, and their keys under "env_runners"."""


def older_results(result: OptionMapping) -> Results:
    """Return the result of an iteration under the keys of older releases."""
    found = sampler_results(result.get("env_runners", {}))
    steps = int(result.get("num_env_steps_sampled_lifetime", 0))
    learners = {
        module_id: {"learner_stats": _with_older_names(stats), **stats}
        for module_id, stats in result.get("learners", {}).items()
        if module_id != "__all_modules__" and isinstance(stats, Mapping)
    }
    trained = result.get("learners", {}).get("__all_modules__", {})
    made = {
        **found,
        "sampler_results": dict(found),
        "timesteps_total": steps,
        "num_env_steps_sampled": steps,
        "num_env_steps_trained": trained.get("num_env_steps_trained_lifetime", 0),
        "num_agent_steps_sampled": steps,
        "num_steps_trained_this_iter": trained.get("num_env_steps_trained", 0),
        "agent_timesteps_total": steps,
        "info": {
            "learner": learners,
            "num_env_steps_sampled": steps,
            "num_env_steps_trained": trained.get("num_env_steps_trained_lifetime", 0),
            "num_steps_sampled": steps,
            "num_steps_trained": trained.get("num_env_steps_trained_lifetime", 0),
        },
        "num_healthy_workers": result.get("fault_tolerance", {}).get("num_healthy_workers", 0),
    }
    evaluation = result.get("evaluation")
    if isinstance(evaluation, Mapping) and "env_runners" in evaluation:
        made["evaluation"] = {**evaluation, **sampler_results(evaluation["env_runners"])}
    return made


def sampler_results(sampled: OptionMapping) -> Results:
    """Return the results of samples under the keys of older releases."""
    made: Results = {older: sampled[name] for older, name in RETURNS.items() if name in sampled}
    policies = {
        name: value
        for name, value in sampled.get("module_episode_returns_mean", {}).items()
        if name != "default_policy"
    }
    made["episodes_total"] = sampled.get("num_episodes_lifetime", 0)
    made["policy_reward_mean"] = policies
    made["custom_metrics"] = dict(sampled.get("custom_metrics", {}))
    made["hist_stats"] = {
        "episode_reward": [made["episode_reward_mean"]] if "episode_reward_mean" in made else [],
        "episode_lengths": [made["episode_len_mean"]] if "episode_len_mean" in made else [],
    }
    return made


def _with_older_names(stats: Mapping[str, object]) -> Results:
    renamed = {
        "mean_kl_loss": "kl",
        "curr_kl_coeff": "cur_kl_coeff",
        "default_optimizer_learning_rate": "cur_lr",
        "curr_entropy_coeff": "entropy_coeff",
        "gradients_default_optimizer_global_norm": "grad_gnorm",
        "qf_mean": "mean_q",
        "td_error_mean": "mean_td_error",
    }
    return {**stats, **{older: stats[name] for name, older in renamed.items() if name in stats}}
