"""Common code of ES and ARS: options, noise table, mirrored episodes, observation filter."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from syncline.core import api
from syncline.rl.algorithm.algorithm import Algorithm
from syncline.rl.algorithms.es.population_env_runner import Job, Outcome, PopulationEnvRunner
from syncline.rl.algorithms.es.torch.evolution_torch_learner import ASCENT, STEPS
from syncline.rl.algorithms.es.torch.evolution_torch_module import EvolutionTorchRLModule
from syncline.rl.checkpointable import StateDict
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.config.section import NotProvided, check_choice
from syncline.rl.metrics.names import DEFAULT_MODULE_ID, ENV_RUNNER_RESULTS
from syncline.rl.modules.rl_module import RLModuleSpec
from syncline.rl.modules.torch.catalog import Catalog
from syncline.rl.runners.sample import EpisodeResult, Sample
from syncline.rl.runners.sampling_results import log_samples
from syncline.rl.value_types import EnvRunnerType, ModuleType, Results, Selection

ConfigT = TypeVar("ConfigT", bound="EvolutionConfig")

NUMBERS_PER_WEIGHT = 500
SMALLEST_TABLE = 1_000_000
"""Minimum size of noise tables, enough for many different perturbations."""
ROWS_AT_ONCE = 64
"""Number of perturbations summed in one operation."""
SMALLEST_DEVIATION = 1e-7
"""Standard deviation below which an observation element is replaced by 0."""


class EvolutionConfig(AlgorithmConfig):
    """Options of ES and ARS."""

    noise_stdev: float = 0.02
    noise_size: int = 250_000_000
    action_noise_std: float = 0.01
    eval_prob: float = 0.03
    report_length: int = 10
    l2_coeff: float = 0.0

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self.num_env_runners = 10
        self.num_envs_per_env_runner = 8
        self.observation_filter = "MeanStdFilter"
        self.evaluation(evaluation_config=AlgorithmConfig.overrides(explore=False))

    def training(
        self: ConfigT,
        *,
        noise_stdev: float = NotProvided,
        noise_size: int = NotProvided,
        action_noise_std: float = NotProvided,
        eval_prob: float = NotProvided,
        report_length: int = NotProvided,
        l2_coeff: float = NotProvided,
        **kwargs: Any,
    ) -> ConfigT:
        """Set hyperparameters.

        Args:
            noise_stdev: Standard deviation of the perturbations of weights.
            noise_size: Maximum size of the noise table, which all runners share; 4 bytes per
                number. Small policies have smaller tables: 500 numbers per weight, at least 1 M.
            action_noise_std: Standard deviation of the noise added to continuous actions.
            eval_prob: Ratio of episodes with the unperturbed policy to perturbed episodes; at
                least one per iteration. Reported returns come from these episodes.
            report_length: Minimum number of these episodes in the reported mean.
            l2_coeff: Coefficient of the weight decay.
            kwargs: Options of all algorithms.
        """
        given = dict(locals())
        super().training(**given.pop("kwargs"))
        given.pop("__class__", None)
        return self._set(given)

    def validate(self) -> None:
        """Check all options."""
        name = type(self).__name__.removesuffix("Config")
        if self.is_multi_agent:
            raise ValueError(f"{name} trains one policy of one agent: remove `multi_agent(…)`.")
        super().validate()
        check_choice("observation_filter", self.observation_filter, ("MeanStdFilter", "NoFilter"))
        if self.num_learners:
            raise ValueError(
                f"`num_learners={self.num_learners}` does not help {name}, whose update is one "
                "optimizer step: set it to 0, and raise `num_env_runners`."
            )
        if self.gym_env_vectorize_mode not in ("sync",):
            raise ValueError(
                f"{name} starts episodes in each environment separately, which "
                f"`gym_env_vectorize_mode={self.gym_env_vectorize_mode!r}` cannot do: use 'sync'."
            )
        if self.noise_stdev <= 0:
            raise ValueError(f"`noise_stdev={self.noise_stdev!r}` must be positive.")

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """Return the specification of a deterministic policy."""
        return RLModuleSpec(module_class=EvolutionTorchRLModule, catalog_class=Catalog)


class EvolutionAlgorithm(Algorithm):
    """Base of ES and ARS."""

    def _build(self, config: AlgorithmConfig) -> None:
        super()._build(config)
        module: ModuleType = self.learner_group.local_modules[DEFAULT_MODULE_ID]
        self._num_weights = len(module.flat_weights())
        self._filter = RunningFilter(module.filter_mean.shape[0]) if module.filters else None
        self._rounds = 0
        self._episodes_so_far = 0
        self._noise_seed = self.seed
        self._make_table()

    def _make_table(self) -> None:
        enough = max(NUMBERS_PER_WEIGHT * self._num_weights, SMALLEST_TABLE)
        size = min(self.config.noise_size, enough)
        self.noise = noise_table(size, self._noise_seed, self._num_weights)
        self._shared_noise: Any = self.noise
        if self.config.num_env_runners:
            self._shared_noise = api.put(self.noise)
            self.noise = api.get(self._shared_noise)  # shares memory pages with the runners

    def env_runner_class(self, config: AlgorithmConfig) -> type:
        """Return the class of env runners."""
        return config.env_runner_cls or PopulationEnvRunner

    # -- episodes

    def run_pairs(self, pairs: int) -> list[tuple[Outcome, Outcome]]:
        """Run `pairs` mirrored episodes, and some with the unperturbed policy, whose results are
        logged.

        Both episodes of a pair have the same seed.
        """
        random = np.random.Generator(
            np.random.Philox(np.random.SeedSequence([self._noise_seed, self._rounds]))
        )
        self._rounds += 1
        starts = random.integers(0, len(self.noise) - self._num_weights + 1, pairs)
        seeds = random.integers(2**31, size=pairs)
        jobs = [
            Job(number=2 * n + place, noise_index=int(start), sign=sign, seed=int(seed))
            for n, (start, seed) in enumerate(zip(starts, seeds, strict=True))
            for place, sign in enumerate((1, -1))
        ]
        evaluations = max(math.ceil(self.config.eval_prob * len(jobs)), 1)
        jobs += [
            Job(number=2 * pairs + n, noise_index=0, sign=0, seed=int(random.integers(2**31)))
            for n in range(evaluations)
        ]
        outcomes = self._run(jobs)
        self._log(outcomes, outcomes[2 * pairs :])
        return list(zip(outcomes[: 2 * pairs : 2], outcomes[1 : 2 * pairs : 2], strict=True))

    def _run(self, jobs: list[Job]) -> list[Outcome]:
        """Return the outcomes of jobs, in their order."""
        group = self.env_runner_group
        indices = group.healthy_env_runner_ids() or [0]
        shares = {index: jobs[n :: len(indices)] for n, index in enumerate(indices)}
        parts = group.foreach_env_runner(
            functools.partial(_run_share, table=self._shared_noise, shares=shares)
        )
        outcomes = sorted(
            (outcome for part in parts for outcome in part), key=lambda each: each.job.number
        )
        if len(outcomes) < len(jobs):  # a runner failed permanently; the others take its jobs
            done = {outcome.job.number for outcome in outcomes}
            missing = [job for job in jobs if job.number not in done]
            return sorted([*outcomes, *self._run(missing)], key=lambda each: each.job.number)
        if self._filter is not None:
            for outcome in outcomes:
                self._filter.add(outcome)
        return outcomes

    def _log(self, outcomes: Sequence[Outcome], evaluations: Sequence[Outcome]) -> None:
        steps = sum(outcome.length for outcome in outcomes)
        self._env_steps += steps
        self._episodes_so_far += len(outcomes)
        sample = Sample(
            fragments={},
            episodes=[
                EpisodeResult(
                    env=0,
                    episode_return=outcome.episode_return,
                    length=outcome.length,
                    duration_s=outcome.duration_s,
                )
                for outcome in evaluations
            ],
            env_steps=steps,
            module_steps={DEFAULT_MODULE_ID: steps},
        )
        window = max(self.config.report_length, len(evaluations))
        log_samples(self.metrics, (ENV_RUNNER_RESULTS,), [sample], window)

    # -- updates

    def ascend(self, weights: np.ndarray, pairs: Sequence[tuple[Outcome, Outcome]]) -> Results:
        """Step along the sum of `weights[n]` times the noise of pair n; return metrics."""
        starts = [positive.job.noise_index for positive, _ in pairs]
        ascent = weighted_noise(self.noise, starts, weights, self._num_weights)
        steps = sum(each.length for pair in pairs for each in pair)
        self.update(
            batch=self.learner_group.batch_of_rows(
                {DEFAULT_MODULE_ID: {ASCENT: ascent, STEPS: steps}}
            )
        )
        if self._filter is not None and self.config.observation_filter == "MeanStdFilter":
            mean, scale = self._filter.mean_and_scale()
            self.learner_group.foreach_learner(
                lambda learner: learner.module[DEFAULT_MODULE_ID].set_filter(mean, scale)
            )
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group)
        return {
            "info": {
                "episodes_this_iter": 2 * len(pairs),
                "episodes_so_far": self._episodes_so_far,
                "timesteps_this_iter": steps,
            }
        }

    # -- state

    def get_state(
        self, components: Selection = None, *, not_components: Selection = None, **kwargs: object
    ) -> StateDict:
        """Return everything that the next iteration depends on."""
        return {
            **super().get_state(components, not_components=not_components, **kwargs),
            "evolution": {
                "rounds": self._rounds,
                "episodes_so_far": self._episodes_so_far,
                "noise_seed": self._noise_seed,
                "filter": None if self._filter is None else self._filter.get_state(),
            },
        }

    def set_state(self, state: StateDict) -> None:
        """Restore a state with any number of runners."""
        own = state.get("evolution")
        # Every job begins an episode, so runners need no state.
        super().set_state({key: each for key, each in state.items() if key != "env_runners"})
        if own is None:
            return
        self._rounds = own["rounds"]
        self._episodes_so_far = own["episodes_so_far"]
        if self._filter is not None and own["filter"] is not None:
            self._filter.set_state(own["filter"])
        if own["noise_seed"] != self._noise_seed:
            self._noise_seed = own["noise_seed"]
            self._make_table()


class RunningFilter:
    """Mean and standard deviation of all observations so far.

    Args:
        size: Length of an observation.
    """

    def __init__(self, size: int) -> None:
        self._count = 0
        self._sum = np.zeros(size)
        self._squares = np.zeros(size)

    def add(self, outcome: Outcome) -> None:
        """Add the observations of an episode."""
        if outcome.obs_sum is not None and outcome.obs_squares is not None:
            self._count += outcome.length
            self._sum += outcome.obs_sum
            self._squares += outcome.obs_squares

    def mean_and_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and 1 / standard deviation (0 for constant elements), float32."""
        mean = self._sum / max(self._count, 1)
        deviation = np.sqrt(np.maximum(self._squares / max(self._count, 1) - mean**2, 0.0))
        varies = deviation > SMALLEST_DEVIATION
        scale = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
        return mean.astype(np.float32), scale.astype(np.float32)

    def get_state(self) -> tuple[int, np.ndarray, np.ndarray]:
        """Return the sums."""
        return self._count, self._sum.copy(), self._squares.copy()

    def set_state(self, state: tuple[int, np.ndarray, np.ndarray]) -> None:
        """Set the sums."""
        self._count, self._sum, self._squares = state[0], state[1].copy(), state[2].copy()


def noise_table(size: int, seed: int, num_weights: int) -> np.ndarray:
    """Return `size` numbers from N(0, 1), float32.

    Raises:
        ValueError: The table is shorter than the perturbation of one policy.
    """
    if size < num_weights:
        raise ValueError(
            f"`noise_size={size}` is less than the {num_weights} weights of the policy: set it to "
            f"{10 * num_weights} or more."
        )
    random = np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, size])))
    return random.standard_normal(size, np.float32)


def weighted_noise(
    table: np.ndarray, starts: Sequence[int], weights: np.ndarray, size: int
) -> np.ndarray:
    """Return the sum of `weights[n] * table[starts[n] : starts[n] + size]`, float32."""
    total = np.zeros(size, np.float32)
    for begin in range(0, len(starts), ROWS_AT_ONCE):
        rows = np.stack(
            [table[start : start + size] for start in starts[begin : begin + ROWS_AT_ONCE]]
        )
        total += weights[begin : begin + ROWS_AT_ONCE].astype(np.float32) @ rows
    return total


def _run_share(runner: EnvRunnerType, table: Any, shares: dict[int, list[Job]]) -> list[Outcome]:
    found: list[Outcome] = runner.run_jobs(table, shares.get(runner.worker_index, []))
    return found
