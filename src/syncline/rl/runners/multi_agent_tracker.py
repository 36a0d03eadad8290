"""Episodes of several agents. `MultiAgentEpisodeTracker` builds episode objects for callbacks,
connectors and mapping functions; `EpisodeSoFar` is a cheaper argument for mapping functions.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from syncline.rl.callbacks.callback_list import CallbackList
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree
from syncline.rl.envs.multi_agent_guard import GuardedMultiAgentEnv
from syncline.rl.episodes.multi_agent_episode import MultiAgentEpisode
from syncline.rl.episodes.multi_agent_getters import MultiAgentGetters
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.runners.connections import MultiAgentConnections
from syncline.rl.runners.episode_tracker import EpisodeHooks
from syncline.rl.value_types import (
    AgentDict,
    AgentID,
    AgentMapping,
    CustomData,
    EnvRunnerType,
    Episode,
    Info,
    SpacePair,
)


@dataclass(frozen=True, kw_only=True)
class EnvStep:
    """A step of one environment; dicts are by agent, without agents that ended earlier."""

    columns: AgentMapping[dict[str, Tree]]
    """Outputs of the modules, including the actions, of the agents that acted."""
    obs: AgentMapping[Tree]
    rewards: AgentMapping[Tree]
    terminateds: AgentMapping[bool]
    truncateds: AgentMapping[bool]
    infos: AgentMapping[Info]


class MultiAgentEnvs:
    """The environments of a runner, passed to callbacks and connectors. Other attributes are
    forwarded to the first environment.
    """

    def __init__(self, envs: list[GuardedMultiAgentEnv]) -> None:
        self.envs = envs
        self.num_envs = len(envs)

    @property
    def unwrapped(self) -> MultiAgentEnvs:
        """This object."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "envs" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.envs[0], name)


class MultiAgentEpisodeTracker(EpisodeHooks):
    """Tracks the current episode of each environment.

    Only used if callbacks, connectors or the mapping function need episodes.

    Args:
        runner: The env runner.
        callbacks: Callbacks to call.
        metrics: Logger of the callbacks.
        connections: The runner's connectors.
        spaces: Observation and action spaces by agent.
        map_to_module: Function of (agent_id, episode) that returns a module id.
    """

    def __init__(
        self,
        runner: EnvRunnerType,
        callbacks: CallbackList,
        metrics: MetricsLogger,
        connections: MultiAgentConnections | None,
        *,
        spaces: SpacePair,
        map_to_module: Callable[[AgentID, Episode], str],
    ) -> None:
        super().__init__(runner, callbacks, metrics)
        self._connections = connections
        self._spaces = spaces
        self._map = map_to_module
        self.episodes: dict[int, MultiAgentEpisode] = {}
        """Current episodes, by environment."""

    def create(self, place: int, id_: str) -> None:
        """Create the next episode of an environment before its reset."""
        self.episodes[place] = self.new(id_)
        self._chunks.pop(place, None)
        self._call("on_episode_created", place, self.episodes[place])

    def new(self, id_: str) -> MultiAgentEpisode:
        """Return an episode without steps."""
        observation_space, action_space = self._spaces
        return MultiAgentEpisode(
            id_,
            observation_space=observation_space,
            action_space=action_space,
            agent_to_module_mapping_fn=self._map,
        )

    def begin(
        self, place: int, obs: AgentMapping[Tree], infos: AgentMapping[Tree]
    ) -> AgentDict[Tree]:
        """Add the reset of an environment; return the observations for the modules."""
        episode = self.episodes[place]
        episode.add_env_reset(observations=obs, infos=infos)
        self._call("on_episode_start", place, episode)
        return self._observed({place: obs})[place]

    def step(self, steps: Mapping[int, EnvStep]) -> dict[int, AgentDict[Tree]]:
        """Add a step to the episode of each environment; return the observations for the modules by
        environment and agent, including last observations.
        """
        for place, each in steps.items():
            self.episodes[place].add_env_step(
                each.obs,
                {agent: columns[Columns.ACTIONS] for agent, columns in each.columns.items()},
                {agent: float(reward) for agent, reward in each.rewards.items()},
                each.infos,
                terminateds=each.terminateds,
                truncateds=each.truncateds,
                extra_model_outputs={
                    agent: {name: v for name, v in columns.items() if name != Columns.ACTIONS}
                    for agent, columns in each.columns.items()
                },
            )
        observed = self._observed({place: each.obs for place, each in steps.items()})
        for place in steps:
            episode = self.episodes[place]
            self._call("on_episode_step", place, episode)
            if episode.is_done:
                self._end(place, episode)
        return observed

    def _present(self) -> dict[int, Episode]:
        return dict(self.episodes)

    def _replace(self, place: int, episode: Episode) -> None:
        self.episodes[place] = episode

    def _observed(self, obs: Mapping[int, AgentMapping[Tree]]) -> dict[int, AgentDict[Tree]]:
        """Return the newest observations after the connectors."""
        if self._connections is None:
            return {place: dict(each) for place, each in obs.items()}
        found = self._connections.observe_agents(
            self._runner.module, [self.episodes[place] for place in obs], explore=self.explore
        )
        return dict(zip(obs, found, strict=True))

    def get_state(self) -> Any:
        """Return the states of the current episodes."""
        states = {place: episode.get_state() for place, episode in self.episodes.items()}
        return copy.deepcopy(states)

    def set_state(self, states: Any) -> None:
        """Continue episodes."""
        observation_space, action_space = self._spaces
        self.episodes = {
            place: MultiAgentEpisode.from_state(
                copy.deepcopy(state),
                observation_space=observation_space,
                action_space=action_space,
                agent_to_module_mapping_fn=self._map,
            )
            for place, state in states.items()
        }


