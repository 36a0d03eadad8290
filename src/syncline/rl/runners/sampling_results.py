"""Metrics of samples: returns, lengths, counts and times, under RLlib's names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import (
    DEFAULT_AGENT_ID,
    DEFAULT_MODULE_ID,
    EPISODE_AGENT_RETURN_MEAN,
    EPISODE_DURATION_SEC_MEAN,
    EPISODE_LEN_MAX,
    EPISODE_LEN_MEAN,
    EPISODE_LEN_MIN,
    EPISODE_MODULE_RETURN_MEAN,
    EPISODE_RETURN_MAX,
    EPISODE_RETURN_MEAN,
    EPISODE_RETURN_MIN,
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
)
from syncline.rl.runners.sample import EpisodeResult, Sample

_RETURNS = ((EPISODE_RETURN_MEAN, "mean"), (EPISODE_RETURN_MIN, "min"), (EPISODE_RETURN_MAX, "max"))
_LENGTHS = ((EPISODE_LEN_MEAN, "mean"), (EPISODE_LEN_MIN, "min"), (EPISODE_LEN_MAX, "max"))


def log_samples(
    metrics: MetricsLogger, prefix: tuple[str, ...], samples: Sequence[Sample], window: int
) -> None:
    """Log the metrics of samples.

    Args:
        metrics: The algorithm's logger.
        prefix: Path of the results, such as ("env_runners",).
        samples: Samples of the runners.
        window: Number of episodes for means, minima and maxima.
    """
    episodes = [episode for sample in samples for episode in sample.episodes]
    _log_episodes(metrics, prefix, episodes, window)
    _count(metrics, (*prefix, NUM_EPISODES), (*prefix, NUM_EPISODES_LIFETIME), len(episodes))
    steps = sum(sample.env_steps for sample in samples)
    _count(
        metrics, (*prefix, NUM_ENV_STEPS_SAMPLED), (*prefix, NUM_ENV_STEPS_SAMPLED_LIFETIME), steps
    )
    for sample in samples:
        agent_steps = sample.agent_steps or {DEFAULT_AGENT_ID: sample.env_steps}
        for agent, count in agent_steps.items():
            _count(
                metrics,
                (*prefix, NUM_AGENT_STEPS_SAMPLED, agent),
                (*prefix, NUM_AGENT_STEPS_SAMPLED_LIFETIME, agent),
                count,
            )
        for module_id, count in sample.module_steps.items():
            _count(
                metrics,
                (*prefix, NUM_MODULE_STEPS_SAMPLED, module_id),
                (*prefix, NUM_MODULE_STEPS_SAMPLED_LIFETIME, module_id),
                count,
            )
        for name, seconds in (
            ("sample", sample.times.total_s),
            ("env_step_timer", sample.times.env_s),
            ("rlmodule_inference_timer", sample.times.inference_s),
        ):
            metrics.log_value((*prefix, name), seconds, reduce="mean", window=len(samples))
        if sample.metrics is not None:
            metrics.aggregate([sample.metrics], key=prefix)


def _count(
    metrics: MetricsLogger, key: tuple[object, ...], lifetime: tuple[object, ...], count: int
) -> None:
    metrics.log_value(key, count, reduce="sum")
    metrics.log_value(lifetime, count, reduce="lifetime_sum")


def _log_episodes(
    metrics: MetricsLogger, prefix: tuple[str, ...], episodes: Iterable[EpisodeResult], window: int
) -> None:
    for name, reduce in (*_RETURNS, *_LENGTHS, (EPISODE_DURATION_SEC_MEAN, "mean")):
        if (*prefix, name) not in metrics:  # NaN until an episode ends, so that the key exists
            metrics.log_value((*prefix, name), math.nan, reduce=reduce, window=window)
    for episode in episodes:
        for name, reduce in _RETURNS:
            metrics.log_value((*prefix, name), episode.episode_return, reduce=reduce, window=window)
        for name, reduce in _LENGTHS:
            metrics.log_value((*prefix, name), episode.length, reduce=reduce, window=window)
        metrics.log_value(
            (*prefix, EPISODE_DURATION_SEC_MEAN), episode.duration_s, reduce="mean", window=window
        )
        for name, returns in (
            (
                EPISODE_AGENT_RETURN_MEAN,
                episode.agent_returns or {DEFAULT_AGENT_ID: episode.episode_return},
            ),
            (
                EPISODE_MODULE_RETURN_MEAN,
                episode.module_returns or {DEFAULT_MODULE_ID: episode.episode_return},
            ),
        ):
            for key, value in returns.items():
                metrics.log_value((*prefix, name, key), value, reduce="mean", window=window)
