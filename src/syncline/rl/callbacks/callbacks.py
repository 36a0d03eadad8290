"""`RLlibCallback`: the base class of user-defined callbacks.

Covered: all hooks with their arguments. Not covered: when they are called (env runners and
`Algorithm`) and how (`callback_list`).
"""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import Any

from syncline.rl.envs.env_context import EnvContext
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.value_types import (
    AgentID,
    AlgorithmType,
    Env,
    EnvRunnerType,
    Episode,
    Episodes,
    ModuleType,
    Results,
    VectorEnv,
)


class RLlibCallback:
    """Base class of callbacks; the default hooks do nothing.

    Pass subclasses to `config.callbacks(...)`. The algorithm and every env runner create separate
    instances in their own processes. Hooks observe, and may log metrics, change `result` and
    `samples`, and call methods of their arguments. An exception in a hook ends the run.

    Hooks get keyword arguments; later releases may add more, so accept `**kwargs`. A hook that is
    not overridden costs nothing. Hooks of episode events make the env runner build an episode
    object per environment, which takes time in each step.

    A callback with the methods `get_state() -> dict` and `set_state(dict)` is saved in checkpoints.
    """

    def on_algorithm_init(
        self,
        *,
        algorithm: AlgorithmType,
        metrics_logger: MetricsLogger | None = None,
        **kwargs: object,
    ) -> None:
        """Called when an algorithm has finished its setup, before any training."""

    def on_train_result(
        self,
        *,
        algorithm: AlgorithmType,
        metrics_logger: MetricsLogger | None = None,
        result: Results,
        **kwargs: object,
    ) -> None:
        """Called at the end of every `Algorithm.train()`; the hook may change `result`."""

    def on_evaluate_start(
        self,
        *,
        algorithm: AlgorithmType,
        metrics_logger: MetricsLogger | None = None,
        **kwargs: object,
    ) -> None:
        """Called before an evaluation."""

    def on_evaluate_end(
        self,
        *,
        algorithm: AlgorithmType,
        metrics_logger: MetricsLogger | None = None,
        evaluation_metrics: Results,
        **kwargs: object,
    ) -> None:
        """Called after an evaluation; the hook may change `evaluation_metrics`."""

    def on_evaluate_offline_start(
        self,
        *,
        algorithm: AlgorithmType,
        metrics_logger: MetricsLogger | None = None,
        **kwargs: object,
    ) -> None:
        """Called before an evaluation on offline data."""

    def on_evaluate_offline_end(
        self,
        *,
        algorithm: AlgorithmType,
        metrics_logger: MetricsLogger | None = None,
        evaluation_metrics: Results,
        **kwargs: object,
    ) -> None:
        """Called after an evaluation on offline data; the hook may change `evaluation_metrics`."""

    def on_env_runners_recreated(
        self,
        *,
        algorithm: AlgorithmType,
        env_runner_group: Any,
        env_runner_indices: list[int],
        is_evaluation: bool,
        **kwargs: object,
    ) -> None:
        """Called after env runners were restarted.

        `env_runner_indices` are their indices in `env_runner_group`, which is the group of the
        evaluation if `is_evaluation`. `env_runner_group.foreach_env_runner(fn,
        remote_worker_ids=env_runner_indices, local_env_runner=False)` reaches them.
        """

    def on_offline_eval_runners_recreated(
        self,
        *,
        algorithm: AlgorithmType,
        offline_eval_runner_group: Any,
        offline_eval_runner_indices: list[int],
        **kwargs: object,
    ) -> None:
        """Called after runners of offline evaluation were restarted."""

    def on_checkpoint_loaded(self, *, algorithm: AlgorithmType, **kwargs: object) -> None:
        """Called when an algorithm has loaded its state from a checkpoint."""

    def on_environment_created(
        self,
        *,
        env_runner: EnvRunnerType,
        metrics_logger: MetricsLogger | None = None,
        env: Env | VectorEnv,
        env_context: EnvContext,
        **kwargs: object,
    ) -> None:
        """Called when an env runner has created its environments.

        `env` is the vector environment; in multi-agent algorithms, an object with the list `envs`.
        """

    def on_episode_created(
        self,
        *,
        episode: Episode,
        env_runner: EnvRunnerType = None,
        metrics_logger: MetricsLogger | None = None,
        env: Any = None,
        env_index: int,
        rl_module: ModuleType = None,
        worker: EnvRunnerType = None,
        base_env: Any = None,
        policies: Any = None,
        **kwargs: object,
    ) -> None:
        """Called after an episode object is created, before its environment is reset.

        Args:
            episode: A `SingleAgentEpisode` or `MultiAgentEpisode`.
            env_runner: The env runner.
            metrics_logger: The env runner's logger; its metrics appear below `env_runners`.
            env: The vector environment.
            env_index: Index of the environment in the vector.
            rl_module: The module that acts; a `MultiRLModule` in multi-agent algorithms.
            worker: Older name of `env_runner`; passed to hooks that declare it.
            base_env: Older name of `env`; passed to hooks that declare it.
            policies: None; for hooks of older programs that declare it.
            kwargs: Arguments of later releases.
        """

    def on_episode_start(
        self,
        *,
        episode: Episode,
        env_runner: EnvRunnerType = None,
        metrics_logger: MetricsLogger | None = None,
        env: Any = None,
        env_index: int,
        rl_module: ModuleType = None,
        worker: EnvRunnerType = None,
        base_env: Any = None,
        policies: Any = None,
        **kwargs: object,
    ) -> None:
        """Called after the reset of an environment; arguments as for `on_episode_created`."""

    def on_episode_step(
        self,
        *,
        episode: Episode,
        env_runner: EnvRunnerType = None,
        metrics_logger: MetricsLogger | None = None,
        env: Any = None,
        env_index: int,
        rl_module: ModuleType = None,
        worker: EnvRunnerType = None,
        base_env: Any = None,
        policies: Any = None,
        **kwargs: object,
    ) -> None:
        """Called after every step, including the last; arguments as for `on_episode_created`."""

    def on_episode_end(
        self,
        *,
        episode: Episode,
        prev_episode_chunks: Episodes | None = None,
        env_runner: EnvRunnerType = None,
        metrics_logger: MetricsLogger | None = None,
        env: Any = None,
        env_index: int,
        rl_module: ModuleType = None,
        worker: EnvRunnerType = None,
        base_env: Any = None,
        policies: Any = None,
        **kwargs: object,
    ) -> None:
        """Called when an episode has ended and its last step is in `episode`; arguments as for
        `on_episode_created`.

        `prev_episode_chunks` are the earlier parts of the same episode, with the same `id_`, that
        this env runner has already delivered. Sum over `[*prev_episode_chunks, episode]` to measure
        a whole episode. The episode still holds lists instead of arrays.
        """

    def on_sample_end(
        self,
        *,
        env_runner: EnvRunnerType = None,
        metrics_logger: MetricsLogger | None = None,
        samples: Episodes,
        worker: EnvRunnerType = None,
        **kwargs: object,
    ) -> None:
        """Called at the end of `EnvRunner.sample()`; the hook may change `samples`."""

    # Hooks of the API before modules and learners.

    def on_sub_environment_created(
        self,
        *,
        worker: EnvRunnerType,
        sub_environment: Any,
        env_context: EnvContext,
        env_index: int | None = None,
        **kwargs: object,
    ) -> None:
        """Called for every environment of a vector."""

    def on_postprocess_trajectory(
        self,
        *,
        worker: EnvRunnerType,
        episode: Episode,
        agent_id: AgentID,
        policy_id: str,
        policies: dict[str, Any],
        postprocessed_batch: Any,
        original_batches: dict[Any, Any],
        **kwargs: object,
    ) -> None:
        """Called for the trajectory of an agent; the hook may change `postprocessed_batch`."""

    def on_create_policy(self, *, policy_id: str, policy: Any) -> None:
        """Called after a policy was added."""

    def on_learn_on_batch(
        self, *, policy: Any, train_batch: Any, result: Results, **kwargs: object
    ) -> None:
        """Called before an update; the hook may change `train_batch`."""

    def on_workers_recreated(
        self,
        *,
        algorithm: AlgorithmType,
        worker_set: Any,
        worker_ids: list[int],
        is_evaluation: bool,
        **kwargs: object,
    ) -> None:
        """Older name of `on_env_runners_recreated`."""


DefaultCallbacks = RLlibCallback


class MemoryTrackingCallbacks(RLlibCallback):
    """Logs the ten lines of code with the most memory under `tracemalloc` after every episode.

    For debugging: it slows the process down while the callback exists.
    """

    def __init__(self) -> None:
        super().__init__()
        if not tracemalloc.is_tracing():
            tracemalloc.start(10)
            weakref.finalize(self, tracemalloc.stop)

    def on_episode_end(
        self, *, metrics_logger: MetricsLogger | None = None, **kwargs: object
    ) -> None:
        gc.collect()
        for line in tracemalloc.take_snapshot().statistics("lineno")[:10]:
            where = ("tracemalloc", str(line.traceback))
            if metrics_logger is not None:
                metrics_logger.log_value((*where, "size"), line.size / 1024, reduce="item")
                metrics_logger.log_value((*where, "count"), line.count, reduce="item")
