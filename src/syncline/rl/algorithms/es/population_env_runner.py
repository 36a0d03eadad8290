"""`PopulationEnvRunner`: runs episodes of perturbed policies.

Every environment of the runner plays with a separate policy and takes the next job at the end of
its episode. The outcome of a job depends only on the job and the weights, not on the runner, its
other jobs, or the number of runners.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from syncline.core import api
from syncline.core.refs import ObjectRef
from syncline.rl.columns.trees import map_tree, stack_trees
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.runners.single_agent_env_runner import SingleAgentEnvRunner
from syncline.rl.value_types import ModuleType, Tree


@dataclass(frozen=True, kw_only=True)
class Job:
    """One episode of a perturbed policy: theta + sign * noise_stdev * noise."""

    number: int
    """Index among the jobs of an iteration."""
    noise_index: int
    """Start of the noise in the table."""
    sign: int
    """1 or -1; 0 for the unperturbed policy without action noise."""
    seed: int
    """Seed of the episode."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Outcome of a job."""

    job: Job
    episode_return: float
    length: int
    duration_s: float
    obs_sum: np.ndarray | None
    """Sum of the episode's observations, [D], float64; None for nested ones."""
    obs_squares: np.ndarray | None
    """Sum of the squared observations."""


class PopulationEnvRunner(SingleAgentEnvRunner):
    """Runs jobs on `num_envs_per_env_runner` environments."""

    _table: np.ndarray | None = None

    def __init__(self, *, config: AlgorithmConfig, **kwargs: Any) -> None:
        config = config.copy(copy_frozen=False)
        config.observation_filter = "NoFilter"  # the module contains the filter
        super().__init__(config=config, **kwargs)

    def run_jobs(self, table: ObjectRef[np.ndarray] | np.ndarray, jobs: list[Job]) -> list[Outcome]:
        """Return the outcomes of jobs in the order in which they ended.

        Args:
            table: Noise, float32; a reference to it in shared memory, or the array.
            jobs: Episodes to run.
        """
        if self._table is None:
            self._table = table if isinstance(table, np.ndarray) else api.get(table)
        if not jobs:
            return []
        module: ModuleType = self.module
        theta = module.flat_weights()
        waiting = deque(jobs)
        episodes = [
            _Episode(place, waiting.popleft(), self._clock())
            for place in range(min(self.num_envs, len(jobs)))
        ]
        population = module.population(
            np.stack([self._perturbed(theta, each.job) for each in episodes])
        )
        for episode in episodes:
            episode.obs = self.env.reset_one(episode.place, episode.job.seed)
        outcomes: list[Outcome] = []
        while episodes:
            actions = module.actions_of(
                population.outputs(stack_trees(np.stack, [each.obs for each in episodes]))
            )
            ended = self._step(episodes, self._with_noise(actions, episodes))
            for index in ended:
                outcomes.append(episodes[index].outcome(self._clock()))
                if waiting:
                    place, job = episodes[index].place, waiting.popleft()
                    episodes[index] = _Episode(place, job, self._clock())
                    episodes[index].obs = self.env.reset_one(place, job.seed)
                    population.set(index, self._perturbed(theta, job))
            if ended and not waiting:
                kept = [n for n, each in enumerate(episodes) if not each.is_over]
                if kept and len(kept) < len(episodes):
                    population.keep(kept)
                episodes = [episodes[n] for n in kept]
        self._obs = None  # the next sample of steps begins new episodes
        return outcomes

    def _perturbed(self, theta: np.ndarray, job: Job) -> np.ndarray:
        if not job.sign:
            return theta
        assert self._table is not None
        noise = self._table[job.noise_index : job.noise_index + len(theta)]
        scale = np.float32(job.sign * self.config.noise_stdev)
        perturbed: np.ndarray = theta + scale * noise
        return perturbed

    def _with_noise(self, actions: np.ndarray, episodes: Sequence[_Episode]) -> Tree:
        """Return the actions for the environments."""
        deviation = self.config.action_noise_std
        if deviation and isinstance(self.action_space, spaces.Box):
            noise = [each.action_noise(actions.shape[1:]) for each in episodes]
            actions = actions + np.float32(deviation) * np.stack(noise)
        if self._to_env is not None:
            actions = self._to_env(actions)
        return actions.astype(self.action_space.dtype)

    def _step(self, episodes: list[_Episode], actions: Tree) -> list[int]:
        """Step all episodes; return the indices of the finished ones."""
        ended = []
        for index, episode in enumerate(episodes):
            episode.count_observation()
            action = map_tree(lambda leaf, at=index: leaf[at], actions)
            obs, reward, terminated, truncated, _ = self.env.step_one(episode.place, action)
            episode.obs = obs
            episode.episode_return += float(reward)
            episode.length += 1
            if terminated or truncated:
                episode.is_over = True
                ended.append(index)
        return ended


class _Episode:
    """An episode in progress."""

    def __init__(self, place: int, job: Job, now: float) -> None:
        self.place = place
        self.job = job
        self.obs: Tree = None
        self.episode_return = 0.0
        self.length = 0
        self.is_over = False
        self._began = now
        self._observed: list[np.ndarray] = []
        self._random = np.random.Generator(
            np.random.Philox(np.random.SeedSequence([job.seed, job.sign + 1]))
        )

    def count_observation(self) -> None:
        """Add the current observation to the filter statistics."""
        if isinstance(self.obs, np.ndarray):
            self._observed.append(self.obs)

    def action_noise(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return N(0, 1) for an action; 0 without perturbation."""
        if not self.job.sign:
            return np.zeros(shape, np.float32)
        return self._random.standard_normal(shape, np.float32)

    def outcome(self, now: float) -> Outcome:
        """Return the outcome at the end."""
        observed = np.array(self._observed, np.float64) if self._observed else None
        return Outcome(
            job=self.job,
            episode_return=self.episode_return,
            length=self.length,
            duration_s=now - self._began,
            obs_sum=None if observed is None else observed.sum(0),
            obs_squares=None if observed is None else np.square(observed).sum(0),
        )
