"""`MultiAgentEnv`: environments with several agents, and two ways to create one.

Covered: the interface, n copies of a single-agent environment (`make_multi_agent`), and grouping
agents into one agent (`with_agent_groups`). Not covered: PettingZoo (`pettingzoo`), checks and
restarts (`multi_agent_guard`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from syncline.rl.value_types import (
    AgentDict,
    AgentID,
    AgentMapping,
    Env,
    EnvConfig,
    Frame,
    Space,
    Tree,
)

MultiAgentDict = AgentDict[Tree]
"""Values by agent id."""
MultiAgentStep: TypeAlias = Any
"""Observations, rewards, terminateds, truncateds and infos: a tuple of five `MultiAgentDict`."""

ALL_AGENTS = "__all__"
"""Key of the end flags for the whole episode."""
ENV_STATE = "state"
"""Key of the global state in observations."""
GROUP_REWARDS = "_group_rewards"
"""Key of the members' rewards in the info of a group."""
GROUP_INFO = "_group_info"
"""Key of the members' infos in the info of a group."""


class MultiAgentEnv(Env):
    """An environment with several agents.

    Set `possible_agents`, and `observation_spaces` and `action_spaces` with a space for each of
    them (or override `get_observation_space` and `get_action_space`; a single `observation_space`
    and `action_space` hold for all agents). `agents` may change during an episode.

    All dicts contain only the agents that they concern. An agent with an observation acts in the
    next step; the others wait. Any agent that has acted may receive rewards; the rewards of a
    waiting agent are summed until it acts again.
    """

    observation_spaces: AgentMapping[Space] | None = None
    action_spaces: AgentMapping[Space] | None = None
    agents: list[Any] = []
    possible_agents: list[Any] = []
    observation_space: Any = None
    action_space: Any = None

    def __init__(self) -> None:
        super().__init__()
        if not hasattr(self, "_agent_ids"):
            self._agent_ids: set[AgentID] = set()
        if not self.agents:
            self.agents = list(self._agent_ids)
        if not self.possible_agents:
            self.possible_agents = list(self.agents)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        """Begin an episode. Return observations of the agents that act first, and infos by agent.

        A subclass that uses `self.np_random` calls `super().reset(seed=seed)` and ignores its
        result.
        """
        super().reset(seed=seed, options=options)
        return {}, {}

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        """Execute the actions of all agents with an observation.

        Returns:
            Observations, rewards, terminateds, truncateds and infos, by agent. The end flags also
            have the key "__all__", which ends the episode for all agents. An agent whose episode
            ends needs a last observation.
        """
        raise NotImplementedError

    def render(self) -> Frame:
        """Return an image; None by default."""
        return None

    def get_observation_space(self, agent_id: AgentID) -> Space:
        """Return the observation space of an agent.

        Raises:
            KeyError: The agent has no space.
        """
        return _space_of(agent_id, self.observation_spaces, self.observation_space)

    def get_action_space(self, agent_id: AgentID) -> Space:
        """Return the action space of an agent.

        Raises:
            KeyError: The agent has no space.
        """
        return _space_of(agent_id, self.action_spaces, self.action_space)

    @property
    def num_agents(self) -> int:
        """Current number of agents."""
        return len(self.agents)

    @property
    def max_num_agents(self) -> int:
        """Number of possible agents."""
        return len(self.possible_agents)

    def get_agent_ids(self) -> set[AgentID]:
        """Return the ids of all agents; older name of `possible_agents`."""
        return set(self._agent_ids or self.possible_agents or self.agents)

    def with_agent_groups(
        self,
        groups: AgentMapping[Sequence[object]],
        obs_space: Space | None = None,
        act_space: Space | None = None,
    ) -> GroupAgentsWrapper:
        """Return this environment with groups of agents that act as one agent.

        Args:
            groups: Members by group id, which becomes the id of the new agent. Other agents remain.
            obs_space: Observation space of every group; by default the Tuple of its members'
                spaces.
            act_space: Action space of every group; by default likewise.
        """
        return GroupAgentsWrapper(self, groups, obs_space, act_space)


