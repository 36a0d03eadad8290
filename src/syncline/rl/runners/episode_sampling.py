"""`EpisodeSampling`: `sample()` and `get_metrics()` of env runners, for programs.

Algorithms sample fragments. `sample()` returns episodes to a program; the runner builds episode
objects from its first call.
"""

from __future__ import annotations

from typing import Any

from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.runners.episode_tracker import EpisodeHooks
from syncline.rl.runners.sample import Sample
from syncline.rl.runners.sampling_results import log_samples
from syncline.rl.value_types import Options


class EpisodeSampling:
    """The methods of an env runner that return episodes."""

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
        """Sample and return episodes.

        Without a number, sample the configured fragment length in every environment or, with
        `batch_mode="complete_episodes"`, one episode per environment.

        Args:
            num_timesteps: Total number of steps of all environments, rounded up to a multiple of
                their number. Returns finished episodes and parts of unfinished ones; the next
                call returns their next parts.
            num_episodes: Number of complete new episodes to return.
            explore: Sample actions; None for the configured value.
            random_actions: Sample all actions uniformly.
            force_reset: First begin new episodes.

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
        how: Options = {"explore": explore, "random_actions": random_actions}
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
        """Return the metrics of `sample()` since the last call, for `MetricsLogger.aggregate`."""
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
        """Sample `count` complete new episodes."""
        raise NotImplementedError

    def _tracked(self) -> EpisodeHooks:
        """Return the episode tracker; if missing, create it and begin new episodes."""
        raise NotImplementedError
