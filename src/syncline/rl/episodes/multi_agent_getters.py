"""`MultiAgentGetters`: getters and setters of the values of episodes with several agents.

Indices count environment steps: an observation belongs to the step at which the agent received it;
an action, its reward and other outputs of the module belong to the step at which the agent acted. A
waiting agent has no value. With `env_steps=False`, indices count each agent's own steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from syncline.rl.episodes.items import Item, filled, one_hot, stack
from syncline.rl.episodes.lookback import Indices, InfiniteLookbackBuffer
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.value_types import AgentDict, AgentID, Batch, Options, Tree

SKIPPED = "S"
"""Entry of `env_t_to_agent_t` for steps at which an agent has no observation."""

Kind = Literal["observations", "infos", "actions", "rewards", "extra_model_outputs"]


@dataclass(frozen=True, kw_only=True)
class _Values:
    """The values of one kind of an agent, including that of an incomplete step."""

    buffer: InfiniteLookbackBuffer
    first: int
    """The agent's step of the first value in the buffer, including the lookback."""
    waits: bool
    """True if there is a value of an incomplete step."""
    waiting: Item
    one_hot: bool

    def has(self, number: Any) -> bool:
        """Return True if a step of the agent has a value."""
        return number != SKIPPED and bool(number - self.first < self.count)

    @property
    def count(self) -> int:
        """Number of values including the lookback."""
        return self.buffer.len_incl_lookback() + self.waits

    def at(self, number: int) -> Item:
        """Return the value of a step of the agent."""
        position = number - self.first
        if self.waits and position == self.count - 1:
            return self._encoded(self.waiting)
        return self.buffer.get(
            position - self.buffer.lookback,
            neg_index_as_lookback=True,
            one_hot_discrete=self.one_hot,
        )

    def by_agent_steps(self, indices: Indices, neg_index_as_lookback: bool, fill: object) -> Tree:
        """Return the values at indices of the agent's own steps; None for its complete steps."""
        return self.buffer.get(
            indices,
            neg_index_as_lookback=neg_index_as_lookback,
            fill=fill,
            one_hot_discrete=self.one_hot,
            _add_last_ts_value=self.waiting if self.waits and indices is not None else None,
        )

    def filled(self, fill: object) -> Item:
        """Return a value in which every number is `fill`."""
        return filled(self.buffer.space, fill, self.one_hot)

    def _encoded(self, item: Item) -> Item:
        space = self.buffer.space
        return one_hot(item, space) if self.one_hot and space is not None else item


