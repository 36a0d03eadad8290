"""`EpisodeRecorder`: writes complete episodes of an env runner to the files of `config.output`.

An episode is one row with its state as msgpack, or one row per step. Episodes contain the (for
example normalized) actions of the module; rows of steps contain those of the environment.
Unfinished episodes are not written when the algorithm stops or a runner dies.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

import numpy as np
import pyarrow as pa

from syncline import data
from syncline.rl import array_msgpack
from syncline.rl.columns.names import Columns
from syncline.rl.config.algorithm_config import AlgorithmConfig
from syncline.rl.episodes.single_agent_episode import SingleAgentEpisode
from syncline.rl.offline.filesystems import named_filesystem
from syncline.rl.offline.prelearner import EPISODE, flattened, steps_of
from syncline.rl.runners.actions import actions_for_env
from syncline.rl.value_types import Batch, Env


class EpisodeRecorder:
    """Collects episodes, and writes a file or a folder of files when there are enough.

    Args:
        config: The algorithm's options; `output` is set.
        worker_index: Index of the runner, part of its file names.
        module_id: With several modules, the module of these episodes; used as folder name.
    """

    def __init__(
        self, config: AlgorithmConfig, worker_index: int, module_id: str | None = None
    ) -> None:
        self._config = config
        self._folder = f"{config.output}/{_env_name(config.env)}"
        if module_id is not None:
            self._folder += f"/{module_id}"
        self._prefix = f"run-{worker_index:06d}-{uuid.uuid4().hex[:8]}"
        self._written = 0
        self._rows: list[Batch] = []
        self._size = 0
        if config.output_write_episodes:
            array_msgpack.pack({})  # fail now rather than after the first episode

    def add(self, episode: SingleAgentEpisode) -> None:
        """Add a complete episode; write the collected episodes if there are enough."""
        episode = episode.to_numpy()
        if self._config.output_write_episodes:
            packed = array_msgpack.pack(episode.get_state())
            self._rows.append({EPISODE: packed})
            self._size += len(packed)
        else:
            steps = {**steps_of(episode), **self._actions_for_env(episode)}
            self._rows.extend(
                {name: column[place] for name, column in steps.items()}
                for place in range(len(episode))
            )
            self._size += sum(np.asarray(column).nbytes for column in steps.values())
        most = self._config.output_max_rows_per_file
        if self._size >= self._config.output_max_file_size or (most and len(self._rows) >= most):
            self.write()

    def _actions_for_env(self, episode: SingleAgentEpisode) -> dict[str, np.ndarray]:
        """Return the columns of the actions passed to the environment."""
        config, actions = self._config, episode.get_actions()
        if episode.action_space is not None:
            convert = actions_for_env(
                episode.action_space, normalize=config.normalize_actions, clip=config.clip_actions
            )
            actions = actions if convert is None else convert(actions)
        return flattened(Columns.ACTIONS, actions)

    def write(self) -> None:
        """Write the collected episodes."""
        if not self._rows:
            return
        config = self._config
        write = getattr(_dataset(self._rows), config.output_write_method)
        write(
            f"{self._folder}/{self._prefix}-{self._written:05d}",
            filesystem=named_filesystem(config.output_filesystem, config.output_filesystem_kwargs),
            **config.output_write_method_kwargs,
        )
        self._written += 1
        self._rows, self._size = [], 0


def _dataset(rows: list[Batch]) -> Any:
    if EPISODE in rows[0]:
        return data.from_arrow(pa.table({EPISODE: [row[EPISODE] for row in rows]}))
    return data.from_items(rows, override_num_blocks=1)


def _env_name(env: Env) -> str:
    name = env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)
    return re.sub(r"[^\w.-]+", "-", name).lower()
