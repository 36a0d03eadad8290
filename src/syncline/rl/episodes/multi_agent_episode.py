"""`MultiAgentEpisode`: the steps of several agents in one episode, or in a part of it.

Covered: adding steps, agents that join, wait and leave, state. Not covered: reading and changing
values (`multi_agent_getters`), parts (`multi_agent_parts`), the steps of one agent
(`single_agent_episode`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gymnasium import spaces

from syncline.rl.episodes.items import Item
from syncline.rl.episodes.lookback import InfiniteLookbackBuffer
from syncline.rl.episodes.multi_agent_getters import SKIPPED
from syncline.rl.episodes.multi_agent_parts import ALL, MultiAgentParts
from syncline.rl.episodes.older_values import OlderMultiAgentValues
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.value_types import (
    AgentDict,
    AgentID,
    AgentMapping,
    CheckedSpace,
    CustomData,
    Space,
    StateDict,
    Tree,
)

ByAgent: TypeAlias = Mapping[Any, Any]
Spaces: TypeAlias = spaces.Dict | Mapping[Any, spaces.Space[Any]]


def default_module(agent_id: AgentID, episode: object, **kwargs: object) -> str:
    """Return the default module id for every agent."""
    return DEFAULT_MODULE_ID


class MultiAgentEpisode(OlderMultiAgentValues, MultiAgentParts):
    """The episodes of several agents, and the mapping of their steps to environment steps.

    Each agent has a `SingleAgentEpisode` in `agent_episodes`. A step of an agent lasts from one
    observation to its next; rewards in between are summed. The action of a waiting agent "hangs":
    it is added to the agent's episode together with the next observation. Rewards before an agent's
    first action belong to its first step. An agent that ends without a step is ignored.
    """

    SKIP_ENV_TS_TAG = SKIPPED

    def __init__(
        self,
        id_: str | None = None,
        *,
        observations: Sequence[ByAgent] | None = None,
        observation_space: Spaces | None = None,
        infos: Sequence[ByAgent] | None = None,
        actions: Sequence[ByAgent] | None = None,
        action_space: Spaces | None = None,
        rewards: Sequence[ByAgent] | None = None,
        terminateds: AgentMapping[bool] | bool = False,
        truncateds: AgentMapping[bool] | bool = False,
        extra_model_outputs: Sequence[ByAgent] | None = None,
        env_t_started: int | None = None,
        agent_t_started: AgentMapping[int] | None = None,
        len_lookback_buffer: int | str = "auto",
        agent_episode_ids: AgentMapping[str] | None = None,
        agent_module_ids: AgentMapping[str] | None = None,
        agent_to_module_mapping_fn: Callable[..., str] | None = None,
    ) -> None:
        """Create an episode, empty or with given steps.

        Args:
            id_: Id of the episode; by default a new one.
            observations: Dicts by agent, one more than steps of the environment.
            observation_space: Spaces by agent.
            infos: Dicts by agent, as observations.
            actions: Dicts by agent, one per step. An agent with an observation but without an
                action before later steps has ended.
            action_space: Spaces by agent.
            rewards: Dicts by agent, one per step. Actions and rewards after the last observation
                belong to incomplete steps.
            terminateds: Flags by agent and for "__all__"; True terminates all agents.
            truncateds: Likewise.
            extra_model_outputs: Dicts of outputs by agent, one per step.
            env_t_started: Index of the first environment step after the lookback.
            agent_t_started: Index of each agent's first step after the lookback.
            len_lookback_buffer: Number of given steps that form the lookback; "auto" for all.
            agent_episode_ids: Ids of the agents' episodes.
            agent_module_ids: Modules of agents.
            agent_to_module_mapping_fn: Function of (agent_id, episode) that returns a module id.

        Raises:
            ValueError: The lengths of the arguments are inconsistent.
        """
        self.id_ = id_ or uuid.uuid4().hex
        self.agent_to_module_mapping_fn = agent_to_module_mapping_fn or default_module
        self.observation_space: CheckedSpace = observation_space or {}
        self.action_space: CheckedSpace = action_space or {}
        self.agent_episodes: AgentDict[SingleAgentEpisode] = {}
        self.env_t_to_agent_t: AgentDict[InfiniteLookbackBuffer] = {}
        """By agent, the agent's step at each environment step, or "S" if it waits."""
        steps = max(len(observations or ()) - 1, 0)
        self._lookback = (
            steps if isinstance(len_lookback_buffer, str) else min(len_lookback_buffer, steps)
        )
        self.env_t_started = env_t_started or 0
        """Index of the first step after the lookback within the whole episode."""
        self.env_t = self.env_t_started + steps - self._lookback
        """Index of the next step within the whole episode."""
        self.is_terminated = _flag(terminateds, ALL)
        self.is_truncated = _flag(truncateds, ALL)
        self.agents_with_repeated_observation: set[AgentID] = set()
        """Agents that ended in the newest step without a last observation."""
        self._modules: AgentDict[str] = dict(agent_module_ids or {})
        self._hanging_actions: AgentDict[Item] = {}
        self._hanging_outputs: AgentDict[dict[str, Item]] = {}
        self._hanging_rewards: AgentDict[Tree] = {}
        self._custom_data: CustomData = {}
        self._start_time: float | None = None
        self._last_step_time: float | None = None
        tracks = self._tracks(
            observations or (), infos or (), actions or (), rewards or (), extra_model_outputs or ()
        )
        for agent, track in tracks.items():
            terminated = _flag(terminateds, agent)
            truncated = _flag(truncateds, agent)
            if not truncated and agent not in self._hanging_actions:
                terminated = terminated or track.at[-1] < len(observations or ()) - 1
            if (terminated or truncated) and len(track.at) == 1:
                self._forget_hanging(agent)
                continue
            self._add_track(
                agent,
                track,
                size=len(observations or ()),
                started=(agent_t_started or {}).get(agent, 0),
                id_=(agent_episode_ids or {}).get(agent),
                terminated=terminated,
                truncated=truncated,
            )

    # ---- given steps ----

    def _tracks(
        self,
        observations: Sequence[ByAgent],
        infos: Sequence[ByAgent],
        actions: Sequence[ByAgent],
        rewards: Sequence[ByAgent],
        outputs: Sequence[ByAgent],
    ) -> AgentDict[_Track]:
        """Return the steps of each agent; incomplete steps hang."""
        tracks: AgentDict[_Track] = {}
        for position, by_agent in enumerate(observations):
            for agent, observation in by_agent.items():
                track = tracks.setdefault(agent, _Track())
                if track.at:
                    if agent not in self._hanging_actions:
                        raise ValueError(
                            f"The agent {agent!r} has an observation at step {position}, but no "
                            f"action after the one at step {track.at[-1]}."
                        )
                    track.actions.append(self._hanging_actions.pop(agent))
                    track.outputs.append(self._hanging_outputs.pop(agent, {}))
                    track.rewards.append(self._hanging_rewards.pop(agent, 0.0))
                track.at.append(position)
                track.observations.append(observation)
                info = infos[position].get(agent) if position < len(infos) else None
                track.infos.append({} if info is None else info)
            if position < len(actions):
                self._hanging_actions.update(actions[position])
            if position < len(outputs):
                self._hanging_outputs.update(
                    {agent: dict(each) for agent, each in outputs[position].items()}
                )
            if position < len(rewards):
                for agent, reward in rewards[position].items():
                    self._hanging_rewards[agent] = self._hanging_rewards.get(agent, 0.0) + reward
        return tracks

    def _add_track(
        self,
        agent: AgentID,
        track: _Track,
        *,
        size: int,
        started: int,
        id_: str | None,
        terminated: bool,
        truncated: bool,
    ) -> None:
        before = sum(position < self._lookback for position in track.at)
        # The newest observation is not part of the lookback: its step is incomplete.
        lookback = min(before, len(track.at) - 1)
        numbers: list[Tree] = [SKIPPED] * size
        for place, position in enumerate(track.at):
            numbers[position] = started - lookback + place
        self.env_t_to_agent_t[agent] = InfiniteLookbackBuffer(numbers, self._lookback)
        names = track.outputs[0] if track.outputs else ()
        self.agent_episodes[agent] = SingleAgentEpisode(
            id_=id_,
            observations=track.observations,
            observation_space=_space(self.observation_space, agent),
            infos=track.infos,
            actions=track.actions,
            action_space=_space(self.action_space, agent),
            rewards=track.rewards,
            terminated=terminated,
            truncated=truncated,
            extra_model_outputs={name: [each[name] for each in track.outputs] for name in names},
            t_started=started,
            len_lookback_buffer=lookback,
            agent_id=agent,
            module_id=self.module_for(agent),
            multi_agent_episode_id=self.id_,
        )

    # ---- adding ----

    def add_env_reset(self, *, observations: ByAgent, infos: ByAgent | None = None) -> None:
        """Add the observations and infos of a reset, by agent.

        Raises:
            ValueError: The episode has already begun.
        """
        if self.is_reset:
            raise ValueError(f"The episode {self.id_} has already begun; create a new one.")
        for agent, observation in observations.items():
            self._begin(agent, observation, (infos or {}).get(agent))
        self._start_time = time.perf_counter()

    def _begin(self, agent: AgentID, observation: Item, info: Tree) -> None:
        """Add the first observation of an agent."""
        single = SingleAgentEpisode(
            observation_space=_space(self.observation_space, agent),
            action_space=_space(self.action_space, agent),
            agent_id=agent,
            module_id=self.module_for(agent),
            multi_agent_episode_id=self.id_,
        )
        single.add_env_reset(observation=observation, infos=info)
        self.agent_episodes[agent] = single
        waited = [SKIPPED] * (self._lookback + len(self))
        self.env_t_to_agent_t[agent] = InfiniteLookbackBuffer([*waited, 0], self._lookback)

    def add_env_step(
        self,
        observations: ByAgent,
        actions: ByAgent,
        rewards: ByAgent,
        infos: ByAgent | None = None,
        *,
        terminateds: AgentMapping[bool] | None = None,
        truncateds: AgentMapping[bool] | None = None,
        extra_model_outputs: ByAgent | None = None,
    ) -> None:
        """Add actions and the results of `env.step()`, by agent.

        An agent without an observation waits. If an agent ends in a terminal state without a last
        observation, its previous observation is repeated, which does not affect learning.

        Args:
            observations: Observations of the agents that act next, or have ended.
            actions: Actions of the agents that acted.
            rewards: Rewards, including those of waiting agents.
            infos: Infos.
            terminateds: True for agents that ended in a terminal state; "__all__" for all.
            truncateds: True for agents that ended for other reasons; "__all__" for all.
            extra_model_outputs: Dicts of other outputs of the modules, such as `action_logp`.

        Raises:
            ValueError: The episode or an agent has already ended, an agent acted without an
                observation, or an agent was truncated without a last observation.
        """
        if self.is_done:
            raise ValueError(
                f"The episode {self.id_} ended at step {self.env_t}, but got another step. Begin "
                "a new episode after the end."
            )
        terminateds, truncateds = terminateds or {}, truncateds or {}
        self.env_t += 1
        self.agents_with_repeated_observation = set()
        self.is_terminated = bool(terminateds.get(ALL, False))
        self.is_truncated = bool(truncateds.get(ALL, False))
        for numbers in self.env_t_to_agent_t.values():
            numbers.data.append(SKIPPED)
        concerned = dict.fromkeys(
            [*observations, *actions, *rewards, *terminateds, *truncateds]
            + (list(self.agent_episodes) if self.is_done else [])
        )
        concerned.pop(ALL, None)
        for agent in concerned:
            if agent in actions:
                self._act(agent, actions[agent], (extra_model_outputs or {}).get(agent))
            self._add_agent_step(
                agent,
                observations.get(agent),
                rewards.get(agent),
                (infos or {}).get(agent),
                bool(terminateds.get(agent, False)) or self.is_terminated,
                bool(truncateds.get(agent, False)) or self.is_truncated,
            )
        singles = self.agent_episodes.values()
        if singles and not self.is_done and all(each.is_done for each in singles):
            self.is_terminated = any(each.is_terminated for each in singles)
            self.is_truncated = not self.is_terminated
        self._last_step_time = now = time.perf_counter()
        if self._start_time is None:
            self._start_time = now

    def _act(self, agent: AgentID, action: Item, outputs: Mapping[str, Item] | None) -> None:
        single = self.agent_episodes.get(agent)
        problem = None
        if single is None:
            problem = "it has no observation yet"
        elif single.is_done:
            problem = f"it ended after {single.t} steps"
        elif agent in self._hanging_actions:
            problem = "it waits for the observation after its previous action"
        if problem:
            raise ValueError(
                f"The agent {agent!r} acted at step {self.env_t - 1} of the episode {self.id_}, "
                f"but {problem}. Pass actions only of agents in `get_agents_to_act()`."
            )
        self._hanging_actions[agent] = action
        self._hanging_outputs[agent] = dict(outputs or {})

    def _add_agent_step(
        self,
        agent: AgentID,
        observation: Item,
        reward: Tree,
        info: Tree,
        terminated: bool,
        truncated: bool,
    ) -> None:
        """Add the results of an environment step to an agent's episode."""
        single = self.agent_episodes.get(agent)
        if single is not None and single.is_done:
            if observation is not None or reward is not None:
                raise ValueError(
                    f"The agent {agent!r} ended after {single.t} steps, but got the observation "
                    f"{observation} and the reward {reward} at step {self.env_t} of the episode "
                    f"{self.id_}. Leave out agents that have ended."
                )
            return
        if reward is not None:
            self._hanging_rewards[agent] = self._hanging_rewards.get(agent, 0.0) + reward
        done = terminated or truncated
        if single is None:
            if done:  # it never acted, so it is ignored
                self._hanging_rewards.pop(agent, None)
            elif observation is not None:
                self._begin(agent, observation, info)
            return
        acted = agent in self._hanging_actions
        if not acted:
            if done:
                single.is_terminated, single.is_truncated = terminated, truncated
                self._forget_hanging(agent)
            elif observation is not None:
                raise ValueError(
                    f"The agent {agent!r} got an observation at step {self.env_t} of the episode "
                    f"{self.id_}, but took no action after the previous one."
                )
            return
        if observation is None:
            if not done:
                return
            if not terminated:
                raise ValueError(
                    f"The agent {agent!r} was truncated at step {self.env_t} of the episode "
                    f"{self.id_} without a last observation, whose value is needed. Return one, or "
                    f"set `terminateds[{agent!r}]`."
                )
            observation, info = single.get_observations(-1), single.get_infos(-1)
            self.agents_with_repeated_observation.add(agent)
        self._complete(agent, observation, info, terminated, truncated)
        self.env_t_to_agent_t[agent].data[-1] = single.t

    # ---- facts ----

    @property
    def custom_data(self) -> CustomData:
        """User data, for example of callbacks; later parts of the episode inherit it."""
        return self._custom_data

    @property
    def agent_ids(self) -> set[AgentID]:
        """Ids of the agents that have or had an observation."""
        return set(self.agent_episodes)

    @property
    def agent_t_started(self) -> AgentDict[int]:
        """Index of each agent's first step after the lookback."""
        return {agent: each.t_started for agent, each in self.agent_episodes.items()}

    @property
    def policy_mapping_fn(self) -> Callable[..., str]:
        """Older name of `agent_to_module_mapping_fn`."""
        return self.agent_to_module_mapping_fn

    def module_for(self, agent_id: AgentID) -> str:
        """Return the module of an agent, which is fixed for the whole episode."""
        if agent_id not in self._modules:
            self._modules[agent_id] = self.agent_to_module_mapping_fn(agent_id, self)
        return self._modules[agent_id]

    policy_for = module_for

    @property
    def is_reset(self) -> bool:
        """True if an agent has its first observation."""
        return bool(self.agent_episodes)

    def get_agents_that_stepped(self) -> set[AgentID]:
        """Return the agents with an observation at the newest step."""
        numbers = self.env_t_to_agent_t.items()
        return {agent for agent, each in numbers if each.data and each.data[-1] != SKIPPED}

    def get_agents_to_act(self) -> set[AgentID]:
        """Return the agents that must act in the next step."""
        return {
            agent
            for agent in self.get_agents_that_stepped()
            if not self.agent_episodes[agent].is_done
        }

    def get_return(self, include_hanging_rewards: bool = False) -> float:
        """Return the sum of all agents' rewards of this part, without the lookback.

        Args:
            include_hanging_rewards: Include the rewards of incomplete steps.
        """
        total = sum(each.get_return() for each in self.agent_episodes.values())
        if include_hanging_rewards:
            total += sum(self._hanging_rewards.values())
        return float(total)

    def get_duration_s(self) -> float:
        """Return the seconds between the first and the last added step."""
        if self._last_step_time is None or self._start_time is None:
            return 0.0
        return self._last_step_time - self._start_time

    def env_steps(self) -> int:
        """Return the number of environment steps."""
        return len(self)

    def agent_steps(self) -> int:
        """Return the number of complete steps of all agents."""
        return sum(len(each) for each in self.agent_episodes.values())

    def __repr__(self) -> str:
        return (
            f"MAEps(len={len(self)} done={self.is_done} R={self.get_return()} "
            f"agents={list(self.agent_episodes)} id_={self.id_})"
        )

    # ---- state ----

    def get_state(self) -> StateDict:
        """Return everything except the spaces and the mapping function as plain data, for pickle or
        msgpack (with arrays).
        """
        return {
            "id_": self.id_,
            "agent_to_module": list(self._modules.items()),
            "env_t_started": self.env_t_started,
            "env_t": self.env_t,
            "lookback": self._lookback,
            "env_t_to_agent_t": [
                (agent, list(each.data)) for agent, each in self.env_t_to_agent_t.items()
            ],
            "hanging_actions": list(self._hanging_actions.items()),
            "hanging_outputs": list(self._hanging_outputs.items()),
            "hanging_rewards": list(self._hanging_rewards.items()),
            "is_terminated": self.is_terminated,
            "is_truncated": self.is_truncated,
            "agent_episodes": [
                (agent, each.get_state()) for agent, each in self.agent_episodes.items()
            ],
            "_start_time": self._start_time,
            "_last_step_time": self._last_step_time,
            "custom_data": self._custom_data,
        }

    @staticmethod
    def from_state(
        state: StateDict,
        *,
        observation_space: Spaces | None = None,
        action_space: Spaces | None = None,
        agent_to_module_mapping_fn: Callable[..., str] | None = None,
    ) -> MultiAgentEpisode:
        """Rebuild the episode from `get_state`, also after a round trip through msgpack.

        Args:
            state: State that `get_state` returned.
            observation_space: Spaces by agent, for agents that join later.
            action_space: Likewise.
            agent_to_module_mapping_fn: Mapping function for agents that join later.
        """
        singles = {
            agent: SingleAgentEpisode.from_state(each) for agent, each in state["agent_episodes"]
        }
        episode = MultiAgentEpisode(
            id_=state["id_"],
            observation_space=observation_space
            or {agent: each.observation_space for agent, each in singles.items()},  # type: ignore[misc]
            action_space=action_space
            or {agent: each.action_space for agent, each in singles.items()},  # type: ignore[misc]
            agent_module_ids=dict(state["agent_to_module"]),
            agent_to_module_mapping_fn=agent_to_module_mapping_fn,
        )
        episode.agent_episodes = singles
        episode.env_t_started, episode.env_t = state["env_t_started"], state["env_t"]
        episode._lookback = state["lookback"]
        episode.env_t_to_agent_t = {
            agent: InfiniteLookbackBuffer(list(numbers), episode._lookback)
            for agent, numbers in state["env_t_to_agent_t"]
        }
        episode._hanging_actions = dict(state["hanging_actions"])
        episode._hanging_outputs = {agent: dict(each) for agent, each in state["hanging_outputs"]}
        episode._hanging_rewards = dict(state["hanging_rewards"])
        episode.is_terminated = state["is_terminated"]
        episode.is_truncated = state["is_truncated"]
        episode._start_time = state["_start_time"]
        episode._last_step_time = state["_last_step_time"]
        episode._custom_data = state["custom_data"]
        return episode


@dataclass(kw_only=True)
class _Track:
    """Given steps of one agent."""

    at: list[int] = field(default_factory=list)
    """Environment steps at which the agent has an observation."""
    observations: list[Item] = field(default_factory=list)
    infos: list[Tree] = field(default_factory=list)
    actions: list[Item] = field(default_factory=list)
    outputs: list[dict[str, Item]] = field(default_factory=list)
    rewards: list[Tree] = field(default_factory=list)


def _flag(flags: AgentMapping[bool] | bool, agent: AgentID) -> bool:
    return flags if isinstance(flags, bool) else bool(flags.get(agent, False))


def _space(by_agent: Any, agent: Any) -> Space | None:
    known = by_agent.spaces if isinstance(by_agent, spaces.Dict) else by_agent
    space: Space | None = known.get(agent)
    return space
