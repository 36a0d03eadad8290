"""Evaluation: samples with the current policy, and the results.

Covered: episodes or steps, a custom evaluation function, evaluation in parallel to training. Not
covered: when which policy is evaluated (`algorithm`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from syncline.exceptions import RayActorError
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import ENV_RUNNER_RESULTS
from syncline.rl.runners.group import EnvRunnerGroup
from syncline.rl.runners.sample import Sample
from syncline.rl.runners.sampling_results import log_samples
from syncline.rl.value_types import AlgorithmType, Results

logger = logging.getLogger("syncline")


class Evaluator:
    """Evaluates with the runners of a group.

    Args:
        config: The algorithm's options.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self._skips = 0

    def run(
        self,
        group: EnvRunnerGroup,
        *,
        algorithm: AlgorithmType,
        goes_on: Callable[[], bool] = lambda: False,
    ) -> Results:
        """Return the results, under "env_runners".

        Args:
            group: The runners, with the weights to evaluate.
            algorithm: Passed to a custom evaluation function.
            goes_on: With `evaluation_duration="auto"`: return True to sample more.

        Raises:
            RayActorError: The runners failed permanently in
                `evaluation_error_after_n_consecutive_skips` consecutive evaluations.
        """
        try:
            results = self._evaluate(group, algorithm, goes_on)
        except RayActorError as error:
            self._skips += 1
            limit = self._config.evaluation_error_after_n_consecutive_skips
            if limit is not None and self._skips >= limit:
                raise
            logger.warning("Evaluation is skipped because its runners failed: %s", error)
            return {ENV_RUNNER_RESULTS: {}}
        self._skips = 0
        return results

    def _evaluate(
        self, group: EnvRunnerGroup, algorithm: AlgorithmType, goes_on: Callable[[], bool]
    ) -> Results:
        config = self._config
        function = config.custom_evaluation_function
        if function is not None:
            return _results_of(function, function(algorithm, group))
        in_steps = config.evaluation_duration_unit == "timesteps"
        if in_steps and config.evaluation_force_reset_envs_before_iteration:
            group.foreach_env_runner("reset")
        if config.evaluation_duration == "auto":
            samples = self._sample_while(group, in_steps, goes_on)
        elif in_steps:
            samples = group.sample_steps(config.evaluation_duration)
        else:
            samples = group.sample_episodes(config.evaluation_duration)
        return results_of(samples)

    def _sample_while(
        self, group: EnvRunnerGroup, in_steps: bool, goes_on: Callable[[], bool]
    ) -> list[Sample]:
        """Sample at least once and until training is done, in increasingly long pieces."""
        config = self._config
        steps = config.evaluation_auto_duration_min_env_steps_per_sample
        longest = config.evaluation_auto_duration_max_env_steps_per_sample
        samples: list[Sample] = []
        while True:
            if in_steps:
                samples += group.sample_steps(steps)
                steps = min(2 * steps, longest)
            else:
                samples += group.sample_episodes(max(group.num_remote_env_runners, 1))
            if not goes_on():
                return samples


class ParallelEvaluation:
    """An evaluation in a background thread, which waits for the runners during training.

    Args:
        evaluator: Runs the evaluation.
        group: The runners; no other caller may use them until `results` returns.
        algorithm: Passed to a custom evaluation function.
    """

    def __init__(self, evaluator: Evaluator, group: EnvRunnerGroup, *, algorithm: object) -> None:
        self._is_trained = threading.Event()
        self._results: Results = {}
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, args=(evaluator, group, algorithm), name="evaluation", daemon=True
        )
        self._thread.start()

    def _run(self, evaluator: Evaluator, group: EnvRunnerGroup, algorithm: object) -> None:
        try:
            self._results = evaluator.run(
                group, algorithm=algorithm, goes_on=lambda: not self._is_trained.is_set()
            )
        except BaseException as error:
            self._error = error

    def results(self) -> Results:
        """Return the results; with `evaluation_duration="auto"`, end the evaluation first."""
        self._is_trained.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results


def results_of(samples: list[Sample]) -> Results:
    """Return the results of samples under "env_runners", averaged over all episodes."""
    metrics = MetricsLogger(root=True)
    window = max(sum(len(sample.episodes) for sample in samples), 1)
    log_samples(metrics, (ENV_RUNNER_RESULTS,), samples, window)
    return metrics.reduce(compile=True)


def _results_of(function: object, returned: object) -> Results:
    if not isinstance(returned, tuple) or len(returned) != 3 or not isinstance(returned[0], dict):
        raise ValueError(
            f"`custom_evaluation_function={function!r}` must return (results, environment steps, "
            f"agent steps) with a dictionary of results, but returned {returned!r}."
        )
    results: Results = returned[0]
    return results