class GroupAgentsWrapper(MultiAgentEnv):
    """Groups agents: observations and actions become tuples over members, rewards are summed.

    All members of a group act at the same time. The info of a group contains the rewards
    (`_group_rewards`) and infos (`_group_info`) of its members.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        groups: AgentMapping[Sequence[object]],
        obs_space: Space | None = None,
        act_space: Space | None = None,
    ) -> None:
        self.env = env
        self.groups = {group: list(members) for group, members in groups.items()}
        self.agent_id_to_group: AgentDict[AgentID] = {}
        known = all_agents(env)
        for group, members in self.groups.items():
            for agent in members:
                if agent in self.agent_id_to_group:
                    raise ValueError(
                        f"The agent {agent!r} is in the groups {self.agent_id_to_group[agent]!r} "
                        f"and {group!r}, but may be in only one."
                    )
                if known and agent not in known:
                    raise ValueError(
                        f"The group {group!r} has the member {agent!r}, which is not an agent of "
                        f"the environment. Agents: {known}."
                    )
                self.agent_id_to_group[agent] = group
        single = [agent for agent in known if agent not in self.agent_id_to_group]
        self.agents = [*self.groups, *single]
        self.possible_agents = list(self.agents)
        self._agent_ids = set(self.agents)
        super().__init__()
        self.observation_spaces = {
            **{g: obs_space or self._tuple(g, env.get_observation_space) for g in self.groups},
            **{agent: env.get_observation_space(agent) for agent in single},
        }
        self.action_spaces = {
            **{g: act_space or self._tuple(g, env.get_action_space) for g in self.groups},
            **{agent: env.get_action_space(agent) for agent in single},
        }
        if obs_space is not None:
            self.observation_space = obs_space
        if act_space is not None:
            self.action_space = act_space

    def _tuple(self, group: object, space_of: Callable[[AgentID], Space]) -> Space:
        return spaces.Tuple([space_of(agent) for agent in self.groups[group]])

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._group(obs, self._as_tuple), self._group_infos(infos, {})

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        obs, rewards, terminateds, truncateds, infos = self.env.step(self._ungroup(action_dict))
        return (
            self._group(obs, self._as_tuple),
            self._group(rewards, lambda _, values: sum(values.values())),
            self._group(terminateds, self._all_true),
            self._group(truncateds, self._all_true),
            self._group_infos(infos, rewards),
        )

    def render(self) -> Frame:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _ungroup(self, actions: MultiAgentDict) -> MultiAgentDict:
        single: MultiAgentDict = {}
        for agent, action in actions.items():
            members = self.groups.get(agent)
            if members is None:
                single[agent] = action
                continue
            if len(action) != len(members):
                raise ValueError(
                    f"The action of the group {agent!r} has {len(action)} parts, but the group has "
                    f"the members {members}."
                )
            single.update(zip(members, action, strict=True))
        return single

    def _group(
        self, items: MultiAgentDict, merge: Callable[[Any, MultiAgentDict], object]
    ) -> MultiAgentDict:
        """Merge the items of each group's members to `merge(group, values)`."""
        grouped: MultiAgentDict = {}
        for agent, item in items.items():
            group = self.agent_id_to_group.get(agent)
            if group is None:
                grouped[agent] = item
            elif group not in grouped:
                members = self.groups[group]
                grouped[group] = merge(group, {m: items[m] for m in members if m in items})
        return grouped

    def _as_tuple(self, group: object, values: MultiAgentDict) -> tuple[object, ...]:
        missing = [agent for agent in self.groups[group] if agent not in values]
        if missing:
            raise ValueError(
                f"The members {missing} of the group {group!r} have no observation, but "
                f"{list(values)} have one. All members of a group must act at the same time."
            )
        return tuple(values.values())

    def _all_true(self, group: object, values: MultiAgentDict) -> bool:
        return len(values) == len(self.groups[group]) and all(values.values())

    def _group_infos(self, infos: MultiAgentDict, rewards: MultiAgentDict) -> MultiAgentDict:
        grouped = {
            agent: info for agent, info in infos.items() if agent not in self.agent_id_to_group
        }
        for group, members in self.groups.items():
            if any(agent in infos or agent in rewards for agent in members):
                grouped[group] = {GROUP_INFO: [infos.get(agent, {}) for agent in members]}
            if any(agent in rewards for agent in members):
                grouped[group][GROUP_REWARDS] = [rewards.get(agent, 0.0) for agent in members]
        return grouped


