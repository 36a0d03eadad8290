"""`EpisodeSampling`: `sample()` and `get_metrics()` of env runners, for programs.

Algorithms sample fragments. A program that calls `sample()` gets episodes, for which the runner
builds episode objects from then on.
"""

from __future__ import annotations

from typing import Any

from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.runners.episode_tracker import EpisodeHooks
from syncline.rl.runners.sample import Sample
from syncline.rl.runners.sampling_results import log_samples


class EpisodeSampling:
    """The part of an env runner that returns episodes."""

    config: AlgorithmConfig
    num_envs: int
    worker_index: int
    _unreported: list[Sample]

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Any]:
        """Sample, and return episodes.

        Without a number, sample as the configuration says: steps of a fragment for every
        environment, or an episode of every environment if `batch_mode="complete_episodes"`.

        Args:
            num_timesteps: Steps of all environments together, rounded up to a multiple of their
                number. Returns the episodes that ended, and parts of those that go on; the next
                call returns their next parts.
            num_episodes: Number of complete episodes, which begin now. Returns these.
            explore: Draw actions; None for the configured value.
            random_actions: Draw all actions uniformly.
            force_reset: Begin new episodes before.

        Raises:
            ValueError: Both numbers are given.
        """
        if num_timesteps is not None and num_episodes is not None:
            raise ValueError(
                f"sample() got num_timesteps={num_timesteps} and num_episodes={num_episodes}. Pass "
                "one of them."
            )
        tracker = self._tracked()
        if force_reset:
            self.reset()
        if num_timesteps is None and num_episodes is None:
            if self.config.batch_mode == "complete_episodes":
                num_episodes = self.num_envs
            else:
                length = self.config.get_rollout_fragment_length(self.worker_index)
                num_timesteps = length * self.num_envs
        tracker.begin_collecting()
        how: dict[str, Any] = {"explore": explore, "random_actions": random_actions}
        if num_episodes is not None:
            sample = self.sample_episodes(num_episodes, **how)
            episodes = tracker.collected_by_share(num_episodes, self.num_envs)
        else:
            assert num_timesteps is not None
            sample = self.sample_steps(-(-num_timesteps // self.num_envs), **how)
            episodes = tracker.collected_with_parts(self.config.episode_lookback_horizon)
        sample.fragments = {}
        self._unreported.append(sample)
        return episodes

    def get_metrics(self) -> Any:
        """Return the metrics of what `sample()` returned since the last call, for
        `MetricsLogger.aggregate`.
        """
        logger = MetricsLogger()
        log_samples(logger, (), self._unreported, self.config.metrics_num_episodes_for_smoothing)
        self._unreported.clear()
        return logger.reduce(compile=False)

    def reset(self) -> None:
        """Begin a new episode in every environment."""
        raise NotImplementedError

    def sample_steps(
        self,
        steps: int,
        *,
        explore: bool | None = None,
        random_actions: bool = False,
        step: int | None = None,
    ) -> Sample:
        """Take `steps` steps in every environment."""
        raise NotImplementedError

    def sample_episodes(
        self, count: int, *, explore: bool | None = None, random_actions: bool = False
    ) -> Sample:
        """Sample `count` complete episodes, which begin now."""
        raise NotImplementedError

    def _tracked(self) -> EpisodeHooks:
        """Return the tracker of episodes; make it, and begin new episodes, if there is none."""
        raise NotImplementedError
