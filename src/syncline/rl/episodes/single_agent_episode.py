"""`SingleAgentEpisode`: the steps of one agent in one episode, or in a part of it.

Covered: adding steps, reading and changing them, cutting, slicing and joining parts, arrays, state.
"""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces

from syncline.rl.envs.space_serialization import gym_space_from_dict, gym_space_to_dict
from syncline.rl.episodes.episode_values import EpisodeValues
from syncline.rl.episodes.items import Item, equal
from syncline.rl.episodes.lookback import InfiniteLookbackBuffer, as_buffer, emptied, length_of
from syncline.rl.episodes.older_values import OlderValues
from syncline.rl.value_types import AgentID, CustomData, Info, Space, StateDict, Tree

REWARD_SPACE = spaces.Box(float("-inf"), float("inf"), (), np.float32)

StepSlice: TypeAlias = slice
Data = InfiniteLookbackBuffer | Sequence[Any] | None


class SingleAgentEpisode(EpisodeValues, OlderValues):
    """Observations, infos, actions, rewards and outputs of the module, step by step.

    An episode of n steps has n + 1 observations and infos, and n actions, rewards and outputs:
    observation t, then action t and reward t, then observation t + 1. Parts of one episode have the
    same `id_`. A part may have a lookback: values before its start that do not count as its steps.
    """

    __slots__ = (
        "_action_space",
        "_custom_data",
        "_last_added_infos",
        "_last_added_observation",
        "_last_step_time",
        "_observation_space",
        "_start_time",
        "actions",
        "agent_id",
        "extra_model_outputs",
        "id_",
        "infos",
        "is_terminated",
        "is_truncated",
        "module_id",
        "multi_agent_episode_id",
        "observations",
        "rewards",
        "t",
        "t_started",
    )

    def __init__(
        self,
        id_: str | None = None,
        *,
        observations: Data = None,
        observation_space: Space | None = None,
        infos: Data = None,
        actions: Data = None,
        action_space: Space | None = None,
        rewards: Data = None,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: Mapping[str, Data] | None = None,
        t_started: int | None = None,
        len_lookback_buffer: int | str = "auto",
        agent_id: AgentID = None,
        module_id: str | None = None,
        multi_agent_episode_id: str | None = None,
    ) -> None:
        """Create an episode, empty or with given steps.

        Args:
            id_: Id of the episode; by default a new one.
            observations: List of observations, one more than actions; or a buffer.
            observation_space: Space of the observations, for one-hot encoding and fill values.
            infos: List of info dicts; by default empty ones.
            actions: List of actions.
            action_space: Space of the actions.
            rewards: List of rewards.
            terminated: The last step ended in a terminal state.
            truncated: The episode ended for another reason, such as a time limit.
            extra_model_outputs: Lists of other outputs of the module, by name.
            t_started: Index of the first step after the lookback.
            len_lookback_buffer: Number of given steps that form the lookback; "auto" for all.
            agent_id: Id of the agent.
            module_id: Id of the module that acts.
            multi_agent_episode_id: Id of the episode of all agents.

        Raises:
            ValueError: The lengths are inconsistent.
        """
        self.id_ = id_ or uuid.uuid4().hex
        self.agent_id = agent_id
        self.module_id = module_id
        self.multi_agent_episode_id = multi_agent_episode_id

        num_rewards = 0 if rewards is None else len(rewards)
        lookback = num_rewards
        if not isinstance(len_lookback_buffer, str):
            lookback = min(len_lookback_buffer, num_rewards)
        if infos is None or (not isinstance(infos, InfiniteLookbackBuffer) and not len(infos)):
            given = 0 if observations is None else length_of(observations)
            infos = [{} for _ in range(given)]
        self.observations = as_buffer(observations, lookback)
        self.infos = as_buffer(infos, lookback)
        self.actions = as_buffer(actions, lookback)
        self.rewards = as_buffer(rewards, lookback, REWARD_SPACE)
        self.observation_space = observation_space
        self.action_space = action_space
        self.extra_model_outputs: dict[str, InfiniteLookbackBuffer] = {
            key: as_buffer(values, lookback) for key, values in (extra_model_outputs or {}).items()
        }
        self.is_terminated = terminated
        self.is_truncated = truncated
        self.t_started = t_started or 0
        """Index of the first step after the lookback within the whole episode."""
        self.t = len(self.rewards) + self.t_started
        """Index of the next step within the whole episode."""
        self._custom_data: CustomData = {}
        self._start_time: float | None = None
        self._last_step_time: float | None = None
        self._last_added_observation: Item = None
        self._last_added_infos: Info | None = None
        self.validate()

    # ---- adding ----

    def add_env_reset(self, observation: Item, infos: Info | None = None) -> None:
        """Add the result of `env.reset()`.

        Raises:
            ValueError: The episode is not empty.
        """
        if self.observations.len_incl_lookback() or self.is_done or self.t:
            raise ValueError(f"add_env_reset() needs an empty episode, but this is {self!r}.")
        infos = infos or {}
        self.observations.append(observation)
        self.infos.append(infos)
        self._last_added_observation = observation
        self._last_added_infos = infos
        self._start_time = time.perf_counter()

    def add_env_step(
        self,
        observation: Item,
        action: Item,
        reward: Tree,
        infos: Info | None = None,
        *,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: Mapping[str, Item] | None = None,
    ) -> None:
        """Add an action and the result of `env.step()`.

        `extra_model_outputs` are other outputs of the module for this step, by name, such as
        `action_logp`.

        Raises:
            ValueError: The episode has ended.
        """
        if self.is_terminated or self.is_truncated:
            raise ValueError(
                f"The episode {self.id_} ended at step {self.t}, but got another step. Begin a "
                "new episode after the end."
            )
        if infos is None:
            infos = {}
        if self.observations.finalized:
            self._append_to_arrays(observation, action, reward)
        else:
            self.observations.data.append(observation)
            self.actions.data.append(action)
            self.rewards.data.append(reward)
        self.infos.data.append(infos)
        self.t += 1
        if extra_model_outputs is not None:
            outputs = self.extra_model_outputs
            for key, value in extra_model_outputs.items():
                if key in outputs:
                    outputs[key].append(value)
                else:
                    outputs[key] = InfiniteLookbackBuffer([value])
        self.is_terminated = terminated
        self.is_truncated = truncated
        self._last_added_observation = observation
        self._last_added_infos = infos
        self._last_step_time = now = time.perf_counter()
        if self._start_time is None:
            self._start_time = now

    def _append_to_arrays(self, observation: Item, action: Item, reward: Tree) -> None:
        self.observations.append(observation)
        self.actions.append(action)
        self.rewards.append(reward)

    def validate(self) -> None:
        """Check that observations, infos, actions, rewards and outputs have matching lengths.

        Raises:
            ValueError: The lengths do not match.
        """
        lengths = {
            "observations": len(self.observations),
            "infos": len(self.infos),
            "actions": len(self.actions) + 1,
            "rewards": len(self.rewards) + 1,
            **{key: len(values) + 1 for key, values in self.extra_model_outputs.items()},
        }
        if lengths["observations"] == 0:
            expected = {key: 0 if key in ("observations", "infos") else 1 for key in lengths}
            fits = lengths == expected
        else:
            fits = len(set(lengths.values())) == 1
        if not fits:
            counts = {
                key: count if key in ("observations", "infos") else count - 1
                for key, count in lengths.items()
            }
            raise ValueError(
                f"The parts of the episode {self.id_} have inconsistent lengths: {counts}. An "
                "episode needs one more observation and info than actions, rewards and outputs."
            )

    # ---- facts ----

    @property
    def custom_data(self) -> CustomData:
        """User data, for example of callbacks; later parts of the episode inherit it."""
        return self._custom_data

    @property
    def is_reset(self) -> bool:
        """True if the episode has its first observation."""
        return len(self.observations) > 0

    @property
    def is_numpy(self) -> bool:
        """True if the values are arrays."""
        return self.rewards.finalized

    @property
    def is_done(self) -> bool:
        """True if the episode has ended."""
        return self.is_terminated or self.is_truncated

    @property
    def observation_space(self) -> Space | None:
        """Space of the observations."""
        return self._observation_space

    @observation_space.setter
    def observation_space(self, space: Space | None) -> None:
        self._observation_space = self.observations.space = space

    @property
    def action_space(self) -> Space | None:
        """Space of the actions."""
        return self._action_space

    @action_space.setter
    def action_space(self, space: Space | None) -> None:
        self._action_space = self.actions.space = space

    def get_return(self) -> float:
        """Return the sum of the rewards of this part, without the lookback."""
        total: float = sum(self.get_rewards())
        return total

    def get_duration_s(self) -> float:
        """Return the seconds between the first and the last added step."""
        if self._last_step_time is None or self._start_time is None:
            return 0.0
        return self._last_step_time - self._start_time

    def env_steps(self) -> int:
        """Return the number of steps."""
        return len(self)

    def agent_steps(self) -> int:
        """Return the number of steps."""
        return len(self)

    def __len__(self) -> int:
        return self.t - self.t_started

    def __repr__(self) -> str:
        return f"SAEps(len={len(self)} done={self.is_done} R={self.get_return()} id_={self.id_})"

    # ---- parts ----

    def to_numpy(self) -> SingleAgentEpisode:
        """Convert observations, actions, rewards and outputs to arrays; return the episode itself.

        Infos remain lists.
        """
        self.validate()
        self.observations.finalize()
        if len(self) > 0:
            self.actions.finalize()
            self.rewards.finalize()
            for values in self.extra_model_outputs.values():
                values.finalize()
        return self

    def concat_episode(self, other: SingleAgentEpisode) -> None:
        """Append the next part of the same episode, without its lookback.

        Raises:
            ValueError: `other` does not continue this part.
        """
        for fits, problem in (
            (other.id_ == self.id_, f"it belongs to the episode {other.id_}, not {self.id_}"),
            (not self.is_done, "this part has ended"),
            (self.t == other.t_started, f"it begins at {other.t_started}, not at {self.t}"),
        ):
            if not fits:
                raise ValueError(f"Cannot append {other!r} to {self!r}: {problem}.")
        other.validate()
        if not equal(other.observations[0], self.observations[-1]):
            raise ValueError(
                f"Cannot append {other!r} to {self!r}: its first observation "
                f"{other.observations[0]} differs from the last one, {self.observations[-1]}."
            )
        self.observations.pop()
        self.infos.pop()
        self.observations.extend(other.get_observations())
        self.infos.extend(other.get_infos())
        if len(other):
            if not self.extra_model_outputs and not len(self):
                self.extra_model_outputs = {
                    key: InfiniteLookbackBuffer([]) for key in other.extra_model_outputs
                }
            self._match_arrays(other)
            self.actions.extend(other.get_actions())
            self.rewards.extend(other.get_rewards())
            for key in other.extra_model_outputs:
                self.extra_model_outputs[key].extend(other.get_extra_model_outputs(key))
        self.t = other.t
        self.is_terminated = other.is_terminated
        self.is_truncated = other.is_truncated
        self._last_step_time = other._last_step_time or self._last_step_time
        self._custom_data.update(other.custom_data)
        self.validate()

    def _match_arrays(self, other: SingleAgentEpisode) -> None:
        """Convert empty lists to arrays if the observations are arrays."""
        if self.observations.finalized and not self.rewards.finalized:
            self.actions = emptied(other.actions)
            self.rewards = emptied(other.rewards)
            self.extra_model_outputs = {
                key: emptied(values) for key, values in other.extra_model_outputs.items()
            }

    def cut(self, len_lookback_buffer: int = 0) -> SingleAgentEpisode:
        """Return the next part of this episode, without steps; it begins with the last observation.

        Args:
            len_lookback_buffer: Maximum number of steps to keep as lookback.

        Raises:
            ValueError: The episode has ended, or the number is negative.
        """
        if self.is_done:
            raise ValueError(f"Cannot cut {self!r}: it has ended.")
        if len_lookback_buffer < 0:
            raise ValueError(f"len_lookback_buffer={len_lookback_buffer} must not be negative.")
        with_last = slice(-len_lookback_buffer - 1, None)
        rest = slice(-len_lookback_buffer, None) if len_lookback_buffer else slice(None, 0)
        successor = SingleAgentEpisode(
            id_=self.id_,
            observations=self.get_observations(with_last),
            observation_space=self.observation_space,
            infos=self.get_infos(with_last),
            actions=self.get_actions(rest),
            action_space=self.action_space,
            rewards=self.get_rewards(rest),
            extra_model_outputs={
                key: self.get_extra_model_outputs(key, rest) for key in self.extra_model_outputs
            },
            t_started=self.t,
            agent_id=self.agent_id,
            module_id=self.module_id,
            multi_agent_episode_id=self.multi_agent_episode_id,
        )
        successor._custom_data = copy.deepcopy(self._custom_data)
        return successor

    def slice(
        self, slice_: StepSlice, *, len_lookback_buffer: int | None = None
    ) -> SingleAgentEpisode:
        """Return a part of this part; `episode[a:b]` is the same.

        Args:
            slice_: Steps, counted from the start of this part; negative ones from its end.
            len_lookback_buffer: Maximum number of steps before the start to keep as lookback; by
                default the length of this part's lookback.
        """
        start, stop, step = slice_.indices(len(self))
        stop = max(start, stop)

        def part(buffer: InfiniteLookbackBuffer, after: int) -> InfiniteLookbackBuffer:
            wanted = buffer.lookback if len_lookback_buffer is None else len_lookback_buffer
            lookback = min(wanted, buffer.lookback + start)
            at = slice(start - lookback, stop + after, step)
            values = buffer.get(at, neg_index_as_lookback=True)
            return InfiniteLookbackBuffer(values, lookback, buffer.space)

        ends = stop == len(self)
        sliced = SingleAgentEpisode(
            id_=self.id_,
            observations=part(self.observations, 1),
            observation_space=self.observation_space,
            infos=part(self.infos, 1),
            actions=part(self.actions, 0),
            action_space=self.action_space,
            rewards=part(self.rewards, 0),
            extra_model_outputs={
                key: part(values, 0) for key, values in self.extra_model_outputs.items()
            },
            terminated=self.is_terminated and ends,
            truncated=self.is_truncated and ends,
            t_started=self.t_started + start,
            agent_id=self.agent_id,
            module_id=self.module_id,
            multi_agent_episode_id=self.multi_agent_episode_id,
        )
        sliced._custom_data = copy.deepcopy(self._custom_data)
        return sliced

    def __getitem__(self, item: StepSlice) -> SingleAgentEpisode:
        if not isinstance(item, StepSlice):
            raise TypeError(
                f"episode[{item!r}] is not defined; use a slice, episode[a:b]. For the values of a "
                "step, use the getters, such as get_observations()."
            )
        return self.slice(item)

    # ---- state ----

    def get_state(self) -> StateDict:
        """Return the episode as plain data for pickle or msgpack (with arrays)."""
        infos = self.infos.get_state()
        infos["data"] = [info or None for info in infos["data"]]
        return {
            "id_": self.id_,
            "agent_id": self.agent_id,
            "module_id": self.module_id,
            "multi_agent_episode_id": self.multi_agent_episode_id,
            "observations": self.observations.get_state(),
            "actions": self.actions.get_state(),
            "rewards": self.rewards.get_state(),
            "infos": infos,
            "extra_model_outputs": {
                key: values.get_state() for key, values in self.extra_model_outputs.items()
            }
            or None,
            "is_terminated": self.is_terminated,
            "is_truncated": self.is_truncated,
            "t_started": self.t_started,
            "t": self.t,
            "_observation_space": gym_space_to_dict(self._observation_space),
            "_action_space": gym_space_to_dict(self._action_space),
            "_start_time": self._start_time,
            "_last_step_time": self._last_step_time,
            "custom_data": self._custom_data,
        }

    @staticmethod
    def from_state(state: StateDict) -> SingleAgentEpisode:
        """Rebuild the episode from `get_state`, also after a round trip through msgpack, or from
        RLlib's recordings.
        """
        infos = dict(state["infos"])
        infos["data"] = [info or {} for info in infos["data"]]
        infos["finalized"] = False
        outputs = state["extra_model_outputs"] or {}
        episode = SingleAgentEpisode(
            id_=state["id_"],
            observations=InfiniteLookbackBuffer.from_state(state["observations"]),
            observation_space=gym_space_from_dict(state["_observation_space"]),
            infos=InfiniteLookbackBuffer.from_state(infos),
            actions=InfiniteLookbackBuffer.from_state(state["actions"]),
            action_space=gym_space_from_dict(state["_action_space"]),
            rewards=InfiniteLookbackBuffer.from_state(state["rewards"]),
            extra_model_outputs={
                key: InfiniteLookbackBuffer.from_state(values) for key, values in outputs.items()
            },
            terminated=state["is_terminated"],
            truncated=state["is_truncated"],
            t_started=state["t_started"],
            agent_id=state["agent_id"],
            module_id=state["module_id"],
            multi_agent_episode_id=state["multi_agent_episode_id"],
        )
        episode.t = state["t"]
        episode._start_time = state["_start_time"]
        episode._last_step_time = state["_last_step_time"]
        episode._custom_data = state.get("custom_data") or {}
        if len(episode.observations):
            episode._last_added_observation = episode.observations[-1]
            episode._last_added_infos = episode.infos[-1]
        return episode
