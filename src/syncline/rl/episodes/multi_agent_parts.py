"""`MultiAgentParts`: cutting, slicing and joining episodes of several agents."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from syncline.rl.episodes.items import Item
from syncline.rl.episodes.lookback import InfiniteLookbackBuffer
from syncline.rl.episodes.multi_agent_getters import SKIPPED, MultiAgentGetters
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.value_types import AgentDict, AgentID, CustomData, Options, Space, Tree

if TYPE_CHECKING:
    from typing_extensions import Self

ALL = "__all__"

StepSlice: TypeAlias = slice


class MultiAgentParts(MultiAgentGetters):
    """Methods of `MultiAgentEpisode` that cut, slice and join parts of episodes.

    The constructor of `type(self)` takes the arguments of `MultiAgentEpisode`.
    """

    observation_space: Space
    action_space: Space
    agent_to_module_mapping_fn: Callable[..., str]
    _modules: AgentDict[str]
    _custom_data: CustomData
    _last_step_time: float | None

    if TYPE_CHECKING:

        def __init__(self, id_: str | None = None, **options: object) -> None: ...

    @property
    def is_numpy(self) -> bool:
        """True if the values are arrays."""
        return any(each.is_numpy for each in self.agent_episodes.values())

    @property
    def is_done(self) -> bool:
        """True if the episode has ended for all agents."""
        return self.is_terminated or self.is_truncated

    def __len__(self) -> int:
        return self.env_t - self.env_t_started

    @property
    def agent_episode_ids(self) -> AgentDict[str]:
        """Ids of the agents' episodes."""
        return {agent: each.id_ for agent, each in self.agent_episodes.items()}

    def validate(self) -> None:
        """Check that the parts of the agents' episodes have matching lengths.

        Raises:
            ValueError: The lengths do not match.
        """
        for single in self.agent_episodes.values():
            single.validate()

    def to_numpy(self) -> Self:
        """Convert observations, actions, rewards and outputs to arrays; return the episode itself.

        Infos remain lists.
        """
        for single in self.agent_episodes.values():
            single.to_numpy()
        return self

    def cut(self, len_lookback_buffer: int = 0) -> Self:
        """Return the next part of this episode, without steps; it begins with the newest
        observations.

        Steps of waiting agents end in the next part, whose lookback is extended to include them.

        Args:
            len_lookback_buffer: Maximum number of environment steps to keep as lookback.

        Raises:
            ValueError: The episode has ended, or the number is negative.
        """
        if self.is_done:
            raise ValueError(f"Cannot cut {self!r}: it has ended.")
        if len_lookback_buffer < 0:
            raise ValueError(f"len_lookback_buffer={len_lookback_buffer} must not be negative.")
        end = self._lookback + len(self)
        lookback = min(len_lookback_buffer, end)
        for agent in self._hanging_actions:
            lookback = max(lookback, end - _newest(self.env_t_to_agent_t[agent].data, end))
        successor = self._part(end - lookback, end, end)
        for agent, reward in self._hanging_rewards.items():
            if agent not in self._hanging_actions:
                successor._hanging_rewards[agent] = reward
        return successor

    def slice(self, slice_: StepSlice, *, len_lookback_buffer: int | None = None) -> Self:
        """Return a part of this part; `episode[a:b]` is the same.

        Args:
            slice_: Environment steps, counted from the start of this part; negative ones from its
                end. An agent that waits at the end has a hanging action; an agent that waits at the
                start begins with its next observation.
            len_lookback_buffer: Maximum number of steps before the start to keep as lookback; by
                default the length of this part's lookback.

        Raises:
            ValueError: The slice has a step other than 1.
        """
        start, stop, step = slice_.indices(len(self))
        if step != 1:
            raise ValueError(f"Cannot slice {self!r} in steps of {step}; only 1 is supported.")
        wanted = self._lookback if len_lookback_buffer is None else len_lookback_buffer
        start, stop = start + self._lookback, max(start, stop) + self._lookback
        part = self._part(max(start - wanted, 0), stop, start)
        if self.is_numpy:
            part.to_numpy()
        return part

    def __getitem__(self, item: StepSlice) -> Self:
        if not isinstance(item, StepSlice):
            raise TypeError(
                f"episode[{item!r}] is not defined; use a slice, episode[a:b]. For the values of a "
                "step, use the getters, such as get_observations()."
            )
        return self.slice(item)

    def _part(self, first: int, stop: int, start: int) -> Self:
        """Return the steps from `start` to `stop` with the lookback from `first`; all are counted
        from the start of the current lookback.
        """
        ends = stop == self._lookback + len(self)
        with_last = slice(first - self._lookback, stop + 1 - self._lookback)
        steps = slice(with_last.start, stop - self._lookback)
        started, ended = {}, {}
        for agent, single in self.agent_episodes.items():
            numbers = self.env_t_to_agent_t[agent].data
            known = [each for each in numbers[first : stop + 1] if each != SKIPPED]
            later = [each for each in numbers[start : stop + 1] if each != SKIPPED]
            if known:
                started[agent] = later[0] if later else known[-1]
                ended[agent] = known[-1] == single.t
        options: Options = {"neg_index_as_lookback": True, "return_list": True}
        terminated, truncated = self.get_terminateds(), self.get_truncateds()
        part = type(self)(
            id_=self.id_,
            observations=self.get_observations(with_last, **options),
            observation_space=self.observation_space,
            infos=self.get_infos(with_last, **options),
            actions=self.get_actions(steps, **options),
            action_space=self.action_space,
            rewards=self.get_rewards(steps, **options),
            terminateds={
                ALL: self.is_terminated and ends,
                **{agent: terminated[agent] and last for agent, last in ended.items()},
            },
            truncateds={
                ALL: self.is_truncated and ends,
                **{agent: truncated[agent] and last for agent, last in ended.items()},
            },
            extra_model_outputs=self.get_extra_model_outputs(None, steps, **options),
            env_t_started=self.env_t_started + start - self._lookback,
            agent_t_started=started,
            len_lookback_buffer=start - first,
            agent_episode_ids=self.agent_episode_ids,
            agent_module_ids=self._modules,
            agent_to_module_mapping_fn=self.agent_to_module_mapping_fn,
        )
        part._custom_data = copy.deepcopy(self._custom_data)
        return part

    def concat_episode(self, other: Self) -> None:
        """Append the next part of the same episode, without its lookback.

        Raises:
            ValueError: `other` does not continue this part.
        """
        for fits, problem in (
            (other.id_ == self.id_, f"it belongs to the episode {other.id_}, not {self.id_}"),
            (not self.is_done, "this part has ended"),
            (
                self.env_t == other.env_t_started,
                f"it begins at {other.env_t_started}, not at {self.env_t}",
            ),
        ):
            if not fits:
                raise ValueError(f"Cannot append {other!r} to {self!r}: {problem}.")
        own_size = self._lookback + len(self) + 1
        for agent, single in other.agent_episodes.items():
            own = self.agent_episodes.get(agent)
            if own is None:
                self.agent_episodes[agent] = single
                self.env_t_to_agent_t[agent] = InfiniteLookbackBuffer(
                    [SKIPPED] * (own_size - 1) + other.env_t_to_agent_t[agent].get(), self._lookback
                )
            elif not own.is_done:
                self._join(agent, own, single)
                self.env_t_to_agent_t[agent].extend(other.env_t_to_agent_t[agent].get()[1:])
            self._forget_hanging(agent)
        for numbers in self.env_t_to_agent_t.values():
            numbers.extend([SKIPPED] * (own_size + len(other) - numbers.len_incl_lookback()))
        self._hanging_actions.update(other._hanging_actions)
        self._hanging_outputs.update(other._hanging_outputs)
        self._hanging_rewards.update(other._hanging_rewards)
        self._modules = {**other._modules, **self._modules}
        self.env_t = other.env_t
        self.is_terminated, self.is_truncated = other.is_terminated, other.is_truncated
        self._last_step_time = other._last_step_time or self._last_step_time
        self._custom_data.update(other._custom_data)
        self.validate()

    def _join(self, agent: AgentID, own: SingleAgentEpisode, single: SingleAgentEpisode) -> None:
        """Append the next part of an agent's episode, and the step between both if any."""
        if single.t_started == own.t + 1 and agent in self._hanging_actions:
            self._complete(agent, single.get_observations(0), single.get_infos(0), False, False)
        own.concat_episode(single)

    def _complete(
        self, agent: AgentID, observation: Item, info: Tree, terminated: bool, truncated: bool
    ) -> None:
        """End the step of an agent that has acted."""
        self.agent_episodes[agent].add_env_step(
            observation=observation,
            action=self._hanging_actions.pop(agent),
            reward=self._hanging_rewards.pop(agent, 0.0),
            infos=info,
            terminated=terminated,
            truncated=truncated,
            extra_model_outputs=self._hanging_outputs.pop(agent, None) or None,
        )

    def _forget_hanging(self, agent: AgentID) -> None:
        for hanging in (self._hanging_actions, self._hanging_outputs, self._hanging_rewards):
            hanging.pop(agent, None)


def _newest(numbers: Sequence[object], end: int) -> int:
    """Return the newest environment step at which an agent has an observation."""
    return next(position for position in range(end, -1, -1) if numbers[position] != SKIPPED)
