"""Evaluation: samples of the present policy, and their results."""

from __future__ import annotations

from typing import Any

from syncline.rl.algorithm.sampling_results import log_samples
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import ENV_RUNNER_RESULTS
from syncline.rl.runners.group import EnvRunnerGroup


def evaluate_with(group: EnvRunnerGroup, config: Any) -> dict[str, Any]:
    """Sample `config.evaluation_duration` episodes or steps; return results under "env_runners"."""
    if config.evaluation_duration_unit == "episodes":
        samples = group.sample_episodes(config.evaluation_duration)
    else:
        samples = group.sample_steps(config.evaluation_duration)
    metrics = MetricsLogger(root=True)
    window = max(sum(len(sample.episodes) for sample in samples), 1)
    log_samples(metrics, (ENV_RUNNER_RESULTS,), samples, window)
    return metrics.reduce(compile=True)
