"""`GeneralAdvantageEstimation`: advantages and value targets (Schulman et al. 2016)."""

from __future__ import annotations

import numpy as np
import torch

from syncline.rl.columns.names import Columns
from syncline.rl.connectors.connector import Batch
from syncline.rl.connectors.to_module.items import DefaultConnector, max_seq_len, sequences_of
from syncline.rl.metrics.names import DEFAULT_MODULE_ID
from syncline.rl.returns.gae import gae
from syncline.rl.value_types import Episode, Episodes, ModuleType, Space


class GeneralAdvantageEstimation(DefaultConnector):
    """Adds advantages, standardized over the module's steps, and value targets.

    Episodes must have a bootstrap step (`AddOneTsToEpisodesAndTruncate`).

    Args:
        gamma: Discount factor.
        lambda_: Weight of longer returns, from 0 to 1.
    """

    def __init__(
        self,
        input_observation_space: Space | None = None,
        input_action_space: Space | None = None,
        *,
        gamma: float,
        lambda_: float,
        **kwargs: object,
    ) -> None:
        super().__init__(input_observation_space, input_action_space, **kwargs)
        self.gamma = gamma
        self.lambda_ = lambda_
        self._kwargs = {"gamma": gamma, "lambda_": lambda_}

    def __call__(
        self, *, rl_module: ModuleType, batch: Batch, episodes: Episodes, **kwargs: object
    ) -> Batch:
        """Add the columns to every module that has a value function."""
        singles = list(self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False))
        for module_id, columns in batch.items():
            if module_id not in rl_module or not hasattr(rl_module[module_id], "compute_values"):
                continue
            own = [each for each in singles if _module_id(each) == module_id]
            self._add(rl_module[module_id], columns, [len(each) for each in own])
        return batch

    def _add(self, module: ModuleType, columns: Batch, lengths: list[int]) -> None:
        with torch.no_grad():
            values = module.compute_values(columns)
        stateful = module.is_stateful()
        size = max_seq_len(module) if stateful else 0
        names = (Columns.REWARDS, Columns.TERMINATEDS)
        flat_values = _episodes(values, lengths, size)
        rewards, terminated = (_episodes(columns[name], lengths, size) for name in names)
        advantages = [
            self._of_episode(*each) for each in zip(flat_values, rewards, terminated, strict=True)
        ]
        targets = [a + v for a, v in zip(advantages, flat_values, strict=True)]
        real = np.concatenate([each[:-1] for each in advantages])
        mean, std = real.mean(), max(1e-4, float(real.std()))
        standardized = [(each - mean) / std for each in advantages]
        columns[Columns.ADVANTAGES] = _batched(standardized, size, values)
        columns[Columns.VALUE_TARGETS] = _batched(targets, size, values)

    def _of_episode(
        self, values: np.ndarray, rewards: np.ndarray, terminated: np.ndarray
    ) -> np.ndarray:
        """Return the advantages of an episode; 0 for the added last step."""
        following = np.where(terminated[:-1], 0.0, values[1:]).astype(np.float32)
        ends = np.zeros((len(following), 1), bool)
        ends[-1] = True
        found = gae(
            rewards[:-1, None],
            values[:-1, None],
            following[:, None],
            ends,
            self.gamma,
            self.lambda_,
        )
        return np.append(found[:, 0], np.float32(0.0))


def _module_id(episode: Episode) -> str:
    return episode.module_id or DEFAULT_MODULE_ID


def _episodes(column: torch.Tensor, lengths: list[int], size: int) -> list[np.ndarray]:
    """Split a column by episode; remove the padding of sequences of `size` steps."""
    array = column.detach().cpu().numpy()
    if not size:
        return np.split(array, np.cumsum(lengths)[:-1])
    made, start = [], 0
    for length in lengths:
        count = -(-length // size)
        made.append(array[start : start + count].reshape(count * size)[:length])
        start += count
    return made


def _batched(episodes: list[np.ndarray], size: int, like: torch.Tensor) -> torch.Tensor:
    """Return the values of episodes as a column."""
    if size:
        array = np.stack([piece for each in episodes for piece in sequences_of(each, size)])
    else:
        array = np.concatenate(episodes)
    return torch.as_tensor(array.astype(np.float32), device=like.device)
