"""Default connectors that convert episodes to batches of items for a module.

They also serve learners (`as_learner_connector=True`): items are then whole episodes instead of
their newest steps. Runners do the same work on whole columns, so these connectors run only if a
program calls a pipeline itself or appends connectors to them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, first_leaf, map_tree, stack_trees
from syncline.rl.connectors.connector import Batch, ConnectorV2, batch_key
from syncline.rl.episodes.episode_type import EpisodeType
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.modules.rl_module import RLModule
from syncline.rl.value_types import Episode, Episodes, ModuleType, Space
from syncline.suggestions import did_you_mean

MEMORIZED = "memorized_map_structure"
"""Key of shared data: ordered keys of a batch's items by module id (None for a single one)."""
MASK_ADDED = "_added_loss_mask_for_valid_episode_ts"
"""Key of shared data: True if a connector has added the mask of real steps."""


class DefaultConnector(ConnectorV2):
    """Base of the connectors that runners and learners replace with work on whole columns."""


class AddObservationsFromEpisodesToBatch(DefaultConnector):
    """Adds the newest observation of each episode; for learners, all except the last.

    Args:
        as_learner_connector: Add the observations of whole episodes.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        as_learner_connector: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._whole = as_learner_connector

    def __call__(self, *, batch: Batch, episodes: Episodes, **kwargs: object) -> Batch:
        """Add the column unless the batch has it."""
        if Columns.OBS in batch:
            return batch
        for episode in self.single_agent_episode_iterator(
            episodes, agents_that_stepped_only=not self._whole
        ):
            if self._whole:
                items = items_of(episode.get_observations(slice(0, len(episode))))
                self.add_n_batch_items(batch, Columns.OBS, items, len(episode), episode)
            else:
                self.add_batch_item(batch, Columns.OBS, episode.get_observations(-1), episode)
        return batch


class AddTimeDimToBatchAndZeroPad(DefaultConnector):
    """Adds a time dimension to the items of modules with memory, and pads sequences with zeros.

    For a module, each item becomes a sequence of one step. For learners, episodes are cut into
    sequences of `max_seq_len` steps, and `loss_mask` marks the real steps.

    Args:
        as_learner_connector: Cut whole episodes into sequences.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        as_learner_connector: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._whole = as_learner_connector

    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: Batch,
        episodes: Episodes,
        shared_data: Batch | None = None,
        **kwargs: object,
    ) -> Batch:
        """Change the columns of episodes whose module has a state."""
        if self._whole and not (shared_data or {}).get(MASK_ADDED):
            self._add_masks(rl_module, batch)
        for column, values in batch.items():
            if not isinstance(values, dict) or column in (Columns.INFOS, Columns.STATE_IN):
                continue
            for key, items in values.items():
                module = module_of(rl_module, key)
                if module is None or not module.is_stateful():
                    continue
                values[key] = (
                    sequences_of(items, max_seq_len(module))
                    if self._whole
                    else [map_tree(lambda leaf: np.asarray(leaf)[None], item) for item in items]
                )
        return batch

    def _add_masks(self, rl_module: object, batch: Batch) -> None:
        """Add the mask of all steps, which is False for padding."""
        masks = {
            key: [np.bool_(True)] * len(items)
            for key, items in batch.get(Columns.OBS, {}).items()
            if (module := module_of(rl_module, key)) is not None and module.is_stateful()
        }
        if masks and Columns.LOSS_MASK not in batch:
            batch[Columns.LOSS_MASK] = masks