class EpisodeSoFar:
    """The cheap attributes of a `MultiAgentEpisode`, for mapping functions that need no others.

    Args:
        id_: Id of the episode.
        env_t: Number of environment steps so far.
        modules: Modules of the agents so far.
        custom_data: User data.
        module_for: Function that maps an agent to its module.
    """

    def __init__(
        self,
        *,
        id_: str,
        env_t: int = 0,
        modules: AgentMapping[str] | None = None,
        custom_data: CustomData | None = None,
        module_for: Callable[[AgentID], str] | None = None,
    ) -> None:
        self.id_ = self.episode_id = id_
        self.env_t = env_t
        self.env_t_started = 0
        self.agent_ids = set(modules or ())
        self.custom_data = {} if custom_data is None else custom_data
        if module_for is not None:
            self.module_for = self.policy_for = module_for

    def __len__(self) -> int:
        return self.env_t

    def __bool__(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"The `episode` argument of `policy_mapping_fn` has no attribute {name!r}. The runner "
            "builds complete episodes only if the function itself, not one that it calls, contains "
            f"`episode.{name}`, or if a callback such as `on_episode_start` is set."
        )


FREE = {*vars(EpisodeSoFar(id_="", module_for=str))}
"""Attributes of an episode that `EpisodeSoFar` has."""


def reads_episodes(function: Callable[..., object]) -> bool:
    """Return True if the code of a function uses attributes that need complete episodes."""
    known = {*dir(MultiAgentEpisode), *MultiAgentGetters.__annotations__} - FREE
    return any(name in known for name in _names_in(function) if not name.startswith("_"))


def _names_in(function: object) -> Iterator[str]:
    """Yield the names of attributes and globals in the code of a function."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(getattr(function, "__func__", type(function).__call__), "__code__", None)
    pending = [code] if isinstance(code, CodeType) else []
    while pending:
        code = pending.pop()
        yield from code.co_names
        pending += [each for each in code.co_consts if isinstance(each, CodeType)]
