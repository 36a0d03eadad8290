"""`ConnectorV2`: base class of connectors, with helpers for batches of items.

A batch of items has columns; a column has a list of items, one per time step, for each key of an
episode.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Any

from syncline.rl.checkpointable import Checkpointable, StateDict
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.value_types import Batch as Batch
from syncline.rl.value_types import CallArguments, CheckedSpace, Episode, Episodes, Space, Tree


class ConnectorV2(Checkpointable):
    """A connector that transforms episodes and batches.

    Subclasses implement `__call__`. They also implement `recompute_output_observation_space` if
    the output space differs from the input space.

    Args:
        input_observation_space: Space of the input observations.
        input_action_space: Space of the input actions.
        **kwargs: Other arguments of the subclass.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        **kwargs: object,
    ) -> None:
        self._kwargs = kwargs
        self._input_observation_space: Space | None = None
        self._input_action_space: Space | None = None
        self._observation_space: Space | None = None
        self._action_space: Space | None = None
        if input_observation_space is not None or input_action_space is not None:
            self.set_input_spaces(input_observation_space, input_action_space)

    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: Batch,
        episodes: Episodes,
        explore: bool | None = None,
        shared_data: Batch | None = None,
        metrics: MetricsLogger | None = None,
        **kwargs: object,
    ) -> Batch:
        """Transform episodes and batch; return the batch.

        Args:
            rl_module: The module that acts.
            batch: Items by column and episode.
            episodes: Episodes that have a new observation or a new action.
            explore: True if actions are sampled.
            shared_data: Data that connectors pass to later connectors of the pipeline.
            metrics: A `MetricsLogger`.
            **kwargs: For arguments of later releases.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `__call__`.")

    # -- spaces

    def set_input_spaces(self, observation_space: Space | None, action_space: Space | None) -> None:
        """Set the input spaces, and compute the output spaces."""
        self._input_observation_space = observation_space
        self._input_action_space = action_space
        if observation_space is not None:
            self._observation_space = self.recompute_output_observation_space(
                observation_space, action_space
            )
        if action_space is not None:
            self._action_space = self.recompute_output_action_space(observation_space, action_space)

    def recompute_output_observation_space(
        self, input_observation_space: Space | None, input_action_space: Space | None
    ) -> Space | None:
        """Return the space of the output observations; by default, that of the input."""
        return input_observation_space

    def recompute_output_action_space(
        self, input_observation_space: Space | None, input_action_space: Space | None
    ) -> Space | None:
        """Return the space of the output actions; by default, that of the input."""
        return input_action_space

    @property
    def input_observation_space(self) -> CheckedSpace:
        """Space of the input observations."""
        return self._input_observation_space

    @input_observation_space.setter
    def input_observation_space(self, space: Space) -> None:
        self.set_input_spaces(space, self._input_action_space)

    @property
    def input_action_space(self) -> CheckedSpace:
        """Space of the input actions."""
        return self._input_action_space

    @input_action_space.setter
    def input_action_space(self, space: Space) -> None:
        self.set_input_spaces(self._input_observation_space, space)

    @property
    def observation_space(self) -> CheckedSpace:
        """Space of the output observations."""
        return self._observation_space

    @property
    def action_space(self) -> CheckedSpace:
        """Space of the output actions."""
        return self._action_space

    # -- state

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: object,
    ) -> StateDict:
        """Return the state; empty by default."""
        return {}

    def set_state(self, state: StateDict) -> None:
        """Set the state."""

    def reset_state(self) -> None:
        """Clear the state."""

    def merge_states(self, states: list[StateDict]) -> StateDict:
        """Merge the states of this connector in several env runners.

        By default the merged state is empty: every runner keeps its own.
        """
        return {}

    def take_changes(self) -> StateDict:
        """Return the input for `merge_states` of another process, such as recent changes.

        By default, return the state.
        """
        return self.get_state()

    def join_changes(self, changes: list[StateDict]) -> StateDict:
        """Combine successive changes of one runner; by default, keep the last."""
        return changes[-1]

    def set_merged_state(self, state: StateDict) -> None:
        """Set the state that `merge_states` returned; keep changes made after `take_changes`."""
        self.set_state(state)

    def get_ctor_args_and_kwargs(self) -> CallArguments:
        """Return the arguments that construct an equal connector."""
        return (self.input_observation_space, self.input_action_space), dict(self._kwargs)

    # -- helpers

    @staticmethod
    def single_agent_episode_iterator(
        episodes: Iterable[Episode],
        agents_that_stepped_only: bool = True,
        zip_with_batch_column: Any = None,
    ) -> Iterator[Episode]:
        """Yield the episodes of single agents.

        Args:
            episodes: Episodes of one agent or of several.
            agents_that_stepped_only: Only yield agents with a new observation.
            zip_with_batch_column: Column of a batch; if given, yield pairs of episode and item.
        """
        singles = (
            single
            for episode in episodes
            for single in _singles_of(episode, agents_that_stepped_only)
        )
        if zip_with_batch_column is None:
            yield from singles
        elif isinstance(zip_with_batch_column, dict):
            taken: dict[Hashable, int] = {}
            for episode in singles:
                key = batch_key(episode)
                place = taken.get(key, 0)
                taken[key] = place + 1
                yield episode, zip_with_batch_column[key][place]
        else:
            yield from zip(singles, zip_with_batch_column, strict=True)

    @staticmethod
    def add_batch_item(
        batch: Batch, column: str, item_to_add: Tree, single_agent_episode: object = None
    ) -> None:
        """Append an item to a column, under the key of its episode if given."""
        ConnectorV2.add_n_batch_items(batch, column, [item_to_add], 1, single_agent_episode)

    @staticmethod
    def add_n_batch_items(
        batch: Batch,
        column: str,
        items_to_add: Tree,
        num_items: int,
        single_agent_episode: Episode = None,
    ) -> None:
        """Append `num_items` items to a column, under the key of their episode if given."""
        if len(items_to_add) != num_items:
            raise ValueError(
                f"add_n_batch_items() got {len(items_to_add)} items for column {column!r}, but "
                f"num_items={num_items}."
            )
        if single_agent_episode is None:
            batch.setdefault(column, []).extend(items_to_add)
        else:
            key = batch_key(single_agent_episode)
            batch.setdefault(column, {}).setdefault(key, []).extend(items_to_add)

    @staticmethod
    def foreach_batch_item_change_in_place(
        batch: Batch, column: str | list[str], func: Callable[..., Any]
    ) -> None:
        """Replace each item of a column by `func(item, episode_id, agent_id, module_id)`.

        With a list of columns, `func` gets and returns tuples of their items.
        """
        columns = [column] if isinstance(column, str) else column
        missing = [each for each in columns if each not in batch]
        if missing:
            raise ValueError(f"The batch has no column {missing[0]!r}; it has {sorted(batch)}.")
        first = batch[columns[0]]
        keys = list(first) if isinstance(first, dict) else [None]
        for key in keys:
            lists = [batch[each] if key is None else batch[each][key] for each in columns]
            episode, agent, module = (*(key or ()), None, None, None)[:3]
            for place, items in enumerate(zip(*lists, strict=True)):
                if isinstance(column, str):
                    lists[0][place] = func(items[0], episode, agent, module)
                else:
                    for each, item in zip(lists, func(items, episode, agent, module), strict=True):
                        each[place] = item

    def __str__(self) -> str:
        return type(self).__name__


def _singles_of(episode: Episode, stepped_only: bool) -> Iterable[object]:
    if not hasattr(episode, "agent_episodes"):
        return [episode]
    singles = episode.agent_episodes.items()
    if not stepped_only:
        return [single for _, single in singles]
    # A repeated observation has already been transformed by the connectors.
    agents = episode.get_agents_that_stepped() - episode.agents_with_repeated_observation
    return [single for agent, single in singles if agent in agents]


def batch_key(episode: Episode) -> tuple[Hashable, ...]:
    """Return the key of the episode's items in a batch."""
    if episode.agent_id is None:
        return (episode.id_,)
    return (episode.multi_agent_episode_id, episode.agent_id, episode.module_id)
