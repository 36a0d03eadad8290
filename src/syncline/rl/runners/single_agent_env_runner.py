"""`SingleAgentEnvRunner`: samples a vector environment with one module.

Covered: the loop over steps, ends of episodes, states of modules, random numbers, exact state. Not
covered: episodes as objects (`episode_tracker`), connectors (`connections`), several agents
(`multi_agent_env_runner`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from syncline.rl.callbacks.callback_list import configured_callbacks
from syncline.rl.checkpointable import StateDict
from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree, stack_trees
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.envs.checks import difference
from syncline.rl.envs.vector import get_env_states, make_vector_env, set_env_states
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.modules.acting import ActingPolicy
from syncline.rl.modules.rl_module import MultiRLModule, RLModule
from syncline.rl.offline.recorder import EpisodeRecorder
from syncline.rl.runners.actions import actions_for_env, random_action
from syncline.rl.runners.connections import Connections
from syncline.rl.runners.episode_sampling import EpisodeSampling
from syncline.rl.runners.episode_tracker import EpisodeTracker
from syncline.rl.runners.exploration import NoiseOnActions, exploring
from syncline.rl.runners.noise import EnvNoise, seed_or_random
from syncline.rl.runners.sample import EpisodeResult, Sample, SampleTimes
from syncline.rl.value_types import Info, Space


class SingleAgentEnvRunner(EpisodeSampling):
    """Samples `num_envs_per_env_runner` environments with the same module.

    Args:
        config: The algorithm's options.
        worker_index: 0 in the algorithm's process, else 1 to `num_env_runners`.
        num_workers: Number of runners.
        clock: Source of time in seconds.
    """

    def __init__(
        self,
        *,
        config: AlgorithmConfig,
        worker_index: int = 0,
        num_workers: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
        **_: object,
    ) -> None:
        self.config = config
        self.worker_index = worker_index
        self.num_workers = config.num_env_runners if num_workers is None else num_workers
        self._clock = clock
        self.num_envs = config.num_envs_per_env_runner
        first = max(worker_index - 1, 0) * self.num_envs
        self._envs = range(first, first + self.num_envs)
        self._noise = EnvNoise(seed_or_random(config.seed), self._envs)
        self.weights_version = 0
        self.progress = np.zeros(1, np.int64)
        """[1]: number of vector steps so far."""
        self.metrics = MetricsLogger()
        self.callbacks = configured_callbacks(config)
        self._tracker: EpisodeTracker | None = None
        self._recorder = EpisodeRecorder(config, worker_index) if config.output else None
        self._unreported: list[Sample] = []
        self.env: Any = None
        self.make_env()
        self.module: RLModule = self.make_module()
        self.make_acting()

    # -- environments and module

    def make_env(self) -> None:
        """Create the environments, and replace earlier ones."""
        if self.env is not None:
            self.env.close()
        self.env = make_vector_env(
            self.config,
            num_envs=self.num_envs,
            worker_index=self.worker_index,
            num_workers=self.num_workers,
            first_env=self._envs.start,
        )
        self.input_observation_space = (
            self.config.observation_space or self.env.single_observation_space
        )
        self.action_space = self.config.action_space or self.env.single_action_space
        for name, given, found in (
            ("observation", self.input_observation_space, self.env.single_observation_space),
            ("action", self.action_space, self.env.single_action_space),
        ):
            problem = difference(given, found)
            if problem:
                raise ValueError(
                    f"The configured `{name}_space` does not match the environment's: {problem}. "
                    f"Remove it from `config.environment(…)`, or set it to {found}."
                )
        configured = Connections.configured(
            self.config,
            env=self.env,
            observation_space=self.input_observation_space,
            action_space=self.action_space,
            metrics=self.metrics,
        )
        self._pipelines = configured.pipelines
        self._connections = configured if configured.are_needed else None
        self.observation_space = self.input_observation_space
        if self._connections is not None:
            self.observation_space = self._connections.env_to_module.observation_space
        if (
            self._connections is not None
            or self.callbacks.needs_episodes
            or self.callbacks.has("on_sample_end")
            or self._recorder is not None
        ):
            self._tracker = self._new_tracker()
        self._to_env = actions_for_env(
            self.action_space,
            normalize=self.config.normalize_actions,
            clip=self.config.clip_actions,
        )
        self._obs: Tree = None
        self.callbacks.call(
            "on_environment_created",
            env_runner=self,
            metrics_logger=self.metrics,
            env=self.env,
            env_context=self.config.env_config,
        )

    def _new_tracker(self) -> EpisodeTracker:
        return EpisodeTracker(self, self.callbacks, self.metrics, self._connections)

    def _tracked(self) -> EpisodeTracker:
        if self._tracker is None:
            self._tracker = self._new_tracker()
            if self._obs is not None:
                self.reset()
        return self._tracker

    def make_module(self) -> RLModule:
        """Create the module for acting."""
        spec = self.config.get_rl_module_spec(
            (self.observation_space, self.action_space), inference_only=True
        )
        module: RLModule = spec.build()
        for name, given, found in (
            ("observation", module.observation_space, self.observation_space),
            ("action", module.action_space, self.action_space),
        ):
            problem = difference(given, found)
            if problem:
                raise ValueError(
                    f"The module's `{name}_space` does not match its inputs: {problem}. Remove "
                    f"it from the RLModuleSpec, or set it to {found}."
                )
        return module

    def share_modules(self, modules: MultiRLModule) -> None:
        """Use the module of the learner."""
        self.module = modules[DEFAULT_MODULE_ID]
        self.make_acting()

    def make_acting(self) -> None:
        """Create the acting policy of the current module."""
        self._acting: ActingPolicy = exploring(self.module, self.config)
        self._initial_state: Tree = None
        if self.module.is_stateful():
            initial = self.module.get_initial_state()
            self._initial_state = map_tree(
                lambda leaf: np.repeat(np.asarray(leaf)[None], self.num_envs, axis=0), initial
            )
        self._state_every = int(self.module.model_config.get("max_seq_len", 20))

    def reset(self) -> None:
        """Begin a new episode in every environment."""
        seeds = self._noise.reset_seeds if self._obs is None else None
        self._obs, infos = self.env.reset(seed=seeds)
        self._obs = map_tree(np.copy, self._obs)
        self._state = self._initial_state
        if self._tracker is not None:
            self._obs = self._tracker.begin(self._obs, infos)
        self._return = np.zeros(self.num_envs)
        self._length = np.zeros(self.num_envs, np.int64)
        self._began = np.full(self.num_envs, self._clock())
        self._episode = np.zeros(self.num_envs, np.int64)

    # -- sampling

    def sample_steps(
        self,
        steps: int,
        *,
        explore: bool | None = None,
        random_actions: bool = False,
        step: int | None = None,
    ) -> Sample:
        """Take `steps` steps in every environment.

        Args:
            steps: Number of steps.
            explore: Sample actions; None for the configured value.
            random_actions: Sample all actions uniformly.
            step: Number of environment steps sampled so far, for exploration schedules.
        """
        if step is not None:
            set_step(self._acting, step)
        return self._sample(lambda rollout: rollout.steps < steps, steps, explore, random_actions)

    def sample_episodes(
        self, count: int, *, explore: bool | None = None, random_actions: bool = False
    ) -> Sample:
        """Sample `count` complete new episodes.

        Every environment contributes the same number of episodes (the first ones one more), so that
        short episodes are not overrepresented.
        """
        shares = np.full(self.num_envs, count // self.num_envs)
        shares[: count % self.num_envs] += 1
        self.reset()
        sample = self._sample(
            lambda rollout: bool((rollout.ended < shares).any()),
            64,
            explore,
            random_actions,
            shares,
        )
        self.reset()
        return sample

    def sample_complete(
        self, least_steps: int, *, explore: bool | None = None, random_actions: bool = False
    ) -> Sample:
        """Sample complete new episodes until they have `least_steps` steps."""
        self.reset()
        sample = self._sample(
            lambda rollout: rollout.finished_steps < least_steps,
            64,
            explore,
            random_actions,
            np.full(self.num_envs, np.iinfo(np.int64).max),
        )
        self.reset()
        return sample

    def _sample(
        self,
        goes_on: Callable[[_Rollout], bool],
        noise_steps: int,
        explore: bool | None,
        random_actions: bool,
        shares: np.ndarray | None = None,
    ) -> Sample:
        explore = self.config.explore if explore is None else explore
        if self._obs is None:
            self.reset()
        if self._tracker is not None:
            self._tracker.explore = explore
        rollout = _Rollout(self._obs, self._length.copy(), self._episode.copy(), self.num_envs)
        times, clock, began = SampleTimes(), self._clock, self._clock()
        stateful = self._initial_state is not None
        while goes_on(rollout):
            t = rollout.steps
            if t % noise_steps == 0:
                noise = self._noise.draw(
                    noise_steps, self._acting.noise_size, self._acting.noise_kind
                )
            if stateful and t % self._state_every == 0:
                rollout.states.append(self._state)
            start = clock()
            columns, state = self._acting.act(
                self._obs, noise[t % noise_steps], explore, self._state
            )
            if random_actions:
                columns[Columns.ACTIONS] = self._random_actions()
            if self._connections is not None and self._tracker is not None:
                columns = self._connections.act(
                    self.module, self._tracker.episodes, columns, explore=explore
                )
            actions = columns[Columns.ACTIONS]
            for_env = columns.pop(Columns.ACTIONS_FOR_ENV, None)
            if for_env is None:
                for_env = actions if self._to_env is None else self._to_env(actions)
            acted = clock()
            obs, rewards, terminated, truncated, infos = self.env.step(for_env)
            stepped = clock()
            self.progress[0] += 1
            times.inference_s += acted - start
            times.env_s += stepped - acted
            if self._tracker is not None:
                obs = self._tracker.step(obs, columns, rewards, terminated, truncated, infos)
            rollout.add(obs, columns, rewards, terminated, truncated)
            self._obs, self._state = obs, state
            self._return += rewards
            self._length += 1
            if terminated.any() or truncated.any():
                self._end_episodes(rollout, infos, terminated | truncated, shares, stepped)
        times.total_s = clock() - began
        fragment = rollout.fragment(
            env=np.arange(self._envs.start, self._envs.stop),
            state_every=self._state_every if stateful else 0,
            weights_version=self.weights_version,
            shares=shares,
        )
        return Sample(
            fragments={DEFAULT_MODULE_ID: fragment},
            episodes=rollout.episodes,
            env_steps=fragment.num_steps,
            module_steps={DEFAULT_MODULE_ID: fragment.num_steps},
            times=times,
            metrics=None if self._tracker is None else self._tracker.hand_over(),
            connectors=(
                self._connections.take_changes()
                if self._connections is not None and self.worker_index
                else None
            ),
        )

    def _random_actions(self) -> Tree:
        normalize = self.config.normalize_actions
        return stack_trees(
            np.stack,
            [
                random_action(self.action_space, each, normalize)
                for each in self._noise.random_actions
            ],
        )

    def _end_episodes(
        self,
        rollout: _Rollout,
        infos: Info,
        done: np.ndarray,
        shares: np.ndarray | None,
        now: float,
    ) -> None:
        """Record the finished episodes, and reset their states."""
        finals = infos["final_obs"]
        for n in np.flatnonzero(done):
            rollout.final_at.append((rollout.steps - 1, int(n)))
            rollout.final_obs.append(finals[n])
            if shares is None or rollout.ended[n] < shares[n]:
                rollout.episodes.append(
                    EpisodeResult(
                        env=self._envs.start + int(n),
                        episode_return=float(self._return[n]),
                        length=int(self._length[n]),
                        duration_s=now - float(self._began[n]),
                    )
                )
                rollout.finished_steps += int(self._length[n])
                if self._recorder is not None and self._tracker is not None:
                    self._recorder.add(self._tracker.ended[int(n)])
            rollout.ended[n] += 1
            self._return[n] = 0.0
            self._length[n] = 0
            self._began[n] = now
            self._episode[n] += 1
        if self._initial_state is not None:
            self._state = map_tree(
                lambda leaf, initial: np.where(
                    done.reshape(-1, *[1] * (leaf.ndim - 1)), initial, leaf
                ),
                self._state,
                self._initial_state,
            )

    # -- connectors

    def get_pipelines(self) -> dict[str, ConnectorPipelineV2]:
        """Return the connectors before and after the module, by name."""
        return self._pipelines

    def set_merged_connectors(self, state: StateDict) -> None:
        """Set the merged state of the connectors."""
        if self._connections is not None:
            self._connections.set_merged_state(state)

    # -- state

    def get_spaces(self) -> dict[str, tuple[Space, Space]]:
        """Return observation and action space by module id."""
        return {DEFAULT_MODULE_ID: (self.observation_space, self.action_space)}

    def set_weights(self, weights: StateDict, version: int) -> None:
        """Set the weights of the module, by module id."""
        if DEFAULT_MODULE_ID in weights:
            self.module.set_state(weights[DEFAULT_MODULE_ID])
        self.weights_version = version

    def get_state(self) -> StateDict:
        """Return everything that the next sample depends on, except the weights."""
        state: StateDict = {"noise": self._noise.get_state(), "envs": None}
        if self._connections is not None:
            state["connectors"] = self._connections.get_state()
        if isinstance(self._acting, NoiseOnActions):
            state["exploration"] = self._acting.get_state()
        if self._obs is None:
            return state
        if self._tracker is not None:
            state["episodes"] = self._tracker.get_state()
        return {
            **state,
            "envs": get_env_states(self.env),
            "obs": self._obs,
            "state": self._state,
            "return": self._return.copy(),
            "length": self._length.copy(),
            "episode": self._episode.copy(),
        }

    def set_state(self, state: StateDict) -> bool:
        """Restore a state; return False if environments had to begin new episodes."""
        self._noise.set_state(state["noise"])
        if state["envs"] is not None:
            self.reset()
        if self._connections is not None and "connectors" in state:
            self._connections.set_state(state["connectors"])
        if isinstance(self._acting, NoiseOnActions) and "exploration" in state:
            self._acting.set_state(state["exploration"])
        if state["envs"] is None:
            return True
        if any(each is None for each in state["envs"]):
            return False
        set_env_states(self.env, state["envs"])
        self._obs, self._state = state["obs"], state["state"]
        self._return, self._length = state["return"].copy(), state["length"].copy()
        self._episode = state["episode"].copy()
        if self._tracker is not None and "episodes" in state:
            self._tracker.set_state(state["episodes"])
        return True

    def ping(self) -> str:
        """Return "pong"."""
        return "pong"

    def stop(self) -> None:
        """Close the environments, and write the remaining episodes."""
        if self._recorder is not None:
            self._recorder.write()
        self.env.close()


def set_step(acting: object, step: int) -> None:
    """Update the exploration schedule of a policy with the number of sampled steps."""
    if hasattr(acting, "set_step"):
        acting.set_step(step)


class _Rollout:
    """The steps of a fragment during sampling."""

    def __init__(
        self, obs: Tree, first_step: np.ndarray, episode: np.ndarray, num_envs: int
    ) -> None:
        self._obs = [obs]
        self._columns: list[dict[str, Tree]] = []
        self._rewards: list[np.ndarray] = []
        self._terminated: list[np.ndarray] = []
        self._truncated: list[np.ndarray] = []
        self._first_step = first_step
        self._first_episode = episode
        self.steps = 0
        self.states: list[Tree] = []
        self.final_at: list[tuple[int, int]] = []
        self.final_obs: list[Tree] = []
        self.episodes: list[EpisodeResult] = []
        self.ended = np.zeros(num_envs, np.int64)
        self.finished_steps = 0

    def add(
        self,
        obs: Tree,
        columns: dict[str, Tree],
        rewards: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
    ) -> None:
        """Add a step of all environments."""
        self._obs.append(obs)
        self._columns.append(columns)
        self._rewards.append(rewards)
        self._terminated.append(terminated)
        self._truncated.append(truncated)
        self.steps += 1

    def fragment(
        self, *, env: np.ndarray, state_every: int, weights_version: int, shares: np.ndarray | None
    ) -> Fragment:
        """Return the fragment; with `shares`, only `shares[n]` episodes of each environment."""
        obs = stack_trees(_stacked, self._obs)
        if self.final_obs:
            final_obs = stack_trees(_stacked, self.final_obs)
        else:
            final_obs = map_tree(lambda leaf: leaf[0, :0], obs)
        fragment = Fragment(
            obs=obs,
            columns={
                name: stack_trees(_stacked, [each[name] for each in self._columns])
                for name in self._columns[0]
            },
            rewards=_joined(self._rewards).astype(np.float32),
            terminated=_joined(self._terminated),
            truncated=_joined(self._truncated),
            final_at=np.array(self.final_at, np.int64).reshape(-1, 2),
            final_obs=final_obs,
            states=stack_trees(np.stack, self.states) if self.states else None,
            state_every=state_every,
            first_step=self._first_step,
            episode=self._first_episode,
            env=env,
            weights_version=weights_version,
        )
        if shares is not None:
            fragment.valid = _first_episodes(fragment.done, shares)
        return fragment


def _first_episodes(done: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the mask [T, N] of the first `shares[n]` finished episodes of each environment."""
    ended_before = np.cumsum(done, axis=0) - done
    unfinished = np.cumsum(done[::-1], axis=0)[::-1] == 0
    first: np.ndarray = (ended_before < shares) & ~unfinished
    return first


def _joined(arrays: Tree) -> np.ndarray:
    """Stack arrays along a new first axis, with a fast path for a single array."""
    return np.stack(arrays) if len(arrays) > 1 else np.array(arrays[0])[None]


def _stacked(arrays: Tree) -> np.ndarray:
    stacked = _joined(arrays)
    return stacked.astype(np.float32) if stacked.dtype == np.float64 else stacked
