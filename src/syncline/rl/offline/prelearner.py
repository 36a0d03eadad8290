"""`OfflinePreLearner`: converts recorded rows to rows of steps, in workers of `syncline.data`.

Nested observations and actions become one column per leaf: "obs/position", "obs/0".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.rl import array_msgpack
from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, map_tree
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.value_types import Batch

EPISODE = "item"
"""Column of packed episodes."""
Rows = dict[str, np.ndarray]


class OfflinePreLearner:
    """Prepares recorded data for learners. Subclasses may override `__call__`.

    Args:
        config: The algorithm's options.
    """

    def __init__(self, *, config: AlgorithmConfig, **_: object) -> None:
        self.config = config

    def __call__(self, batch: Rows) -> Rows:
        """Return the steps of recorded rows, as columns [B, ...].

        Raises:
            ValueError: The rows do not match the options.
        """
        if not self.config.input_read_episodes:
            return self._renamed(batch)
        if EPISODE not in batch:
            raise ValueError(
                f"`input_read_episodes=True`, but the files have no column {EPISODE!r} with "
                f"recorded episodes; they have {sorted(batch)}. For one row per step, remove the "
                "option and name the columns in `input_read_schema`."
            )
        episodes = [
            steps_of(SingleAgentEpisode.from_state(array_msgpack.unpack(packed)))
            for packed in batch[EPISODE]
        ]
        return {name: np.concatenate([steps[name] for steps in episodes]) for name in episodes[0]}

    def _renamed(self, batch: Rows) -> Rows:
        names = {given: name for name, given in self.config.input_read_schema.items()}
        rows = {names.get(name, name): np.asarray(column) for name, column in batch.items()}
        missing = {Columns.OBS, Columns.ACTIONS} - {name.partition("/")[0] for name in rows}
        if missing:
            raise ValueError(
                f"Recorded data need the columns {sorted(missing)}; the files have "
                f"{sorted(batch)}. Name them in `input_read_schema`, such as "
                "{'obs': 'o_t'}, or set `input_read_episodes=True` for recorded episodes."
            )
        return rows


def steps_of(episode: SingleAgentEpisode) -> Rows:
    """Return the steps of an episode as columns [T, ...]."""
    episode = episode.to_numpy()
    length = len(episode)
    observations = episode.get_observations()
    ends = np.zeros((2, length), bool)
    ends[:, -1:] = [[episode.is_terminated], [episode.is_truncated]]
    rows = {
        Columns.EPS_ID: np.full(length, episode.id_),
        Columns.REWARDS: np.asarray(episode.get_rewards(), np.float32),
        Columns.TERMINATEDS: ends[0],
        Columns.TRUNCATEDS: ends[1],
    }
    for name, tree in (
        (Columns.OBS, _part(observations, slice(0, length))),
        (Columns.NEXT_OBS, _part(observations, slice(1, length + 1))),
        (Columns.ACTIONS, episode.get_actions()),
    ):
        rows.update(flattened(name, tree))
    return rows


def _part(tree: Tree, steps: slice) -> Tree:
    return map_tree(lambda leaf: leaf[steps], tree)


def flattened(name: str, tree: Tree) -> Rows:
    """Return the leaves of a tree as columns named by their paths."""
    if isinstance(tree, dict):
        items: Any = tree.items()
    elif isinstance(tree, (tuple, list)):
        items = enumerate(tree)
    else:
        return {name: np.asarray(tree)}
    return {
        path: leaf for key, part in items for path, leaf in flattened(f"{name}/{key}", part).items()
    }


def nested(columns: Rows) -> dict[str, Tree]:
    """Convert columns named by `flattened` back to trees; numbered leaves become tuples."""
    trees: Batch = {}
    for path, leaf in columns.items():
        *parents, last = path.split("/")
        place = trees
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = leaf
    return {name: _with_tuples(tree) for name, tree in trees.items()}


def _with_tuples(tree: Tree) -> Tree:
    if not isinstance(tree, dict):
        return tree
    parts = {key: _with_tuples(part) for key, part in tree.items()}
    if all(key.isdigit() for key in parts):
        return tuple(parts[str(number)] for number in range(len(parts)))
    return parts
