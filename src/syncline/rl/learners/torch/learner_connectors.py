"""`LearnerConnectors`: user-defined connectors between samples and loss.

Learners work on whole fragments and need no connectors. User-defined connectors run on episodes
that are converted from the fragments, each extended by a step with the last observation:

* Connectors before all default ones change fragments: observations, actions and rewards of the
  episodes, and the columns that they add to the batch. All other computations, such as advantages,
  are the same as without connectors, for any algorithm.
* With connectors between or after the default ones, the whole pipeline builds the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from syncline.rl.columns.fragment import Fragment
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree, stack_trees
from syncline.rl.connectors.connector import Batch, ConnectorV2, batch_key
from syncline.rl.connectors.defaults import is_default, own_pieces
from syncline.rl.connectors.pipeline import ConnectorPipelineV2
from syncline.rl.connectors.to_learner.train_columns import AddOneTsToEpisodesAndTruncate
from syncline.rl.connectors.to_module.items import items_of
from syncline.rl.episodes.from_fragments import Part, episode_of, parts_of
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.learners.torch.train_batch import TrainBatch
from syncline.rl.metrics.metrics_logger import MetricsLogger
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.value_types import ModuleType

_ENDS = (Columns.LOSS_MASK, Columns.TERMINATEDS, Columns.TRUNCATEDS)


class LearnerConnectors:
    """Runs the user-defined connectors of a learner's pipeline.

    Args:
        pipeline: Connectors from episodes to the learner.
        modules: The learner's modules.
        metrics: Logger that is passed to connectors.
    """

    def __init__(
        self, pipeline: ConnectorPipelineV2, modules: ModuleType, metrics: MetricsLogger
    ) -> None:
        self.pipeline = pipeline
        self._modules = modules
        self._metrics = metrics

    @property
    def exist(self) -> bool:
        """True if the pipeline has user-defined connectors."""
        pieces = self.pipeline.connectors
        return bool(pieces[own_pieces(pieces)])

    @property
    def make_batches(self) -> bool:
        """True if the whole pipeline must run: not all user-defined connectors come first."""
        pieces = self.pipeline.connectors
        place = own_pieces(pieces)
        before = pieces[: place.start]
        inside = pieces[place]
        return any(is_default(each) for each in inside) or any(
            not isinstance(each, AddOneTsToEpisodesAndTruncate) for each in before
        )

    # -- fragments

    def changed(self, module_id: str, fragment: Fragment) -> Fragment:
        """Apply the user-defined connectors to a fragment."""
        parts = parts_of(fragment)
        if not parts:
            return fragment
        episodes = self._episodes(module_id, fragment, parts)
        AddOneTsToEpisodesAndTruncate()(batch={}, episodes=episodes)
        pieces = self.pipeline.connectors
        batch = self._run(pieces[own_pieces(pieces)], episodes, {})
        obs = [_items(batch, Columns.OBS, each, each.get_observations()) for each in episodes]
        rewards = [_items(batch, Columns.REWARDS, each, each.get_rewards()) for each in episodes]
        columns = {
            Columns.ACTIONS: [
                _items(batch, Columns.ACTIONS, each, each.get_actions()) for each in episodes
            ]
        }
        for name in fragment.columns:
            if name != Columns.ACTIONS:
                columns[name] = [
                    _items(batch, name, each, each.get_extra_model_outputs(name))
                    for each in episodes
                ]
        for name in batch.keys() - columns.keys() - {Columns.OBS, Columns.REWARDS, *_ENDS}:
            columns[name] = [_items(batch, name, each, None) for each in episodes]
        return _rebuilt(fragment, parts, obs, rewards, columns)

    def changed_rows(self, module_id: str, rows: dict[str, Tree]) -> dict[str, Tree]:
        """Apply the user-defined connectors to rows of a replay buffer.

        Each row becomes an episode of one step.
        """
        count = len(rows[Columns.REWARDS])
        fragment = Fragment(
            obs=map_tree(lambda a, b: np.stack([a, b]), rows[Columns.OBS], rows[Columns.NEXT_OBS]),
            columns={Columns.ACTIONS: map_tree(lambda leaf: leaf[None], rows[Columns.ACTIONS])},
            rewards=np.asarray(rows[Columns.REWARDS], np.float32)[None],
            terminated=np.asarray(rows[Columns.TERMINATEDS], bool)[None],
            truncated=np.zeros((1, count), bool),
            final_at=np.stack([np.zeros(count, np.int64), np.arange(count)], axis=1)[
                np.asarray(rows[Columns.TERMINATEDS], bool)
            ],
            final_obs=map_tree(
                lambda leaf: leaf[np.asarray(rows[Columns.TERMINATEDS], bool)],
                rows[Columns.NEXT_OBS],
            ),
        )
        changed = self.changed(module_id, fragment)
        following = changed.next_obs()
        return {
            **rows,
            **{
                name: map_tree(lambda leaf: leaf[0], each) for name, each in changed.columns.items()
            },
            Columns.OBS: map_tree(lambda leaf: leaf[0], changed.obs),
            Columns.NEXT_OBS: map_tree(lambda leaf: leaf[0], following),
            Columns.REWARDS: changed.rewards[0],
        }

    # -- batches

    def batch(self, module_id: str, fragments: Sequence[Fragment]) -> TrainBatch:
        """Return the batch of a module, built by the whole pipeline.

        Raises:
            ValueError: The module has a memory, but its states are not recorded for every step.
        """
        module = self._modules[module_id]
        if module.is_stateful():
            raise ValueError(
                f"The module {module_id!r} has a memory, so its learner connectors must come "
                "before the default ones. Add them with "
                "`learners(learner_connector=…)`."
            )
        episodes = [
            each
            for fragment in fragments
            for each in self._episodes(module_id, fragment, parts_of(fragment))
        ]
        made = self._run(self.pipeline.connectors, episodes, {})
        columns = made[module_id]
        mask = columns.get(Columns.LOSS_MASK)
        rows = len(columns[Columns.REWARDS]) if mask is None else int(mask.sum())
        return TrainBatch(columns=columns, num_rows=rows)

    def _episodes(
        self, module_id: str, fragment: Fragment, parts: Sequence[Part]
    ) -> list[SingleAgentEpisode]:
        module = self._modules[module_id]
        several = module_id != DEFAULT_MODULE_ID
        episodes = [
            episode_of(
                fragment,
                part,
                observation_space=module.observation_space,
                action_space=module.action_space,
                agent_id=f"trajectory {part.trajectory}" if several else None,
                module_id=module_id if several else None,
            )
            for part in parts
        ]
        for episode in episodes:
            episode.multi_agent_episode_id = episode.id_ if several else None
        return episodes

    def _run(
        self, pieces: Sequence[ConnectorV2], episodes: list[SingleAgentEpisode], batch: Batch
    ) -> Batch:
        return ConnectorPipelineV2(connectors=pieces)(
            rl_module=self._modules,
            batch=batch,
            episodes=episodes,
            shared_data={},
            metrics=self._metrics,
        )


def _items(batch: Batch, name: str, episode: SingleAgentEpisode, otherwise: Tree) -> list[Tree]:
    """Return the items of an episode, from the batch if it has the column."""
    if name in batch:
        return items_of(batch[name][batch_key(episode)])
    return items_of(otherwise)


def _rebuilt(
    fragment: Fragment,
    parts: Sequence[Part],
    obs: list[list[Tree]],
    rewards: list[list[Tree]],
    columns: dict[str, list[list[Tree]]],
) -> Fragment:
    """Return a fragment with new observations, rewards and columns, given by part."""
    length, width = fragment.rewards.shape
    made_obs = _empty((length + 1, width), obs[0][0])
    made_rewards = fragment.rewards.copy()
    made_columns = {name: _empty((length, width), each[0][0]) for name, each in columns.items()}
    finals: dict[int, Tree] = {}
    for number, part in enumerate(parts):
        place = slice(part.start, part.stop), part.trajectory
        _put(made_obs, place, obs[number][: part.num_steps])
        made_rewards[place] = rewards[number][: part.num_steps]
        for name, each in columns.items():
            _put(made_columns[name], place, each[number][: part.num_steps])
        after = obs[number][part.num_steps]
        if part.final is None:
            _put(made_obs, (slice(part.stop, part.stop + 1), part.trajectory), [after])
        else:
            finals[part.final] = after
    if finals:
        some = next(iter(finals.values()))
        listed = [finals.get(row, some) for row in range(len(fragment.final_at))]
        final_obs = stack_trees(_stacked, listed)
    else:
        final_obs = map_tree(lambda leaf: leaf[0, :0], made_obs)
    return replace(
        fragment, obs=made_obs, rewards=made_rewards, columns=made_columns, final_obs=final_obs
    )


def _empty(shape: tuple[int, ...], like: Tree) -> Tree:
    return map_tree(lambda leaf: _zeros(shape, np.asarray(leaf)), like)


def _zeros(shape: tuple[int, ...], like: np.ndarray) -> np.ndarray:
    return np.zeros((*shape, *like.shape), _narrow(like.dtype))


def _put(tree: Tree, place: Any, items: Sequence[Tree]) -> None:
    """Write items, one per step, to an index of a tree of arrays [T, N, …]."""

    def put(target: np.ndarray, values: np.ndarray) -> None:
        target[place] = values

    map_tree(put, tree, stack_trees(_stacked, items))


def _stacked(arrays: Tree) -> np.ndarray:
    stacked = np.stack([np.asarray(each) for each in arrays])
    return stacked.astype(_narrow(stacked.dtype), copy=False)


def _narrow(dtype: object) -> Any:
    return np.float32 if dtype == np.float64 else dtype
