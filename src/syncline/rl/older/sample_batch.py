"""`SampleBatch` and `MultiAgentBatch`: the batches of older releases, rows by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from syncline.rl.columns.names import Columns
from syncline.rl.columns.trees import Tree, first_leaf, map_tree, stack_trees
from syncline.rl.metrics.names import DEFAULT_POLICY_ID
from syncline.rl.value_types import Batch


class SampleBatch(dict[str, Any]):
    """A dict-like batch of columns as arrays.

    Args:
        args: A mapping or pairs, as for `dict`.
        kwargs: Columns.
    """

    OBS = Columns.OBS
    CUR_OBS = Columns.OBS
    NEXT_OBS = Columns.NEXT_OBS
    ACTIONS = Columns.ACTIONS
    REWARDS = Columns.REWARDS
    PREV_ACTIONS = "prev_actions"
    PREV_REWARDS = "prev_rewards"
    TERMINATEDS = Columns.TERMINATEDS
    TRUNCATEDS = Columns.TRUNCATEDS
    DONES = "dones"
    INFOS = Columns.INFOS
    SEQ_LENS = Columns.SEQ_LENS
    T = Columns.T
    ACTION_DIST_INPUTS = Columns.ACTION_DIST_INPUTS
    ACTION_PROB = Columns.ACTION_PROB
    ACTION_LOGP = Columns.ACTION_LOGP
    ACTION_DIST = "action_dist"
    VF_PREDS = Columns.VF_PREDS
    VALUES_BOOTSTRAPPED = Columns.VALUES_BOOTSTRAPPED
    ATTENTION_MASKS = "attention_masks"
    EPS_ID = Columns.EPS_ID
    ENV_ID = "env_id"
    AGENT_INDEX = "agent_index"
    UNROLL_ID = "unroll_id"
    RETURNS_TO_GO = Columns.RETURNS_TO_GO
    OBS_EMBEDS = "obs_embeds"

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        for name, column in self.items():
            if isinstance(column, list) and name != self.INFOS:
                self[name] = np.asarray(column)

    @property
    def count(self) -> int:
        """Number of rows."""
        lengths = self.get(self.SEQ_LENS)
        if lengths is not None and len(lengths):
            return int(np.sum(lengths))
        columns = [each for name, each in self.items() if name != self.SEQ_LENS]
        return len(first_leaf(columns[0])) if columns else 0

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return bool(self.count)

    def agent_steps(self) -> int:
        """Return the number of rows."""
        return self.count

    env_steps = agent_steps

    def size_bytes(self) -> int:
        """Return the bytes of all arrays."""
        return sum(
            np.asarray(leaf).nbytes
            for column in self.values()
            for leaf in ([column] if not isinstance(column, dict) else column.values())
        )

    # -- parts

    def __getitem__(self, key: Any) -> Any:
        """Return a column, or the rows of a slice."""
        if isinstance(key, slice):
            return self.slice(*key.indices(self.count)[:2])
        return super().__getitem__(key)

    def slice(self, start: int, end: int, *_: object) -> SampleBatch:
        """Return the rows from `start` up to, but excluding, `end`."""
        return self._map(lambda leaf: leaf[start:end])

    def rows(self) -> Iterator[Batch]:
        """Yield each row as a dict."""
        for n in range(self.count):
            yield {
                name: map_tree(lambda leaf, n=n: leaf[n], column)
                for name, column in self.items()
                if name != self.SEQ_LENS
            }

    def columns(self, keys: Sequence[str]) -> list[Tree]:
        """Return columns."""
        return [self[key] for key in keys]

    def timeslices(
        self, size: int | None = None, num_slices: int | None = None
    ) -> list[SampleBatch]:
        """Split the rows into batches of `size`, or into `num_slices` batches."""
        if size is None:
            size = max(-(-self.count // (num_slices or 1)), 1)
        return [self.slice(start, start + size) for start in range(0, self.count, size)]

    def split_by_episode(self, key: str | None = None) -> list[SampleBatch]:
        """Split the rows by episode id or, without ids, at the ends of episodes."""
        ids = self.get(key or self.EPS_ID)
        if ids is None:
            done = np.zeros(self.count, bool)
            for name in (self.TERMINATEDS, self.TRUNCATEDS, self.DONES):
                if name in self:
                    done |= np.asarray(self[name], bool)
            breaks = np.flatnonzero(done[:-1]) + 1
        else:
            ids = np.asarray(ids)
            breaks = np.flatnonzero(ids[1:] != ids[:-1]) + 1
        edges = [0, *(int(each) for each in breaks), self.count]
        return [self.slice(a, b) for a, b in zip(edges, edges[1:], strict=False) if b > a]

    def shuffle(self) -> SampleBatch:
        """Shuffle the rows in place; return this batch."""
        order = np.random.permutation(self.count)
        self.update(self._map(lambda leaf: leaf[order]))
        return self

    def copy(self, shallow: bool = False) -> SampleBatch:
        """Return a copy, with the same arrays if `shallow`."""
        return SampleBatch(self) if shallow else self._map(np.copy)

    def _map(self, function: Any) -> SampleBatch:
        made = SampleBatch()
        for name, column in self.items():
            if name != self.SEQ_LENS:
                made[name] = (
                    function(np.array(column, object))
                    if isinstance(column, list)
                    else map_tree(function, column)
                )
        return made

    # -- joining

    def concat(self, other: SampleBatch) -> SampleBatch:
        """Concatenate both batches."""
        joined: SampleBatch = concat_samples([self, other])
        return joined

    def as_multi_agent(self, module_id: str = DEFAULT_POLICY_ID) -> MultiAgentBatch:
        """Convert to a multi-agent batch with only the default policy."""
        return MultiAgentBatch({module_id: self}, self.count)

    def is_terminated_or_truncated(self) -> bool:
        """Return True if the last row ends its episode."""
        return any(
            bool(self[name][-1])
            for name in (self.TERMINATEDS, self.TRUNCATEDS, self.DONES)
            if name in self and self.count
        )

    @staticmethod
    def concat_samples(samples: Sequence[object]) -> Any:
        """Concatenate batches."""
        return concat_samples(samples)


class MultiAgentBatch:
    """Rows by policy.

    Args:
        policy_batches: Rows by policy id.
        env_steps: Number of environment steps.
    """

    def __init__(self, policy_batches: Mapping[str, SampleBatch], env_steps: int) -> None:
        self.policy_batches = {name: SampleBatch(each) for name, each in policy_batches.items()}
        self.count = env_steps

    def env_steps(self) -> int:
        """Return the number of environment steps."""
        return self.count

    def agent_steps(self) -> int:
        """Return the number of rows of all policies."""
        return sum(each.count for each in self.policy_batches.values())

    def __getitem__(self, key: str) -> SampleBatch:
        return self.policy_batches[key]

    def __contains__(self, key: object) -> bool:
        return key in self.policy_batches

    def __len__(self) -> int:
        return self.count

    def as_multi_agent(self) -> MultiAgentBatch:
        """Return this batch."""
        return self

    def copy(self) -> MultiAgentBatch:
        """Return a copy."""
        return MultiAgentBatch(
            {k: each.copy() for k, each in self.policy_batches.items()}, self.count
        )

    def size_bytes(self) -> int:
        """Return the bytes of all arrays."""
        return sum(each.size_bytes() for each in self.policy_batches.values())

    @staticmethod
    def wrap_as_needed(batches: Mapping[str, SampleBatch], env_steps: int) -> Any:
        """Return the rows of the default policy if it is the only one, else the whole batch."""
        if list(batches) == [DEFAULT_POLICY_ID]:
            return batches[DEFAULT_POLICY_ID]
        return MultiAgentBatch(batches, env_steps)

    @staticmethod
    def concat_samples(samples: Sequence[object]) -> Any:
        """Concatenate batches."""
        return concat_samples(samples)

    def __repr__(self) -> str:
        return f"MultiAgentBatch({self.policy_batches}, env_steps={self.count})"


def concat_samples(samples: Sequence[Any]) -> Any:
    """Concatenate the rows of batches.

    Raises:
        ValueError: The batches have different columns.
    """
    if any(isinstance(each, MultiAgentBatch) for each in samples):
        parts: dict[str, list[SampleBatch]] = {}
        for each in samples:
            for name, batch in each.as_multi_agent().policy_batches.items():
                parts.setdefault(name, []).append(batch)
        steps = sum(each.count for each in samples)
        return MultiAgentBatch({k: concat_samples(each) for k, each in parts.items()}, steps)
    filled = [each for each in samples if each.count]
    if not filled:
        return SampleBatch()
    if any(set(each) != set(filled[0]) for each in filled):
        raise ValueError(
            f"Cannot concatenate batches with different columns: {sorted(filled[0])} and "
            f"{sorted(next(each for each in filled if set(each) != set(filled[0])))}."
        )
    return SampleBatch({name: _joined([each[name] for each in filled]) for name in filled[0]})


def _joined(columns: Sequence[Tree]) -> Tree:
    if isinstance(columns[0], list):
        return [item for each in columns for item in each]
    return stack_trees(np.concatenate, columns)


def convert_ma_batch_to_sample_batch(batch: Any) -> SampleBatch:
    """Return the rows of the single policy.

    Raises:
        ValueError: The batch has several policies.
    """
    if isinstance(batch, SampleBatch):
        return batch
    if len(batch.policy_batches) != 1:
        raise ValueError(f"The batch has several policies: {sorted(batch.policy_batches)}.")
    only: SampleBatch = next(iter(batch.policy_batches.values()))
    return only
