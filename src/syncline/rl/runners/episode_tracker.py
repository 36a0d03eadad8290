"""`EpisodeTracker`: episode objects in parallel to the columns, for callbacks and connectors.

Covered: episodes of one agent, and the calls of hooks. Not covered: several agents
(`multi_agent_tracker`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.rl.callbacks.callback_list import CallbackList
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, row, stack_trees
from syncline.rl.envs.vector_step import FINAL_INFO, FINAL_OBS, infos_per_env
from syncline.rl.episodes.episode_type import EpisodeType
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.runners.connections import Connections
from syncline.rl.value_types import EnvRunnerType, Episode, Episodes, Info, StateDict


class EpisodeHooks:
    """Calls episode hooks and collects episodes for `sample()`.

    Args:
        runner: The env runner.
        callbacks: Callbacks to call.
        metrics: Logger of the callbacks.
    """

    def __init__(
        self, runner: EnvRunnerType, callbacks: CallbackList, metrics: MetricsLogger
    ) -> None:
        self._runner = runner
        self._callbacks = callbacks
        self._metrics = metrics
        self.explore = True
        """Value of `explore` that is passed to connectors."""
        self.finished: Episodes = []
        """Episodes finished since the last call of `sample()`."""
        self._places: list[int] = []
        """Environments of these episodes."""
        self._chunks: dict[int, Episodes] = {}
        """Parts of current episodes that `sample()` has returned, by environment."""
        self._collected: _Collected | None = None

    def _present(self) -> dict[int, Episode]:
        """Return the current episodes by environment."""
        raise NotImplementedError

    def _replace(self, place: int, episode: EpisodeType) -> None:
        """Replace a current episode."""
        raise NotImplementedError

    # -- hooks

    def _call(self, hook: str, place: int, episode: EpisodeType, **further: object) -> None:
        if self._callbacks.has(hook):
            runner = self._runner
            self._callbacks.call(
                hook,
                episode=episode,
                env_runner=runner,
                metrics_logger=self._metrics,
                env=runner.env,
                env_index=place,
                rl_module=getattr(runner, "module", None),
                **further,
            )

    def _end(self, place: int, episode: EpisodeType) -> None:
        """Call the hook for the end of an episode."""
        chunks = self._chunks.pop(place, [])
        self._call("on_episode_end", place, episode, prev_episode_chunks=chunks)
        self._log_custom_metrics(episode)
        self.finished.append(episode)
        self._places.append(place)

    def _log_custom_metrics(self, episode: Episode) -> None:
        """Log the `custom_metrics` that callbacks from older releases have stored."""
        window = self._runner.config.metrics_num_episodes_for_smoothing
        for name, value in episode.custom_data.get("custom_metrics", {}).items():
            for reduce in ("mean", "min", "max"):
                key = ("custom_metrics", f"{name}_{reduce}")
                self._metrics.log_value(key, value, reduce=reduce, window=window)

    def hand_over(self) -> Any:
        """Return the metrics that the callbacks logged since the previous call, for `aggregate`."""
        samples = [*self.finished, *self._present().values()]
        if self._collected is not None:
            self._collected = _Collected(
                samples=samples, ended=list(zip(self._places, self.finished, strict=True))
            )
        self._callbacks.call(
            "on_sample_end", env_runner=self._runner, metrics_logger=self._metrics, samples=samples
        )
        self.finished, self._places = [], []
        return self._metrics.reduce(compile=False)

    # -- episodes for `sample()`

    def begin_collecting(self) -> None:
        """Start collecting episodes for the next call of `sample()`."""
        self._collected = _Collected(samples=[], ended=[])

    def collected_by_share(self, count: int, num_envs: int) -> Episodes:
        """Return `count` finished episodes, the same number of every environment."""
        made, self._collected = self._collected, None
        assert made is not None
        shares = np.full(num_envs, count // num_envs)
        shares[: count % num_envs] += 1
        chosen: set[int] = set()
        for place, episode in made.ended:
            if shares[place] > 0:
                shares[place] -= 1
                chosen.add(id(episode))
        others = {id(each) for _, each in made.ended} - chosen
        others |= {id(each) for each in made.samples if not each.is_done}
        return [each for each in made.samples if id(each) not in others]

    def collected_with_parts(self, lookback: int) -> list[Tree]:
        """Return the finished episodes and the parts of current ones; start new parts with the
        given number of lookback steps.
        """
        made, self._collected = self._collected, None
        assert made is not None
        for place, episode in self._present().items():
            if len(episode):
                self._chunks.setdefault(place, []).append(episode)
                self._replace(place, episode.cut(lookback))
        return [each for each in made.samples if len(each)]


@dataclass(frozen=True, kw_only=True)
class _Collected:
    """Episodes returned by one call of `sample()`."""

    samples: Episodes
    """Episodes passed to hooks, which may have changed them."""
    ended: list[tuple[int, Episode]]
    """Environment and episode, in the order in which the episodes ended."""


class EpisodeTracker(EpisodeHooks):
    """Tracks the current episode of each environment.

    Only used if callbacks or connectors need episodes, because it costs microseconds per step.

    Args:
        runner: The env runner.
        callbacks: Callbacks to call.
        metrics: Logger of the callbacks.
        connections: The runner's connectors.
    """

    def __init__(
        self,
        runner: EnvRunnerType,
        callbacks: CallbackList,
        metrics: MetricsLogger,
        connections: Connections | None = None,
    ) -> None:
        super().__init__(runner, callbacks, metrics)
        self._connections = connections
        self.episodes: list[SingleAgentEpisode] = []
        self.ended: dict[int, SingleAgentEpisode] = {}
        """Episodes finished in the last step, by environment."""

    def begin(self, obs: Tree, infos: Info) -> Tree:
        """Begin an episode in every environment; return the observations for the module."""
        per_env = infos_per_env(infos, self._runner.num_envs)
        self.episodes, self._chunks = [], {}
        for place in range(self._runner.num_envs):
            self.episodes.append(self._new(place, row(obs, place), per_env[place]))
        return self._observed(obs)

    def _new(self, place: int, obs: Tree, info: Info) -> SingleAgentEpisode:
        runner = self._runner
        episode = SingleAgentEpisode(
            observation_space=runner.input_observation_space, action_space=runner.action_space
        )
        self._call("on_episode_created", place, episode)
        episode.add_env_reset(observation=obs, infos=info)
        self._call("on_episode_start", place, episode)
        return episode

    def step(
        self,
        obs: Tree,
        columns: dict[str, Tree],
        rewards: Tree,
        terminated: Tree,
        truncated: Tree,
        infos: Info,
    ) -> Tree:
        """Add a step to every episode; begin new episodes in environments whose episode ended.

        Returns the observations for the module; also transforms those in `infos["final_obs"]`.
        """
        per_env = infos_per_env(infos, self._runner.num_envs)
        outputs = {name: column for name, column in columns.items() if name != Columns.ACTIONS}
        self.ended = {
            int(place): self.episodes[place] for place in np.flatnonzero(terminated | truncated)
        }
        for place, episode in enumerate(self.episodes):
            done = bool(terminated[place] or truncated[place])
            episode.add_env_step(
                observation=infos[FINAL_OBS][place] if done else row(obs, place),
                action=row(columns[Columns.ACTIONS], place),
                reward=float(rewards[place]),
                infos=infos[FINAL_INFO][place] if done else per_env[place],
                terminated=bool(terminated[place]),
                truncated=bool(truncated[place]),
                extra_model_outputs={name: row(each, place) for name, each in outputs.items()},
            )
        if self._connections is not None and self.ended:
            observed = self._observe(self._connections, list(self.ended.values()))
            for index, final in zip(self.ended, observed, strict=True):
                infos[FINAL_OBS][index] = final
        for place, episode in enumerate(self.episodes):
            self._call("on_episode_step", place, episode)
            if episode.is_done:
                self._end(place, episode)
                self.episodes[place] = self._new(place, row(obs, place), per_env[place])
        return self._observed(obs)

    def _present(self) -> dict[int, Episode]:
        return dict(enumerate(self.episodes))

    def _replace(self, place: int, episode: Episode) -> None:
        self.episodes[place] = episode

    def _observed(self, obs: Tree) -> Tree:
        """Return the newest observations [N, ...] after the connectors."""
        if self._connections is None:
            return obs
        return stack_trees(np.stack, self._observe(self._connections, self.episodes))

    def _observe(self, connections: Connections, episodes: list[SingleAgentEpisode]) -> list[Tree]:
        return connections.observe(self._runner.module, episodes, explore=self.explore)

    def get_state(self) -> list[StateDict]:
        """Return the states of the current episodes."""
        return [episode.get_state() for episode in self.episodes]

    def set_state(self, states: list[StateDict]) -> None:
        """Continue episodes."""
        self.episodes = [SingleAgentEpisode.from_state(state) for state in states]
