"""`GuardedMultiAgentEnv`: a multi-agent environment with checks, clear errors and restarts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium import spaces

from syncline.rl.envs.checks import mismatch, reward_problem
from syncline.rl.envs.env_context import EnvContext
from syncline.rl.envs.env_errors import EnvError
from syncline.rl.envs.env_guard import FailureHandler
from syncline.rl.envs.env_state import get_env_state, set_env_state
from syncline.rl.envs.multi_agent_env import (
    ALL_AGENTS,
    MultiAgentDict,
    MultiAgentEnv,
    MultiAgentStep,
    all_agents,
)
from syncline.rl.envs.older_gym import reset_arguments
from syncline.rl.value_types import AgentDict, Env, Frame, Options, Space
from syncline.suggestions import did_you_mean

logger = logging.getLogger("syncline")

CHECKED_STEPS = 100
"""Number of fully checked steps after the creation of an environment."""
_INFO_KEYS = (ALL_AGENTS, "__common__")


class GuardedMultiAgentEnv(MultiAgentEnv):
    """Checks the declarations and return values of an environment, and replaces it after failures.

    Other attributes are forwarded to the environment.

    Args:
        make: Creates the environment.
        context: Its configuration.
        index: Its index among all environments of the run.
        name: Name of the environment in error messages.
        restart: Recreate it after an exception.
        check: Check the returned values.
    """

    def __init__(
        self,
        make: Callable[[EnvContext], Env],
        *,
        context: EnvContext,
        index: int,
        name: str,
        restart: bool = False,
        check: bool = True,
    ) -> None:
        self._failures = FailureHandler(
            make, context=context, index=index, name=name, restart=restart
        )
        self._name = name
        self._check = check
        self.env: Any = None
        self._take(make(context))

    def _take(self, env: Env) -> None:
        if not isinstance(env, MultiAgentEnv):
            raise EnvError(
                f"{self._name} is a {type(env).__name__}, but `config.multi_agent(...)` needs a "
                "MultiAgentEnv. Wrap PettingZoo environments in PettingZooEnv or "
                "ParallelPettingZooEnv, and use make_multi_agent() for copies of a single-agent "
                "environment."
            )
        self.env = env
        self.possible_agents = all_agents(env)
        self._spaces, self.action_spaces = declared_spaces(env, self._name)
        self.observation_spaces = self._spaces
        self._reset_takes = reset_arguments(env)
        self._steps_to_check = CHECKED_STEPS if self._check else 0
        self._last_obs: MultiAgentDict = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        self._failures.seeded(seed)
        while True:
            seed = self._failures.next_seed(seed)
            try:
                obs, infos = self._reset_once(seed, options)
            except Exception as error:
                self._take(self._failures.replace(self.env, error, f"reset(seed={seed})"))
                seed = None
                continue
            self._last_obs = dict(obs)
            return obs, infos

    def _reset_once(
        self, seed: int | None, options: Options | None
    ) -> tuple[MultiAgentDict, MultiAgentDict]:
        given = {"seed": seed, "options": options}
        result: Any = self.env.reset(**{name: given[name] for name in self._reset_takes})
        if isinstance(result, Mapping):  # older API
            result = result, {}
        if self._steps_to_check:
            problem = self._reset_problem(result)
            if problem:
                raise EnvError(problem)
        obs, infos = result
        return obs, infos

    def step(self, action_dict: MultiAgentDict) -> MultiAgentStep:
        try:
            result: Any = self.env.step(action_dict)
            if len(result) == 4:  # older API
                obs, rewards, dones, infos = result
                result = obs, rewards, dones, {ALL_AGENTS: False}, infos
            if self._steps_to_check:
                problem = self._step_problem(result)
                if problem:
                    raise EnvError(problem)
                self._steps_to_check -= 1
        except Exception as error:
            last_obs = self._last_obs
            self._take(self._failures.replace(self.env, error, f"step({action_dict})"))
            info = {agent: {"env_restarted": True} for agent in last_obs}
            return last_obs, {}, {ALL_AGENTS: False}, {ALL_AGENTS: True}, info
        self._failures.succeeded()
        self._last_obs.update(result[0])
        checked: MultiAgentStep = result
        return checked

    # ---- checks ----

    def _reset_problem(self, result: object) -> str | None:
        if not isinstance(result, tuple) or len(result) != 2:
            return f"reset() returned {type(result).__name__}, but must return (obs, infos)"
        obs, infos = result
        problem = self._agents_problem("reset()", "observations", obs)
        problem = problem or self._agents_problem("reset()", "infos", infos, _INFO_KEYS)
        if problem:
            return problem
        if not obs:
            return "reset() returned no observation, but at least one agent must act first"
        return self._observations_problem("reset()", obs)

    def _step_problem(self, result: object) -> str | None:
        if not isinstance(result, tuple) or len(result) != 5:
            return (
                f"step() returned {type(result).__name__}, but must return (obs, rewards, "
                "terminateds, truncateds, infos)"
            )
        obs, rewards, terminateds, truncateds, infos = result
        for what, values, besides in (
            ("observations", obs, ()),
            ("rewards", rewards, ()),
            ("terminateds", terminateds, (ALL_AGENTS,)),
            ("truncateds", truncateds, (ALL_AGENTS,)),
            ("infos", infos, _INFO_KEYS),
        ):
            problem = self._agents_problem("step()", what, values, besides)
            if problem:
                return problem
        if ALL_AGENTS not in terminateds:
            return (
                f"step() returned terminateds={terminateds} without the key '__all__', which must "
                "be True if the episode has ended for all agents"
            )
        for agent, reward in rewards.items():
            problem = reward_problem(reward, f"reward of {agent!r}")
            if problem:
                return f"step(): {problem}"
        return self._observations_problem("step()", obs)

    def _agents_problem(
        self, call: str, what: str, values: object, besides: tuple[str, ...] = ()
    ) -> str | None:
        if not isinstance(values, Mapping):
            return (
                f"{call} returned the {what} {values!r} ({type(values).__name__}), but must return "
                "a dict by agent"
            )
        for agent in values:
            if agent not in self._spaces and agent not in besides:
                near = did_you_mean(str(agent), map(str, self.possible_agents))
                return (
                    f"{call} returned {what} for the agent {agent!r}, which is not one of the "
                    f"possible agents {self.possible_agents}.{near}"
                )
        return None

    def _observations_problem(self, call: str, obs: MultiAgentDict) -> str | None:
        for agent, value in obs.items():
            problem = mismatch(self._spaces[agent], value, f"observation of {agent!r}")
            if problem:
                return f"{call}: {problem}"
        return None

    # ---- the rest of the environment ----

    @property
    def num_restarts(self) -> int:
        """Number of times that the environment was recreated."""
        return self._failures.num_restarts

    @property
    def last_obs(self) -> MultiAgentDict:
        """The latest observations of the agents."""
        return dict(self._last_obs)

    def get_env_state(self) -> bytes | None:
        """Return the state of the environment, or None if it cannot be saved."""
        return get_env_state(self.env)

    def set_env_state(self, state: bytes, last_obs: MultiAgentDict) -> None:
        """Restore a state of `get_env_state`; `last_obs` has the agents' latest observations."""
        set_env_state(self.env, state)
        self._last_obs = dict(last_obs)

    @property
    def agents(self) -> list[Any]:  # type: ignore[override]  # read only here
        """Current agents."""
        return list(self.env.agents)

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def render(self) -> Frame:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


def declared_spaces(env: MultiAgentEnv, name: str) -> tuple[AgentDict[Space], AgentDict[Space]]:
    """Return observation and action spaces of all agents.

    Raises:
        EnvError: The environment has no agents, or an agent lacks a space.
    """
    agents = all_agents(env)
    if not agents:
        raise EnvError(
            f"{name} declares no agents. Set `self.possible_agents` to the list of all agent ids "
            "in its constructor."
        )
    found: list[AgentDict[Space]] = []
    for kind, space_of in (
        ("observation", env.get_observation_space),
        ("action", env.get_action_space),
    ):
        by_agent = {}
        for agent in agents:
            try:
                space = space_of(agent)
            except KeyError:
                space = None
            if not isinstance(space, spaces.Space):
                raise EnvError(
                    f"{name} has no {kind} space for the agent {agent!r} (found {space!r}). Set "
                    f"`self.{kind}_spaces` to a dict with a space for each of {agents}."
                )
            by_agent[agent] = space
        found.append(by_agent)
    return found[0], found[1]
