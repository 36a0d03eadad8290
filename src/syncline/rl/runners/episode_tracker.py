"""`EpisodeTracker`: episode objects beside the columns, for callbacks."""

from __future__ import annotations

from typing import Any

from syncline.rl.callbacks.callback_list import CallbackList
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree
from syncline.rl.envs.vector_step import FINAL_INFO, FINAL_OBS, infos_per_env
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.metrics.metrics_logger import MetricsLogger


class EpisodeTracker:
    """The present episode of each environment.

    Only runners whose callbacks need episodes have one: it costs a few microseconds a step.

    Args:
        runner: The env runner.
        callbacks: Callbacks to call.
        metrics: Logger of the callbacks.
    """

    def __init__(self, runner: Any, callbacks: CallbackList, metrics: MetricsLogger) -> None:
        self._runner = runner
        self._callbacks = callbacks
        self._metrics = metrics
        self.episodes: list[SingleAgentEpisode] = []
        self.finished: list[SingleAgentEpisode] = []
        """Episodes that ended since the last hand-over."""

    def begin(self, obs: Tree, infos: dict[str, Any]) -> None:
        """Begin an episode in every environment."""
        per_env = infos_per_env(infos, self._runner.num_envs)
        self.episodes = []
        for place in range(self._runner.num_envs):
            self.episodes.append(self._new(place, _row(obs, place), per_env[place]))

    def _new(self, place: int, obs: Tree, info: dict[str, Any]) -> SingleAgentEpisode:
        runner = self._runner
        episode = SingleAgentEpisode(
            observation_space=runner.observation_space, action_space=runner.action_space
        )
        self._call("on_episode_created", place, episode)
        episode.add_env_reset(observation=obs, infos=info)
        self._call("on_episode_start", place, episode)
        return episode

    def step(
        self,
        obs: Tree,
        columns: dict[str, Tree],
        rewards: Any,
        terminated: Any,
        truncated: Any,
        infos: dict[str, Any],
    ) -> None:
        """Add a step to every episode; begin new ones where episodes ended."""
        per_env = infos_per_env(infos, self._runner.num_envs)
        outputs = {name: column for name, column in columns.items() if name != Columns.ACTIONS}
        for place, episode in enumerate(self.episodes):
            done = bool(terminated[place] or truncated[place])
            episode.add_env_step(
                observation=infos[FINAL_OBS][place] if done else _row(obs, place),
                action=_row(columns[Columns.ACTIONS], place),
                reward=float(rewards[place]),
                infos=infos[FINAL_INFO][place] if done else per_env[place],
                terminated=bool(terminated[place]),
                truncated=bool(truncated[place]),
                extra_model_outputs={name: _row(each, place) for name, each in outputs.items()},
            )
            self._call("on_episode_step", place, episode)
            if done:
                self._call("on_episode_end", place, episode, prev_episode_chunks=[])
                self.finished.append(episode)
                self.episodes[place] = self._new(place, _row(obs, place), per_env[place])

    def hand_over(self) -> Any:
        """Return what the callbacks logged since the previous call, for `aggregate`."""
        samples = [*self.finished, *self.episodes]
        self._callbacks.call(
            "on_sample_end", env_runner=self._runner, metrics_logger=self._metrics, samples=samples
        )
        self.finished = []
        return self._metrics.reduce(compile=False)

    def _call(self, hook: str, place: int, episode: SingleAgentEpisode, **further: Any) -> None:
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


def _row(tree: Tree, place: int) -> Any:
    return map_tree(lambda leaf: leaf[place], tree)