def make_multi_agent(env_name_or_creator: str | Callable[[EnvConfig], Env]) -> type[CopiesOfOneEnv]:
    """Return the class of a multi-agent environment with n independent single-agent environments.

    Its constructor takes a configuration with `num_agents` (1 by default); a creator gets the other
    keys. The agents are 0 to n - 1. Agent i is seeded with seed + i.

    Args:
        env_name_or_creator: A gymnasium id, or a function of the configuration.
    """

    class MultiEnv(CopiesOfOneEnv):
        creator = staticmethod(
            env_name_or_creator if callable(env_name_or_creator) else _maker(env_name_or_creator)
        )

    name = env_name_or_creator if isinstance(env_name_or_creator, str) else "custom"
    MultiEnv.__qualname__ = f"make_multi_agent({name!r})"
    return MultiEnv


def _maker(env_id: str) -> Callable[[EnvConfig], Env]:
    return lambda _: gym.make(env_id)


class CopiesOfOneEnv(MultiAgentEnv):
    """The environment created by `make_multi_agent`."""

    creator: Callable[[EnvConfig], Env]

    def __init__(self, config: EnvConfig | None = None) -> None:
        config = _copied({} if config is None else config)
        num = config.pop("num_agents", 1)
        self.envs = [self.creator(config) for _ in range(num)]
        self.agents = list(range(num))
        self.possible_agents = list(range(num))
        super().__init__()
        self.observation_spaces = {i: env.observation_space for i, env in enumerate(self.envs)}
        self.action_spaces = {i: env.action_space for i, env in enumerate(self.envs)}
        self.terminateds: set[int] = set()
        self.truncateds: set[int] = set()

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        self.terminateds, self.truncateds = set(), set()
        obs, infos = {}, {}
        for agent, env in enumerate(self.envs):
            agent_seed = None if seed is None else seed + agent
            obs[agent], infos[agent] = env.reset(seed=agent_seed, options=options)
        return obs, infos

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        if not action_dict:
            raise ValueError(
                "step() got no action, but needs one for each agent that has not ended."
            )
        obs: MultiAgentDict = {}
        rewards: MultiAgentDict = {}
        terminated: MultiAgentDict = {}
        truncated: MultiAgentDict = {}
        infos: MultiAgentDict = {}
        for agent, action in action_dict.items():
            obs[agent], rewards[agent], terminated[agent], truncated[agent], infos[agent] = (
                self.envs[agent].step(action)
            )
            if terminated[agent]:
                self.terminateds.add(agent)
            if truncated[agent]:
                self.truncateds.add(agent)
        terminated[ALL_AGENTS] = len(self.terminateds | self.truncateds) == len(self.envs)
        truncated[ALL_AGENTS] = len(self.truncateds) == len(self.envs)
        return obs, rewards, terminated, truncated, infos

    def render(self) -> Frame:
        """Return the images of all agents next to each other, or stacked if they are wide."""
        images: list[Frame] = [env.render() for env in self.envs]
        wide = images[0].shape[1] > images[0].shape[0]
        return np.concatenate(images, axis=0 if wide else 1)

    def close(self) -> None:
        for env in self.envs:
            env.close()


def all_agents(env: Env) -> list[Any]:
    """Return the ids of all agents that an environment declares."""
    declared = getattr(env, "possible_agents", None) or getattr(env, "_agent_ids", None)
    if not declared:
        for name in ("observation_spaces", "observation_space"):
            declared = getattr(env, name, None)
            if isinstance(declared, (Mapping, spaces.Dict)):
                break
            declared = None
    if not declared:
        declared = getattr(env, "agents", None) or []
    if isinstance(declared, (set, frozenset)):
        return sorted(declared, key=lambda agent: (type(agent).__name__, agent))
    return list(declared)


def _space_of(agent: AgentID, by_agent: AgentMapping[Space] | None, shared: Any) -> Space:
    if by_agent is not None:
        return by_agent[agent]
    if isinstance(shared, spaces.Dict) and agent in shared.spaces:
        return shared[agent]
    if shared is None:
        raise KeyError(agent)
    space: Space = shared
    return space


def _copied(config: EnvConfig) -> EnvConfig:
    """Return a copy of a configuration that keeps the attributes of an EnvContext."""
    if hasattr(config, "copy_with_overrides"):
        copied: EnvConfig = config.copy_with_overrides()
        return copied
    return dict(config)
