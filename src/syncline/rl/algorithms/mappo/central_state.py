"""`CentralStateEnv`: puts the observations of all agents into each agent's observation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from gymnasium import spaces

from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.multi_agent_env import (
    ENV_STATE,
    MultiAgentDict,
    MultiAgentEnv,
    MultiAgentStep,
    all_agents,
)
from syncline.rl.envs.registry import EnvMaker, resolve_env
from syncline.rl.value_types import AgentDict, CheckedSpace, Frame, Space

OBS, STATE, ACTION_MASK = "obs", ENV_STATE, "action_mask"
"""Keys of observations."""


class CentralStateEnv(MultiAgentEnv):
    """Returns observations `{"obs": own, "state": latest of all agents, and the agent's index}`.

    Keeps the `action_mask` of dict observations that have the key `obs`. Agents that have not
    observed yet contribute zeros.
    """

    def __init__(self, inner: MultiAgentEnv) -> None:
        self.inner = inner
        self.possible_agents = all_agents(inner)
        self.agents = list(self.possible_agents)
        super().__init__()
        self._spaces = {agent: inner.get_observation_space(agent) for agent in self.possible_agents}
        self._places: AgentDict[slice] = {}
        size = 0
        for agent, space in self._spaces.items():
            width = spaces.flatdim(_observed(space))
            self._places[agent] = slice(size, size + width)
            size += width
        self._size = size
        count = len(self.possible_agents)
        self._numbers = dict(
            zip(self.possible_agents, np.eye(count, dtype=np.float32), strict=True)
        )
        state = spaces.Box(-np.inf, np.inf, (size + count,), np.float32)
        self.observation_spaces = {
            agent: spaces.Dict({**_parts(space), STATE: state})
            for agent, space in self._spaces.items()
        }
        self.action_spaces = {
            agent: inner.get_action_space(agent) for agent in self.possible_agents
        }
        self._latest = np.zeros(size, np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        obs, infos = self.inner.reset(seed=seed, options=options)
        self._latest = np.zeros(self._size, np.float32)
        return self._with_state(obs), infos

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        obs, *rest = self.inner.step(action_dict)
        return (self._with_state(obs), *rest)

    def _with_state(self, obs: MultiAgentDict) -> MultiAgentDict:
        self._latest = self._latest.copy()
        for agent, each in obs.items():
            space = self._spaces[agent]
            own = each[OBS] if _has_parts(space) else each
            flat: Any = spaces.flatten(_observed(space), own)
            self._latest[self._places[agent]] = flat
        return {
            agent: {
                **(dict(each) if _has_parts(self._spaces[agent]) else {OBS: each}),
                STATE: np.concatenate([self._latest, self._numbers[agent]]),
            }
            for agent, each in obs.items()
        }

    def render(self) -> Frame:
        return self.inner.render()

    def close(self) -> None:
        self.inner.close()

    def __getattr__(self, name: str) -> CheckedSpace:
        if name.startswith("_") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)


def with_central_state(env: object) -> EnvMaker:
    """Return a maker of environments whose observations contain the state."""
    maker = resolve_env(env)
    return EnvMaker(
        name=maker.name, kind="creator", creator=functools.partial(_make_with_state, maker)
    )


def _make_with_state(maker: EnvMaker, context: EnvContext) -> MultiAgentEnv:
    env = maker.make(context)
    if not isinstance(env, MultiAgentEnv):
        raise EnvError(
            f"MAPPO needs a MultiAgentEnv, but {maker.name} is a {type(env).__name__}. Use PPO for "
            "environments with one agent."
        )
    found: list[CheckedSpace] = [env.get_observation_space(agent) for agent in all_agents(env)]
    if all(_has_parts(space) and STATE in space.spaces for space in found):
        return env
    return CentralStateEnv(env)


def _has_parts(space: Space) -> bool:
    return isinstance(space, spaces.Dict) and OBS in space.spaces


def _observed(space: CheckedSpace) -> CheckedSpace:
    """Return the space of an agent's own observation."""
    return space[OBS] if _has_parts(space) else space


def _parts(space: CheckedSpace) -> dict[str, CheckedSpace]:
    return dict(space.spaces) if _has_parts(space) else {OBS: space}