class AddStatesFromEpisodesToBatch(DefaultConnector):
    """Adds the states of modules with memory as `state_in`.

    The state before a step is `state_out` of the previous step, or the initial state. Learners get
    the state before each sequence of `max_seq_len` steps.

    Args:
        as_learner_connector: Add the states of whole episodes.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        as_learner_connector: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._whole = as_learner_connector

    def __call__(
        self, *, rl_module: RLModule, batch: Batch, episodes: Episodes, **kwargs: object
    ) -> Batch:
        """Add the column."""
        if Columns.STATE_IN in batch:
            return batch
        for episode in self.single_agent_episode_iterator(
            episodes, agents_that_stepped_only=not self._whole
        ):
            module = module_of(rl_module, batch_key(episode))
            if module is None or not module.is_stateful():
                continue
            initial = map_tree(as_array, module.get_initial_state())
            if not self._whole:
                state = initial
                if Columns.STATE_OUT in episode.extra_model_outputs and len(episode):
                    state = episode.get_extra_model_outputs(Columns.STATE_OUT, -1)
                self.add_batch_item(batch, Columns.STATE_IN, state, episode)
                continue
            states = _states_before(episode, initial, max_seq_len(module))
            self.add_n_batch_items(batch, Columns.STATE_IN, states, len(states), episode)
        return batch


def _states_before(episode: Episode, initial: Tree, length: int) -> list[Tree]:
    """Return the states before each sequence of an episode."""
    if Columns.STATE_OUT not in episode.extra_model_outputs:
        raise ValueError(
            f"The episode {episode.id_} has no column `state_out`, which contains the initial "
            "states of sequences for a module with memory. Sample it with that module."
        )
    first = initial
    if episode.t_started:
        first = episode.get_extra_model_outputs(Columns.STATE_OUT, -1, neg_index_as_lookback=True)
    states = [first]
    for start in range(length, len(episode), length):
        states.append(episode.get_extra_model_outputs(Columns.STATE_OUT, start - 1))
    return states


class AgentToModuleMapping(DefaultConnector):
    """Groups items by module: column -> key -> items becomes module -> column -> items.

    Args:
        rl_module_specs: The modules: specifications by id, or ids.
        agent_to_module_mapping_fn: Function of (agent_id, episode) that returns a module id.
        as_learner_connector: Has no effect.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        rl_module_specs: Collection[str],
        agent_to_module_mapping_fn: Callable[..., str],
        as_learner_connector: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._modules = list(rl_module_specs)
        self._mapping = agent_to_module_mapping_fn

    def __call__(
        self,
        *,
        batch: Batch,
        episodes: Episodes,
        shared_data: Batch | None = None,
        **kwargs: object,
    ) -> Batch:
        """Group all columns with keys of agents.

        Raises:
            KeyError: An agent maps to no module.
        """
        by_id = {getattr(episode, "id_", None): episode for episode in episodes}
        made: Batch = {}
        keys: dict[str, list[Hashable]] = {}
        for column, values in batch.items():
            if not isinstance(values, dict) or column in self._modules:
                made[column] = values
                continue
            for key, items in values.items():
                module_id = self._module_of(key, by_id)
                made.setdefault(module_id, {}).setdefault(column, []).extend(items)
                if column == Columns.OBS:
                    keys.setdefault(module_id, []).extend([(*key[:2], module_id)] * len(items))
        if shared_data is not None:
            shared_data[MEMORIZED] = keys
        return made

    def _module_of(self, key: tuple[object, ...], episodes: dict[object, EpisodeType]) -> str:
        module_id = key[2] if len(key) == 3 else None
        if module_id is None:
            module_id = self._mapping(key[1], episodes.get(key[0]))
        if module_id not in self._modules:
            raise KeyError(
                f"The agent {key[1]!r} maps to the module {module_id!r}, which does not exist."
                f"{did_you_mean(str(module_id), self._modules)} Modules: {sorted(self._modules)}."
            )
        return str(module_id)


class BatchIndividualItems(DefaultConnector):
    """Stacks the items of each column to an array with a batch dimension.

    Args:
        multi_agent: Columns are grouped by module id.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        multi_agent: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self._multi_agent = multi_agent

    def __call__(
        self,
        *,
        rl_module: RLModule,
        batch: Batch,
        episodes: Episodes,
        shared_data: Batch | None = None,
        **kwargs: object,
    ) -> Batch:
        """Stack all columns except infos; for a learner, under the id of the single module."""
        if self._multi_agent:
            return {
                module_id: {name: _stacked(name, items) for name, items in columns.items()}
                if isinstance(columns, dict)
                else columns
                for module_id, columns in batch.items()
            }
        made: Batch = {}
        for column, values in batch.items():
            if not isinstance(values, dict):
                made[column] = _stacked(column, values)
                continue
            if column == Columns.OBS and shared_data is not None:
                shared_data[MEMORIZED] = {
                    None: [key for key, items in values.items() for _ in items]
                }
            made[column] = _stacked(column, [item for each in values.values() for item in each])
        if hasattr(rl_module, "rl_module_specs"):
            return {DEFAULT_MODULE_ID: made}
        return made


def _stacked(column: str, items: object) -> Tree:
    if column == Columns.INFOS or not isinstance(items, list) or not items:
        return items
    return stack_trees(np.stack, [map_tree(np.asarray, item) for item in items])


# -- helpers


def module_of(rl_module: ModuleType, key: tuple[object, ...]) -> Any:
    """Return the module that acts for the items of a key; None if it does not exist."""
    if not hasattr(rl_module, "rl_module_specs"):
        return rl_module
    module_id = DEFAULT_MODULE_ID if len(key) < 3 or key[2] is None else key[2]
    return rl_module.get(module_id)


def max_seq_len(module: ModuleType) -> int:
    """Return the length of training sequences of a module."""
    return int(module.model_config.get("max_seq_len", 20))


def as_array(leaf: Tree) -> np.ndarray:
    """Return an array or a tensor as an array."""
    found: np.ndarray = leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else np.asarray(leaf)
    return found


def items_of(values: object) -> list[Tree]:
    """Return the items of a list, or of a tree of arrays with a batch dimension."""
    if isinstance(values, list):
        return values
    return [map_tree(lambda leaf, n=n: leaf[n], values) for n in range(len(first_leaf(values)))]


def sequences_of(items: Iterable[Tree], length: int) -> list[Tree]:
    """Return items as arrays [length, …]; pad the last one with zeros."""
    listed = list(items)

    def piece(start: int) -> Tree:
        part = [map_tree(np.asarray, item) for item in listed[start : start + length]]

        def padded(arrays: Tree) -> np.ndarray:
            stacked = np.stack(arrays)
            missing = np.zeros((length - len(stacked), *stacked.shape[1:]), stacked.dtype)
            return np.concatenate([stacked, missing])

        return stack_trees(padded, part)

    return [piece(start) for start in range(0, len(listed), length)]
