"""Environments of PettingZoo as `MultiAgentEnv`.

Covered: AEC and parallel environments that a program has created. This module does not import
PettingZoo.
"""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from syncline.rl.envs.multi_agent_env import (
    ALL_AGENTS,
    MultiAgentDict,
    MultiAgentEnv,
    MultiAgentStep,
)
from syncline.rl.value_types import Frame, Options


class PettingZooEnv(MultiAgentEnv):
    """An AEC environment: one agent acts at a time.

    An agent's reward is the sum since its last action, as in PettingZoo's `last()`.
    """

    def __init__(self, env: Any) -> None:
        env.reset()
        self.env = env
        self.possible_agents = list(getattr(env, "possible_agents", None) or env.agents)
        self._agent_ids = set(self.possible_agents)
        super().__init__()
        self.agents = list(env.agents)
        self.observation_spaces = {a: env.observation_space(a) for a in self.possible_agents}
        self.action_spaces = {a: env.action_space(a) for a in self.possible_agents}
        self.observation_space = spaces.Dict(self.observation_spaces)
        self.action_space = spaces.Dict(self.action_spaces)

    def reset(
        self, *, seed: int | None = None, options: Options | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        self.env.reset(seed=seed, options=options)
        self.agents = list(self.env.agents)
        agent = self.env.agent_selection
        return {agent: self.env.observe(agent)}, {agent: dict(self.env.infos.get(agent, {}))}

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        self.env.step(action_dict[self.env.agent_selection])
        obs: MultiAgentDict = {}
        rewards: MultiAgentDict = {}
        terminateds: MultiAgentDict = {}
        truncateds: MultiAgentDict = {}
        infos: MultiAgentDict = {}
        while self.env.agents:
            agent = self.env.agent_selection
            obs[agent], rewards[agent], terminated, truncated, infos[agent] = self.env.last()
            terminateds[agent], truncateds[agent] = bool(terminated), bool(truncated)
            if not (terminated or truncated):
                break
            self.env.step(None)  # removes the agent, and selects the next one
        self.agents = list(self.env.agents)
        over = not self.env.agents
        all_terminated = over and all(terminateds.values())
        terminateds[ALL_AGENTS] = all_terminated
        truncateds[ALL_AGENTS] = over and not all_terminated
        return obs, rewards, terminateds, truncateds, infos

    def close(self) -> None:
        self.env.close()

    def render(self) -> Frame:
        return self.env.render()

    @property
    def get_sub_environments(self) -> Any:
        """The environment of PettingZoo without wrappers."""
        return self.env.unwrapped


class ParallelPettingZooEnv(MultiAgentEnv):
    """A parallel environment: all agents act simultaneously."""

    def __init__(self, env: Any) -> None:
        env.reset()
        self.par_env = env
        self.possible_agents = list(getattr(env, "possible_agents", None) or env.agents)
        self._agent_ids = set(self.possible_agents)
        super().__init__()
        self.agents = list(env.agents)
        self.observation_spaces = {a: env.observation_space(a) for a in self.possible_agents}
        self.action_spaces = {a: env.action_space(a) for a in self.possible_agents}
        self.observation_space = spaces.Dict(self.observation_spaces)
        self.action_space = spaces.Dict(self.action_spaces)

    def reset(
        self, *, seed: int | None = None, options: Options | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        obs, infos = self.par_env.reset(seed=seed, options=options)
        self.agents = list(self.par_env.agents)
        return obs, infos or {}

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        obs, rewards, terminateds, truncateds, infos = self.par_env.step(action_dict)
        self.agents = list(self.par_env.agents)
        over = not self.agents
        all_terminated = over and all(terminateds.values())
        terminateds = {**terminateds, ALL_AGENTS: all_terminated}
        truncateds = {**truncateds, ALL_AGENTS: over and not all_terminated}
        return obs, rewards, terminateds, truncateds, infos

    def close(self) -> None:
        self.par_env.close()

    def render(self) -> Frame:
        return self.par_env.render()

    @property
    def get_sub_environments(self) -> Any:
        """The environment of PettingZoo without wrappers."""
        return self.par_env.unwrapped