class MultiAgentGetters:
    """Getters and setters of `MultiAgentEpisode`."""

    id_: str
    env_t: int
    env_t_started: int
    is_terminated: bool
    is_truncated: bool
    agent_episodes: AgentDict[SingleAgentEpisode]
    env_t_to_agent_t: AgentDict[InfiniteLookbackBuffer]
    _lookback: int
    _hanging_actions: AgentDict[Item]
    _hanging_outputs: AgentDict[dict[str, Item]]
    _hanging_rewards: AgentDict[Tree]

    def get_observations(
        self,
        indices: Indices = None,
        agent_ids: object = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: object = None,
        one_hot_discrete: bool = False,
        return_list: bool = False,
    ) -> Tree:
        """Return observations by agent: one for an int, else a list, or arrays after `to_numpy`.

        Args:
            indices: An int, a list of ints or a slice; None for all except the lookback. -1 is the
                last step.
            agent_ids: An agent or a collection of them; None for all.
            env_steps: Indices count environment steps; if False, steps of each agent.
            neg_index_as_lookback: Negative indices count back from the start: -1 is the last step
                of the lookback.
            fill: Number for values out of range, and for agents without a value at a step. None
                omits them.
            one_hot_discrete: Return Discrete and MultiDiscrete parts as one-hot vectors.
            return_list: Return a list with a dict by agent for each environment step.

        Raises:
            IndexError: An int is out of range and `fill` is None.
            ValueError: `return_list` with `env_steps=False`.
        """
        return self._get(
            "observations",
            indices,
            agent_ids,
            env_steps=env_steps,
            neg_index_as_lookback=neg_index_as_lookback,
            fill=fill,
            one_hot_discrete=one_hot_discrete,
            return_list=return_list,
        )

    def get_infos(
        self,
        indices: Indices = None,
        agent_ids: object = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: object = None,
        return_list: bool = False,
    ) -> Tree:
        """Return infos by agent; arguments as for `get_observations`."""
        return self._get(
            "infos",
            indices,
            agent_ids,
            env_steps=env_steps,
            neg_index_as_lookback=neg_index_as_lookback,
            fill=fill,
            return_list=return_list,
        )

    def get_actions(
        self,
        indices: Indices = None,
        agent_ids: object = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: object = None,
        one_hot_discrete: bool = False,
        return_list: bool = False,
    ) -> Tree:
        """Return actions by agent, including those of waiting agents; arguments as for
        `get_observations`.
        """
        return self._get(
            "actions",
            indices,
            agent_ids,
            env_steps=env_steps,
            neg_index_as_lookback=neg_index_as_lookback,
            fill=fill,
            one_hot_discrete=one_hot_discrete,
            return_list=return_list,
        )

    def get_rewards(
        self,
        indices: Indices = None,
        agent_ids: object = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: object = None,
        return_list: bool = False,
    ) -> Tree:
        """Return rewards by agent, summed from each action to the next observation; arguments
        as for `get_observations`.
        """
        return self._get(
            "rewards",
            indices,
            agent_ids,
            env_steps=env_steps,
            neg_index_as_lookback=neg_index_as_lookback,
            fill=fill,
            return_list=return_list,
        )

    def get_extra_model_outputs(
        self,
        key: str | None = None,
        indices: Indices = None,
        agent_ids: object = None,
        *,
        env_steps: bool = True,
        neg_index_as_lookback: bool = False,
        fill: object = None,
        return_list: bool = False,
    ) -> Tree:
        """Return another output of the modules by agent, or without `key`, dicts of all outputs;
        other arguments as for `get_observations`.

        Raises:
            KeyError: No agent has this output.
        """
        arguments: Options = {
            "env_steps": env_steps,
            "neg_index_as_lookback": neg_index_as_lookback,
            "fill": fill,
            "return_list": return_list,
        }
        known = self._output_names()
        if key is not None:
            if known and key not in known:
                raise KeyError(
                    f"No agent of the episode {self.id_} has the output {key!r}; there are {known}."
                )
            return self._get("extra_model_outputs", indices, agent_ids, key=key, **arguments)
        by_name = {
            name: self._get("extra_model_outputs", indices, agent_ids, key=name, **arguments)
            for name in known
        }
        if not return_list:
            return _by_agent(by_name)
        count = len(self._positions(indices, neg_index_as_lookback, "actions"))
        return [
            _by_agent({name: steps[place] for name, steps in by_name.items()})
            for place in range(count)
        ]

    def get_terminateds(self) -> AgentDict[bool]:
        """Return True by agent if it ended in a terminal state; "__all__" for the episode."""
        flags = {agent: each.is_terminated for agent, each in self.agent_episodes.items()}
        return {**flags, "__all__": self.is_terminated}

    def get_truncateds(self) -> AgentDict[bool]:
        """Return True by agent if it ended for another reason; "__all__" for the episode."""
        flags = {agent: each.is_truncated for agent, each in self.agent_episodes.items()}
        return {**flags, "__all__": self.is_truncated}

    # ---- setters ----

    def set_observations(
        self,
        *,
        new_data: AgentDict[Tree],
        at_indices: Indices = None,
        neg_index_as_lookback: bool = False,
    ) -> None:
        """Overwrite observations, by agent.

        Args:
            new_data: By agent, one observation for an int, otherwise one per index.
            at_indices: An int, a list of ints or a slice of each agent's own steps; None for all
                except the lookback.
            neg_index_as_lookback: Negative indices count back from the start.

        Raises:
            KeyError: The episode does not have the agent.
            IndexError: An index is out of range, or the number of observations does not match.
        """
        for agent, data in new_data.items():
            self._episode_of(agent).set_observations(
                new_data=data, at_indices=at_indices, neg_index_as_lookback=neg_index_as_lookback
            )

    def set_actions(
        self,
        *,
        new_data: AgentDict[Tree],
        at_indices: Indices = None,
        neg_index_as_lookback: bool = False,
    ) -> None:
        """Overwrite actions of complete steps; arguments as for `set_observations`."""
        for agent, data in new_data.items():
            self._episode_of(agent).set_actions(
                new_data=data, at_indices=at_indices, neg_index_as_lookback=neg_index_as_lookback
            )

    def set_rewards(
        self,
        *,
        new_data: AgentDict[Tree],
        at_indices: Indices = None,
        neg_index_as_lookback: bool = False,
    ) -> None:
        """Overwrite rewards of complete steps; arguments as for `set_observations`."""
        for agent, data in new_data.items():
            self._episode_of(agent).set_rewards(
                new_data=data, at_indices=at_indices, neg_index_as_lookback=neg_index_as_lookback
            )

    def set_extra_model_outputs(
        self,
        *,
        key: str,
        new_data: AgentDict[Tree],
        at_indices: Indices = None,
        neg_index_as_lookback: bool = False,
    ) -> None:
        """Overwrite another output of complete steps; arguments as for `set_observations`."""
        for agent, data in new_data.items():
            self._episode_of(agent).set_extra_model_outputs(
                key=key,
                new_data=data,
                at_indices=at_indices,
                neg_index_as_lookback=neg_index_as_lookback,
            )

    def _episode_of(self, agent: AgentID) -> SingleAgentEpisode:
        if agent not in self.agent_episodes:
            raise KeyError(
                f"The episode {self.id_} has no agent {agent!r}; it has "
                f"{list(self.agent_episodes)}."
            )
        return self.agent_episodes[agent]

    # ---- lookup ----

    def _get(
        self,
        kind: Kind,
        indices: Indices,
        agent_ids: object,
        *,
        env_steps: bool,
        neg_index_as_lookback: bool,
        fill: object,
        return_list: bool,
        one_hot_discrete: bool = False,
        key: str | None = None,
    ) -> Tree:
        values = dict(self._values(kind, self._chosen(agent_ids), one_hot_discrete, key))
        if not env_steps:
            if return_list:
                raise ValueError(
                    "return_list=True needs environment steps, but env_steps=False counts each "
                    "agent's own steps. Remove one of the arguments."
                )
            found = {
                agent: each.by_agent_steps(indices, neg_index_as_lookback, fill)
                for agent, each in values.items()
            }
            return {
                agent: each
                for agent, each in found.items()
                if not (isinstance(each, list) and not each)
            }
        positions = self._positions(indices, neg_index_as_lookback, kind)
        rows = self._rows(values, positions, fill)
        if return_list:
            return rows
        if fill is None:
            rows = [row for row, place in zip(rows, positions, strict=True) if place is not None]
        if fill is None and None in positions and not isinstance(indices, slice):
            raise IndexError(
                f"There are no {kind} at {indices}: the episode {self.id_} has "
                f"{self.env_t - self.env_t_started} steps and a lookback of {self._lookback}. Pass "
                "`fill` for steps out of range."
            )
        if indices is not None and not isinstance(indices, (list, slice)):
            return rows[0]
        listed = {agent: [row[agent] for row in rows if agent in row] for agent in values}
        return {
            agent: stack(each) if values[agent].buffer.finalized else each
            for agent, each in listed.items()
            if each
        }

    def _rows(
        self, values: AgentDict[_Values], positions: Sequence[int | None], fill: object
    ) -> list[AgentDict[Tree]]:
        """Return the values by agent for each position; a position of None is out of range."""
        rows: list[AgentDict[Tree]] = []
        for position in positions:
            row = {}
            for agent, each in values.items():
                number: Any = SKIPPED
                if position is not None:
                    number = self.env_t_to_agent_t[agent].data[position]
                if each.has(number):
                    row[agent] = each.at(number)
                elif fill is not None:
                    row[agent] = each.filled(fill)
            rows.append(row)
        return rows

    def _positions(
        self, indices: Indices, neg_index_as_lookback: bool, kind: Kind
    ) -> list[int | None]:
        """Return positions in `env_t_to_agent_t` from the start of the lookback; None if out of out
        of range.
        """
        size = self._lookback + self.env_t - self.env_t_started
        size += kind in ("observations", "infos")
        if indices is None or isinstance(indices, slice):
            places = InfiniteLookbackBuffer(list(range(size)), self._lookback)
            found = places.get(indices, neg_index_as_lookback=neg_index_as_lookback, fill=-1)
            return [None if each < 0 else each for each in found]
        made: list[int | None] = []
        for index in indices if isinstance(indices, list) else [int(indices)]:
            from_start = index >= 0 or neg_index_as_lookback
            position = index + (self._lookback if from_start else size)
            made.append(position if 0 <= position < size else None)
        return made

    def _chosen(self, agent_ids: object) -> list[AgentID]:
        if agent_ids is None:
            return list(self.agent_episodes)
        known = agent_ids.__hash__ is not None and agent_ids in self.agent_episodes
        if known or not isinstance(agent_ids, Collection) or isinstance(agent_ids, (str, bytes)):
            return [agent_ids] if known else []
        return [agent for agent in self.agent_episodes if agent in agent_ids]

    def _values(
        self, kind: Kind, agents: list[AgentID], as_one_hot: bool, key: str | None
    ) -> Iterator[tuple[object, _Values]]:
        for agent in agents:
            single = self.agent_episodes[agent]
            waits = agent in self._hanging_actions
            waiting: Item = None
            if kind == "extra_model_outputs":
                assert key is not None
                outputs = self._hanging_outputs.get(agent, {})
                waits, waiting = key in outputs, outputs.get(key)
                buffer = single.extra_model_outputs.get(key)
                if buffer is None:
                    if not waits:
                        continue
                    buffer = InfiniteLookbackBuffer([])
                    first = single.t
                else:
                    first = single.t_started - buffer.lookback
            else:
                buffer = getattr(single, kind)
                first = single.t_started - buffer.lookback
                if kind in ("observations", "infos"):
                    waits = False
                elif kind == "actions":
                    waiting = self._hanging_actions.get(agent)
                else:
                    waiting = self._hanging_rewards.get(agent, 0.0)
            yield (
                agent,
                _Values(
                    buffer=buffer, first=first, waits=waits, waiting=waiting, one_hot=as_one_hot
                ),
            )

    def _output_names(self) -> list[str]:
        names: dict[str, None] = {}
        for single in self.agent_episodes.values():
            names.update(dict.fromkeys(single.extra_model_outputs))
        for outputs in self._hanging_outputs.values():
            names.update(dict.fromkeys(outputs))
        return list(names)


def _by_agent(by_name: dict[str, AgentDict[Tree]]) -> AgentDict[Batch]:
    """Convert name -> agent -> value to agent -> name -> value."""
    made: AgentDict[Batch] = {}
    for name, values in by_name.items():
        for agent, value in values.items():
            made.setdefault(agent, {})[name] = value
    return made
